"""Exports a trained network for TF Serving: `python export.py --help`."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from lambdanet_tf import analysis
from lambdanet_tf.serving import command_line


def facts_about(model, image_size):
    """What the model card says about the cost of a model."""
    counts = analysis.analyze(model, image_size, executed=False)
    millions = counts.total("flops") / 1e6
    return {"flops": f"{millions:,.1f} million, 2 per multiply-add"}


def main(arguments=None):
    """Runs the command; returns its exit status."""
    return command_line.main(arguments, facts_about)


if __name__ == "__main__":
    sys.exit(main())
