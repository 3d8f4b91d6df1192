"""Runs a SavedModel in a process with TensorFlow alone, as TF Serving loads it.

    python standalone.py MODEL_FOLDER < CALLS > OUTPUTS

The process makes the import of Keras and of this package impossible before it
imports TensorFlow, loads the tag `serve`, and runs each call: a signature, its
inputs by name, and how often it is timed. It reads and writes pickles.
"""

import importlib
import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from collections.abc import Sequence
from types import ModuleType
from typing import Any

BLOCKED = ("keras", "tf_keras", "lambdanet_tf")
XLA_SIGNATURE = "serving_default_xla"

# A signature, its inputs by name, and the number of timed repetitions.
Call = tuple[str, Mapping[str, Any], int]


def run_standalone(
    folder: str | os.PathLike, calls: Sequence[Call]
) -> list[dict[str, Any]]:
    """Runs calls of an export's signatures in a process with TensorFlow alone.

    Args:
        folder: the version folder.
        calls: to run. XLA is on for the signature that is meant for it.

    Returns:
        The outputs of each call by name; of a timed one also `milliseconds`,
        the median of its repetitions.

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
            f"{folder} does not load in a process with TensorFlow alone:\n"
            + finished.stderr[-2000:].decode(errors="replace")
        )
    responses = pickle.loads(finished.stdout)
    for (signature, _, _), outputs in zip(calls, responses, strict=True):
        if "error" in outputs:
            raise RuntimeError(
                f"`{signature}` of {folder} failed: {outputs['error']}"
            )
    return responses


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
        self._tf = tf
        self._session = v1.Session(graph=v1.Graph())
        with self._session.graph.as_default():
            loaded = v1.saved_model.loader.load(
                self._session, [tf.saved_model.SERVING], str(folder)
            )
        self.signatures = dict(loaded.signature_def)
        self._compiled = _compiled_by_xla(loaded)

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
        if signature in self._compiled and not xla:
            raise ValueError(f"{signature!r} needs XLA, and XLA is off.")
        names = self.signatures[signature]
        if set(inputs) != set(names.inputs):
            raise ValueError(
                f"Inputs must be {sorted(names.inputs)}. Received: "
                f"{sorted(inputs)}."
            )
        return self._session.run(
            {key: info.name for key, info in names.outputs.items()},
            {names.inputs[key].name: value for key, value in inputs.items()},
        )

    def run_or_error(
        self, signature: str, inputs: Mapping[str, Any], xla: bool = False
    ) -> dict[str, Any]:
        """Returns the outputs, or one output `error` with the message."""
        try:
            return self.run(signature, inputs, xla)
        except (self._tf.errors.OpError, TypeError, ValueError) as error:
            return {"error": f"{type(error).__name__}: {error}"}


def _compiled_by_xla(meta_graph):
    """Names of the signatures that call a function compiled by XLA.

    They load on any server and fail on one with XLA switched off.
    """
    library = meta_graph.graph_def.library.function
    calls = {f.signature.name: _called(f.node_def) for f in library}
    compiled = {
        function.signature.name
        for function in library
        if function.attr["_XlaMustCompile"].b
    }
    for _ in library:
        compiled |= {name for name in calls if calls[name] & compiled}
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    return {
        name
        for name, signature in meta_graph.signature_def.items()
        if any(
            _called([nodes[info.name.split(":")[0]]]) & compiled
            for info in signature.outputs.values()
            if info.name
        )
    }


def _called(nodes):
    """Names of the functions that nodes call."""
    return {
        attribute.func.name
        for node in nodes
        for attribute in node.attr.values()
        if attribute.HasField("func")
    }


def _timed(session, call):
    """The outputs of a call, and the milliseconds that it takes."""
    signature, inputs, repeats = call
    xla = signature == XLA_SIGNATURE
    outputs = session.run_or_error(signature, inputs, xla)
    seconds = []
    for _ in range(0 if "error" in outputs else repeats):
        start = time.perf_counter()
        session.run(signature, inputs, xla)
        seconds.append(time.perf_counter() - start)
    if seconds:
        outputs["milliseconds"] = 1000 * statistics.median(seconds)
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
        pickle.dump([_timed(session, call) for call in calls], output)


if __name__ == "__main__":
    sys.path.pop(0)  # this script's folder is the inside of a package
    _main(sys.argv[1])
