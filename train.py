"""Trains a lambda network: `python train.py --help`."""

import sys

from lambdanet_tf.cli import start

if __name__ == "__main__":
    sys.exit(start("train"))
