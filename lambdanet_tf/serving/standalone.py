"""Runs a SavedModel in a process with TensorFlow alone, as TF Serving loads it.

    python standalone.py MODEL_FOLDER < CALLS > OUTPUTS

The process makes the import of Keras and of this package impossible before it
imports TensorFlow, loads the tag `serve`, and runs each call: a signature, its
inputs by name, and whether it is timed. It reads and writes pickles.
"""

import importlib
import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from types import ModuleType
from typing import Any

BLOCKED = ("keras", "tf_keras", "lambdanet_tf")
XLA_SIGNATURE = "serving_default_xla"

_REPEATS = 5

# A signature, its inputs by name, and whether it is timed.
Call = tuple[str, Mapping[str, Any], bool]


def run_standalone(
    folder: str | os.PathLike, calls: Sequence[Call]
) -> list[dict[str, Any]]:
    """Runs calls of an export's signatures in a process with TensorFlow alone.

    Args:
        folder: the version folder.
        calls: to run. XLA is on for the signature that is meant for it.

    Returns:
        The outputs of each call by name; of a timed one also `milliseconds`.

    Raises:
        RuntimeError: if the export cannot be loaded or rejects a call.
    """
    finished = subprocess.run(
        [sys.executable, __file__, os.fspath(folder)],
        input=pickle.dumps(list(calls)),
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        check=False,
    )
    if finished.returncode:
        raise RuntimeError(
            f"{folder} does not run in a process with TensorFlow alone:\n"
            + finished.stderr[-2000:].decode(errors="replace")
        )
    return pickle.loads(finished.stdout)


class Session:
    """A SavedModel in a session of TensorFlow 1, as TF Serving runs it.

    Args:
        tf: the module `tensorflow`.
        folder: the version folder.

    Attributes:
        signatures: each `SignatureDef` by name.
    """

    def __init__(self, tf: ModuleType, folder: str | os.PathLike):
        v1 = tf.compat.v1
        v1.logging.set_verbosity(v1.logging.ERROR)
        self._session = v1.Session(graph=v1.Graph())
        with self._session.graph.as_default():
            loaded = v1.saved_model.loader.load(
                self._session, [tf.saved_model.SERVING], str(folder)
            )
        self.signatures = dict(loaded.signature_def)
        self._compiled = {
            name
            for name, signature in self.signatures.items()
            if _is_compiled(loaded.graph_def, signature)
        }

    def run(
        self, signature: str, inputs: Mapping[str, Any], xla: bool = False
    ) -> dict[str, Any]:
        """Returns the outputs of a signature by name.

        Args:
            signature: its name.
            inputs: by name.
            xla: whether XLA is on, as it is not on a default server.

        Raises:
            ValueError: if there is no such signature, its inputs have other
                names, or it is compiled by XLA.
            tf.errors.OpError: if the computation rejects the inputs.
        """
        if signature not in self.signatures:
            raise ValueError(f"Serving signature key {signature!r} not found.")
        names = self.signatures[signature]
        if signature in self._compiled and not xla:
            raise ValueError(f"{signature!r} needs XLA, and XLA is off.")
        if set(inputs) != set(names.inputs):
            raise ValueError(
                f"Inputs must be {sorted(names.inputs)}. Received: "
                f"{sorted(inputs)}."
            )
        return self._session.run(
            {key: info.name for key, info in names.outputs.items()},
            {names.inputs[key].name: value for key, value in inputs.items()},
        )


def _is_compiled(graph, signature):
    """Whether a signature calls a function that is compiled by XLA.

    It loads on any server and fails on one with XLA switched off.
    """
    functions = {f.signature.name: f for f in graph.library.function}
    outputs = {i.name.split(":")[0] for i in signature.outputs.values()}
    nodes = [node for node in graph.node if node.name in outputs]
    for node in nodes:  # which become more, by those of what they call
        for attribute in node.attr.values():
            called = functions.pop(attribute.func.name, None)
            if called is not None:
                if called.attr["_XlaMustCompile"].b:
                    return True
                nodes += called.node_def
    return False


def median_milliseconds(call: Callable[[], Any]) -> float:
    """Returns the median time of a function, after a call that does not count.

    Args:
        call: the function.
    """
    call()
    seconds = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)


def _answer(session, signature, inputs, is_timed):
    """The outputs of a call, and its milliseconds."""

    def run():
        return session.run(signature, inputs, signature == XLA_SIGNATURE)

    try:
        outputs = run()
    except Exception as error:
        raise RuntimeError(f"`{signature}` failed: {error}") from error
    if is_timed:
        outputs["milliseconds"] = median_milliseconds(run)
    return outputs


def _main(folder):
    blocked: dict = dict.fromkeys(BLOCKED)  # None: cannot be imported
    sys.modules.update(blocked)
    calls = pickle.load(sys.stdin.buffer)
    # What else is printed must not come between the bytes of the outputs.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    session = Session(importlib.import_module("tensorflow"), folder)
    with output:
        pickle.dump([_answer(session, *call) for call in calls], output)


if __name__ == "__main__":
    sys.path.pop(0)  # this script's folder is the inside of a package
    _main(sys.argv[1])
