"""Exports a trained network for TF Serving: `python export.py --help`."""

import sys

from lambdanet_tf.__main__ import main

if __name__ == "__main__":
    sys.exit(main("export"))
