"""Runs `python -m lambdanet_tf`."""

import sys

from lambdanet_tf.cli import main

if __name__ == "__main__":
    sys.exit(main())
