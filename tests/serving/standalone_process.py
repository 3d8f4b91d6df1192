"""A process with TensorFlow alone, which runs one export after the other.

`standalone.run_standalone` starts one for each export; most of its time is the
import of TensorFlow. What this imports, that process imports.
"""

import concurrent.futures
import functools
import importlib
import multiprocessing
import os
import runpy
import sys


@functools.cache
def _program(file):
    """What `standalone` defines, and TensorFlow, without Keras and package."""
    ours = runpy.run_path(file)
    sys.modules.update(dict.fromkeys(ours["BLOCKED"]))
    return ours, importlib.import_module("tensorflow")


def _answers(file, folder, calls):
    ours, tf = _program(file)
    try:
        session = ours["Session"](tf, folder)
        return [session.run(*call) for call in calls]
    except Exception as error:
        raise RuntimeError(f"{folder} does not run: {error}") from None


class StandaloneProcess:
    """Starts with the first call."""

    def __init__(self):
        spawn = multiprocessing.get_context("spawn")
        self._pool = concurrent.futures.ProcessPoolExecutor(1, spawn)
        self.end = self._pool.shutdown

    def run(self, folder, calls):
        """As `run_standalone`."""
        standalone = sys.modules["lambdanet_tf.serving.standalone"]
        if "://" not in os.fspath(folder):
            # The process has the working folder in which it was started.
            folder = os.path.abspath(folder)
        call = _answers, standalone.__file__, folder, list(calls)
        try:
            return self._pool.submit(*call).result()
        except RuntimeError as error:
            raise standalone.DoesNotRun(f"{error}") from error
