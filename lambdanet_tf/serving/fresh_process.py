"""Runs a SavedModel with TensorFlow alone, through TF Serving's loader.

    python fresh_process.py MODEL_FOLDER REQUESTS.npz ANSWERS.npz

A script for a process of its own. It makes the import of Keras and of this
package impossible before it imports TensorFlow, loads the tag `serve` as the
server does, refuses what a server with XLA off refuses, and runs every
request. A request that fails is answered by a tensor `error`.

A file of requests (or answers) maps `<number>/<signature>/<tensor name>` to
the bytes of a `TensorProto`.
"""

import importlib
import os
import sys

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
    """A loaded SavedModel that answers requests, as a session of TF 1."""

    def __init__(self, tf, folder):
        v1 = tf.compat.v1
        self._tf = tf
        self._session = v1.Session(graph=v1.Graph())
        with self._session.graph.as_default():
            loaded = v1.saved_model.loader.load(
                self._session, [tf.saved_model.SERVING], folder
            )
        self.signatures = dict(loaded.signature_def)
        _refuse_compiled_functions(loaded.graph_def)

    def answer(self, signature, tensors):
        """Returns the outputs of a signature by name."""
        names = self.signatures[signature]
        return self._session.run(
            {key: info.name for key, info in names.outputs.items()},
            {names.inputs[key].name: value for key, value in tensors.items()},
        )

    def answer_or_error(self, signature, tensors):
        """Returns the outputs, or a tensor `error` that says what is wrong."""
        try:
            return self.answer(signature, tensors)
        except (self._tf.errors.OpError, KeyError, TypeError, ValueError) as e:
            return {"error": f"{type(e).__name__}: {e}"}


def _refuse_compiled_functions(graph_def):
    """A default server fails on `jit_compile=True`; so does this one."""
    compiled = [
        function.signature.name
        for function in graph_def.library.function
        if function.attr["_XlaMustCompile"].b
    ]
    if compiled:
        raise RuntimeError(f"XLA is off, and these need it: {compiled}")


def main(folder, requests, answers):
    """Answers the requests of one file in another."""
    sys.modules.update(dict.fromkeys(BLOCKED))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    tf = importlib.import_module("tensorflow")
    server = Server(tf, folder)
    calls = read_calls(requests)
    write_calls(answers, [(s, server.answer_or_error(s, t)) for s, t in calls])


if __name__ == "__main__":
    sys.path.pop(0)  # this script's folder is the inside of a package
    main(*sys.argv[1:])
