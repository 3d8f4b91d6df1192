"""Trains a lambda network: `python train.py --help`."""

import sys

from lambdanet_tf.__main__ import train

if __name__ == "__main__":
    sys.exit(train())
