"""Exports a trained network for TF Serving: `python export.py --help`."""

import sys

from lambdanet_tf.cli import start

if __name__ == "__main__":
    sys.exit(start("export"))
