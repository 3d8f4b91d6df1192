"""`train.py` in processes of its own.

One process imports what runs need, which takes half of the time of a short one,
and forks for each of them: `python -m tests.support.train_process`.
"""

import functools
import importlib
import json
import os
import pathlib
import runpy
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]


@functools.cache
def forks(**environment):
    """A function that asks a process, which ends with this one."""
    command = [sys.executable, "-m", __name__]
    env = {**os.environ, **environment}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, cwd=ROOT, env=env, **pipes)

    def ask(*request):
        print(json.dumps(request), file=process.stdin, flush=True)
        return json.loads(process.stdout.readline())

    return ask


class Process:
    """train.py in a process of its own, which prints to a file.

    It draws no pictures. Several workers, which have an environment, need
    tf_keras.
    """

    def __init__(self, output, *arguments, **environment):
        keras = {"TF_USE_LEGACY_KERAS": "1"} if environment else {}
        self._output, self._code = output, None
        self._ask = forks(**keras)
        self._id = self._ask("start", str(output), arguments, environment)

    def _ended(self):
        if self._code is None:
            self._code = self._ask("code", self._id)
        return self._code is not None

    def _wait(self, condition):
        end = time.monotonic() + 900
        while not condition():
            assert time.monotonic() < end, self._output.read_text()
            time.sleep(0.02)

    def wait_for(self, condition):
        """Waits until a condition holds while the process is alive."""
        self._wait(lambda: condition() or self._ended())
        assert condition(), self._output.read_text()

    def send(self, number):
        if not self._ended():
            os.kill(self._id, number)

    def end(self):
        """Waits for the end; returns the exit code and what was printed."""
        self._wait(self._ended)
        return self._code, self._output.read_text()


def serve():
    """Answers what `forks` asks; what it forks runs train.py."""
    report = importlib.import_module("lambdanet_tf.training.report")
    importlib.import_module("sklearn.datasets")
    report.is_there = lambda module: False
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        if name == "start":
            answer = os.fork()
            if not answer:
                run(*arguments)
                return
        else:
            found, status = os.waitpid(*arguments, os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if found else None
        print(json.dumps(answer), flush=True)


def run(output, arguments, environment):
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environment)
    sys.argv = ["train.py", *arguments]
    runpy.run_path(str(ROOT / "train.py"), run_name="__main__")


def clusters(number):
    """TF_CONFIG for each of some workers on this machine."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    workers = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    tasks = [{"type": "worker", "index": index} for index in range(number)]
    cluster = {"worker": workers}
    return [json.dumps({"cluster": cluster, "task": task}) for task in tasks]


if __name__ == "__main__":
    serve()
