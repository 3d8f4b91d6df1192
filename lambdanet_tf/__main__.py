"""Starts the commands: `python -m lambdanet_tf`, `lambdanet`, train.py.

SIGTERM has its meaning before anything else is imported.
"""

import importlib
import os
import signal
import sys


def main() -> int:
    """Runs the command that the first argument of this process names."""
    if sys.argv[1:2] == ["train"]:
        return _stops_with_75("main")
    return importlib.import_module("lambdanet_tf.cli").main()


def train() -> int:
    """Runs the command `train`."""
    return _stops_with_75("train")


def _stops_with_75(command):
    """Lets SIGTERM end this process with 75, without a run to save.

    In the end the exit code stands, and SIGTERM is ignored.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(75))
    try:
        cli = importlib.import_module("lambdanet_tf.cli")
        return getattr(cli, command)()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
