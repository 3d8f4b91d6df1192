"""Starts the commands: `python -m lambdanet_tf` is `lambdanet`."""

import sys

from lambdanet_tf.cli import start

if __name__ == "__main__":
    sys.exit(start())
