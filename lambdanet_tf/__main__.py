"""Starts the commands: `python -m lambdanet_tf`, `lambdanet`, train.py.

It handles SIGTERM before it imports anything else.
"""

import importlib
import os
import signal
import sys


def main(*command: str) -> int:
    """Runs a command, by default the one in the arguments of this process.

    SIGTERM ends a training with exit code 75, also before there is a run to
    save. Once the exit code is known, SIGTERM is ignored.
    """
    words = [*command, *sys.argv[1:]]
    if words[:1] != ["train"]:
        return importlib.import_module("lambdanet_tf.cli").main(words)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(75))
    try:
        return importlib.import_module("lambdanet_tf.cli").main(words)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
