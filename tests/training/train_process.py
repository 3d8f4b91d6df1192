"""`train.py` in processes of its own."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]


class Process:
    """train.py with these arguments, which prints to a file.

    Several workers, which have an environment, need tf_keras.
    """

    def __init__(self, output, *arguments, **environment):
        keras = {"TF_USE_LEGACY_KERAS": "1"} if environment else {}
        self._output = output
        with open(output, "w", encoding="utf-8") as file:
            self._process = subprocess.Popen(
                [sys.executable, ROOT / "train.py", *arguments],
                env={**os.environ, **keras, **environment},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.send = self._process.send_signal

    def wait_for(self, condition):
        """Waits until a condition holds while the process is alive."""
        end = time.monotonic() + 900
        while not condition() and self._process.poll() is None:
            assert time.monotonic() < end, self._output.read_text()
            time.sleep(0.02)
        assert condition(), self._output.read_text()

    def end(self):
        """Waits for the end; returns the exit code and what was printed."""
        return self._process.wait(900), self._output.read_text()


def clusters(number):
    """TF_CONFIG for each of some workers on this machine."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    workers = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    tasks = [{"type": "worker", "index": index} for index in range(number)]
    cluster = {"worker": workers}
    return [json.dumps({"cluster": cluster, "task": task}) for task in tasks]
