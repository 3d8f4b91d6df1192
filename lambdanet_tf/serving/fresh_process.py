"""Runs a SavedModel with TensorFlow alone, through TF Serving's loader.

    python fresh_process.py MODEL_FOLDER REQUESTS.npz ANSWERS.npz REPEATS

A script for a process of its own. It makes the import of Keras and of this
package impossible before it imports TensorFlow, loads the tag `serve` as the
server does, refuses what a server with XLA off refuses, and runs every
request. A request that fails is answered by a tensor `error`. With REPEATS
above 0 every answer has a tensor `milliseconds`, the median of so many
repetitions.

A file of requests (or answers) maps `<number>/<signature>/<tensor name>` to
the bytes of a `TensorProto`.
"""

import importlib
import os
import statistics
import sys
import time

import numpy as np

BLOCKED = ("keras", "tf_keras", "lambdanet_tf")


def write_calls(file, calls):
    """Writes calls: a list of (signature, {tensor name: value})."""
    tf = importlib.import_module("tensorflow")
    buffers = {}
    for number, (signature, tensors) in enumerate(calls):
        for name, value in tensors.items():
            proto = tf.make_tensor_proto(value).SerializeToString()
            buffers[f"{number}/{signature}/{name}"] = np.frombuffer(
                proto, np.uint8
            )
    np.savez(file, **buffers)


def read_calls(file):
    """Reads what `write_calls` wrote."""
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


class Server:
    """A loaded SavedModel that answers requests, as a session of TF 1.

    Args:
        tf: the module `tensorflow`.
        folder: the version folder.
    """

    def __init__(self, tf, folder):
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

    def answer(self, signature, tensors):
        """Returns the outputs of a signature by name.

        Raises:
            ValueError: if there is no such signature, or its inputs have
                other names, or it needs XLA.
            tf.errors.OpError: if the computation refuses the inputs.
        """
        if signature not in self.signatures:
            raise ValueError(f"Serving signature key {signature!r} not found.")
        if signature in self._compiled:
            raise ValueError(f"{signature!r} needs XLA, and XLA is off.")
        names = self.signatures[signature]
        if set(tensors) != set(names.inputs):
            raise ValueError(
                f"Inputs must be {sorted(names.inputs)}. Received: "
                f"{sorted(tensors)}."
            )
        return self._session.run(
            {key: info.name for key, info in names.outputs.items()},
            {names.inputs[key].name: value for key, value in tensors.items()},
        )

    def answer_or_error(self, signature, tensors, repeats=0):
        """Returns the outputs, or a tensor `error` that says what is wrong."""
        try:
            outputs = self.answer(signature, tensors)
        except (self._tf.errors.OpError, TypeError, ValueError) as error:
            return {"error": f"{type(error).__name__}: {error}"}
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            self.answer(signature, tensors)
            seconds.append(time.perf_counter() - start)
        if seconds:
            outputs["milliseconds"] = 1000 * statistics.median(seconds)
        return outputs


def _compiled_by_xla(meta_graph):
    """The signatures that reach a function compiled by XLA.

    They load on any server and fail on one that has not switched XLA on.
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
    """The names of the functions that nodes call."""
    return {
        attribute.func.name
        for node in nodes
        for attribute in node.attr.values()
        if attribute.HasField("func")
    }


def main(folder, requests, answers, repeats):
    """Answers the requests of one file in another."""
    blocked: dict = dict.fromkeys(BLOCKED)  # None: cannot be imported
    sys.modules.update(blocked)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    tf = importlib.import_module("tensorflow")
    server = Server(tf, folder)
    write_calls(
        answers,
        [
            (signature, server.answer_or_error(signature, tensors, repeats))
            for signature, tensors in read_calls(requests)
        ],
    )


if __name__ == "__main__":
    sys.path.pop(0)  # this script's folder is the inside of a package
    main(*sys.argv[1:4], repeats=int(sys.argv[4]))
