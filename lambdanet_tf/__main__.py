"""Starts the commands: `python -m lambdanet_tf`, `lambdanet`, train.py.

SIGTERM has its meaning before anything else is imported.
"""

import importlib
import os
import signal
import sys


def main(*command: str) -> int:
    """Runs a command, by default the one that this process' arguments name.

    SIGTERM ends a training with 75, also before there is a run to save. In the
    end the exit code stands, and SIGTERM is ignored.
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
