"""Prints what a network costs: `python -m lambdanet_tf.summary NAME`.

NAME can also be a `.keras` file, of a sequence model too.
"""

import argparse
import os
import sys

# TensorFlow's C++ reports, among others, an error for a missing GPU.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import models

_EPILOG = """\
FLOPs are the paper's: 2 per multiply-add, the scope clipped to the map.
"executed" are those of the products that TensorFlow runs with the algorithm
chosen for each layer. "activations" are the outputs of all layers, and the
queries, keys, values and position lambdas of lambda layers; "embeddings" those
of all pairs of positions, which only some algorithms hold; "table" the learned
ones. All for one image in inference.
"""


def main(arguments=None):
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lambdanet_tf.summary",
        description="Print parameters, operations and memory of a network.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name",
        help=f"one of {', '.join(models.names())}, or a .keras file",
    )
    parser.add_argument(
        "--size",
        type=int,
        help="height and width of the images, or length of the sequences",
    )
    parser.add_argument(
        "--channels", type=int, default=3, help="of the images (default: 3)"
    )
    parser.add_argument(
        "--classes", type=int, default=1000, help="(default: 1000)"
    )
    parser.add_argument(
        "--layers", action="store_true", help="a row for every layer"
    )
    flags = parser.parse_args(arguments)
    try:
        print(_summary(flags))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _summary(flags):
    if flags.name.endswith(".keras"):
        model = tf.keras.models.load_model(flags.name)
        counts = analysis.analyze(model, flags.size)
        return counts.table(every_layer=flags.layers)
    shape = None
    if flags.size is not None:
        shape = (flags.size, flags.size, flags.channels)
    model = models.build(flags.name, input_shape=shape, classes=flags.classes)
    return analysis.analyze(model).table(every_layer=flags.layers)


if __name__ == "__main__":
    sys.exit(main())
