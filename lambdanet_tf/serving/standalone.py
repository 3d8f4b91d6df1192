"""Runs a SavedModel in a process with TensorFlow only, as TF Serving loads it.

    python standalone.py MODEL_FOLDER < CALLS > OUTPUTS

The process blocks the import of Keras and of this package before it imports
TensorFlow. It loads the tag `serve`, and runs each call: a signature and its
inputs by name. It reads and writes pickles.
"""

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from types import ModuleType
from typing import Any

BLOCKED = ("keras", "tf_keras", "lambdanet_tf")

# A signature, and its inputs by name.
Call = tuple[str, Mapping[str, Any]]


class DoesNotRun(RuntimeError):
    """An export cannot be loaded, or rejects a call."""

    exit_code = 2


def run_standalone(
    folder: str | os.PathLike, calls: Sequence[Call]
) -> list[dict[str, Any]]:
    """Runs signatures of an export in a process with TensorFlow only.

    Returns the outputs of each call by name, or raises `DoesNotRun`.
    """
    finished = subprocess.run(
        [sys.executable, __file__, os.fspath(folder)],
        input=pickle.dumps(list(calls)),
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        check=False,
    )
    if finished.returncode:
        raise DoesNotRun(
            f"{folder} does not run in a process with TensorFlow only:\n"
            + finished.stderr[-2000:].decode(errors="replace")
        )
    return pickle.loads(finished.stdout)


class Session:
    """A SavedModel in a TensorFlow 1 session, as TF Serving runs it.

    `signatures` has each `SignatureDef` by name.
    """

    def __init__(self, tf: ModuleType, folder: str | os.PathLike):
        v1 = tf.compat.v1
        v1.logging.set_verbosity(v1.logging.ERROR)
        self._session = v1.Session(graph=v1.Graph())
        with self._session.graph.as_default():
            loaded = v1.saved_model.loader.load(
                self._session, [tf.saved_model.SERVING], str(folder)
            )
        self.signatures = {
            name: signature
            for name, signature in loaded.signature_def.items()
            if not name.startswith("__")  # TensorFlow's own
        }

    def run(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the outputs of a signature by name."""
        names = self.signatures[signature]
        return self._session.run(
            {key: info.name for key, info in names.outputs.items()},
            {names.inputs[key].name: value for key, value in inputs.items()},
        )


def _main(folder):
    blocked: dict = dict.fromkeys(BLOCKED)  # None blocks an import
    sys.modules.update(blocked)
    calls = pickle.load(sys.stdin.buffer)
    # Other prints must not mix with the bytes of the outputs.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    session = Session(importlib.import_module("tensorflow"), folder)
    with output:
        pickle.dump([session.run(*call) for call in calls], output)


if __name__ == "__main__":
    sys.path.pop(0)  # this script's folder, which is part of a package
    _main(sys.argv[1])
