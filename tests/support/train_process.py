"""`train.py` in processes of its own."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time


class Process:
    """train.py in a process of its own, in this process's Keras."""

    def __init__(self, *arguments, **environment):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "train.py"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )

    def wait_for(self, condition):
        """Waits until a condition holds while the process is alive."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert self._process.poll() is None, self._process.stdout.read()
            assert time.monotonic() < end, "nothing happened"
            time.sleep(0.02)

    def send(self, number):
        self._process.send_signal(number)

    def end(self):
        """Waits for the end; returns the exit code and what was printed."""
        output, _ = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, output

    def destroy(self):
        self._process.kill()
        self._process.communicate()


PATIENCE = 900


ROOT = pathlib.Path(__file__).parents[2]


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def clusters(number):
    """TF_CONFIG for each of some workers on this machine."""
    workers = [f"127.0.0.1:{port}" for port in free_ports(number)]
    tasks = [{"type": "worker", "index": index} for index in range(number)]
    cluster = {"worker": workers}
    return [json.dumps({"cluster": cluster, "task": task}) for task in tasks]
