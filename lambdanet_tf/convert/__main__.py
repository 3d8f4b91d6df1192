"""Runs `python -m lambdanet_tf.convert`."""

import sys

from lambdanet_tf.convert.command_line import main

if __name__ == "__main__":
    sys.exit(main())
