"""A process with TensorFlow alone, which runs one export after the other.

`standalone.run_standalone` starts one for each export; most of its time is the
import of TensorFlow.
"""

import os
import pickle
import subprocess
import sys

from lambdanet_tf.serving import standalone

PROGRAM = """
import importlib, os, pickle, runpy, sys
ours = runpy.run_path(sys.argv[1])
sys.modules.update(dict.fromkeys(ours["BLOCKED"]))
tf = importlib.import_module("tensorflow")
output = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
while True:
    folder, calls = pickle.load(sys.stdin.buffer)
    try:
        session = ours["Session"](tf, folder)
        answer = [ours["_answer"](session, *call) for call in calls]
    except Exception as error:
        answer = RuntimeError(f"{folder} does not run: {error}")
    pickle.dump(answer, output)
    output.flush()
"""


class StandaloneProcess:
    """Starts with the first call."""

    def __init__(self):
        self._process = None

    def run(self, folder, calls):
        """As `run_standalone`."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, standalone.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        pickle.dump((os.fspath(folder), list(calls)), self._process.stdin)
        self._process.stdin.flush()
        answer = pickle.load(self._process.stdout)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self):
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
