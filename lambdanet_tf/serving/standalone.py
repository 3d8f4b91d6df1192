"""Runs a SavedModel in a process with TensorFlow alone, as TF Serving loads it.

    python standalone.py MODEL_FOLDER REQUESTS.npz RESPONSES.npz REPEATS

The process makes the import of Keras and of this package impossible before it
imports TensorFlow, loads the tag `serve`, rejects XLA-compiled signatures, as a
default server does, and runs every request. A failed request has one output,
`error`. REPEATS holds a number for each request, separated by commas: where it
is above 0, the response has an output `milliseconds`, the median of so many
repetitions.

A file of requests or responses maps `<number>/<signature>/<tensor name>` to
the bytes of a `TensorProto`.
"""

import importlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

BLOCKED = ("keras", "tf_keras", "lambdanet_tf")

# A signature and its inputs, or outputs, by name.
Call = tuple[str, Mapping[str, Any]]


def run_standalone(
    folder: str | os.PathLike,
    requests: Sequence[Call],
    repeats: Sequence[int] | None = None,
) -> list[Call]:
    """Runs requests against an export in a process with TensorFlow alone.

    Args:
        folder: the version folder.
        requests: signatures and their inputs by name.
        repeats: timed repetitions of each request; None for none.

    Returns:
        Signatures and their outputs by name, in the order of the requests. A
        request that failed has one output, `error`.

    Raises:
        RuntimeError: if the model cannot be loaded.
    """
    with tempfile.TemporaryDirectory() as scratch:
        asked = pathlib.Path(scratch, "requests.npz")
        answered = pathlib.Path(scratch, "responses.npz")
        _write(asked, requests)
        counts = ",".join(map(str, repeats or [0] * len(requests)))
        arguments = [folder, asked, answered, counts]
        finished = subprocess.run(
            [sys.executable, __file__, *map(str, arguments)],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            capture_output=True,
            text=True,
            check=False,
        )
        if finished.returncode:
            raise RuntimeError(
                f"{folder} does not load in a process with TensorFlow alone:\n"
                f"{finished.stderr[-2000:]}"
            )
        return _read(answered)


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

    def run(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the outputs of a signature by name.

        Raises:
            ValueError: if there is no such signature, its inputs have other
                names, or it is compiled by XLA.
            tf.errors.OpError: if the computation rejects the inputs.
        """
        if signature not in self.signatures:
            raise ValueError(f"Serving signature key {signature!r} not found.")
        if signature in self._compiled:
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
        self, signature: str, inputs: Mapping[str, Any], repeats: int = 0
    ) -> dict[str, Any]:
        """Returns the outputs, or one output `error` with the message."""
        try:
            outputs = self.run(signature, inputs)
        except (self._tf.errors.OpError, TypeError, ValueError) as error:
            return {"error": f"{type(error).__name__}: {error}"}
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            self.run(signature, inputs)
            seconds.append(time.perf_counter() - start)
        if seconds:
            outputs["milliseconds"] = 1000 * statistics.median(seconds)
        return outputs


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


def _write(file, calls):
    tf = importlib.import_module("tensorflow")
    buffers = {}
    for number, (signature, tensors) in enumerate(calls):
        for name, value in tensors.items():
            proto = tf.make_tensor_proto(value).SerializeToString()
            key = f"{number}/{signature}/{name}"
            buffers[key] = np.frombuffer(proto, np.uint8)
    np.savez(file, **buffers)


def _read(file):
    tf = importlib.import_module("tensorflow")
    framework = importlib.import_module("tensorflow.core.framework.tensor_pb2")
    calls = {}
    with np.load(file) as buffers:
        for key, buffer in buffers.items():
            number, signature, name = key.split("/")
            proto = framework.TensorProto.FromString(buffer.tobytes())
            _, tensors = calls.setdefault(int(number), (signature, {}))
            tensors[name] = tf.make_ndarray(proto)
    return [calls[number] for number in sorted(calls)]


def _main(folder, requests, responses, repeats):
    blocked: dict = dict.fromkeys(BLOCKED)  # None: cannot be imported
    sys.modules.update(blocked)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    session = Session(importlib.import_module("tensorflow"), folder)
    _write(
        responses,
        [
            (signature, session.run_or_error(signature, inputs, int(count)))
            for (signature, inputs), count in zip(
                _read(requests), repeats.split(","), strict=True
            )
        ],
    )


if __name__ == "__main__":
    sys.path.pop(0)  # this script's folder is the inside of a package
    _main(*sys.argv[1:5])
