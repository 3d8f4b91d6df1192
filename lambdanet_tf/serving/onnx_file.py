"""The network as an ONNX file, for runtimes that read no TensorFlow."""

import contextlib

import tensorflow as tf

from lambdanet_tf.environment import require

FILE = "assets.extra/model.onnx"
BATCH = None  # free
OPSET = 17


def convert(function):
    """Converts a `tf.function` of one signature; returns the file's bytes.

    Raises:
        ImportError: without the extra `onnx`.
        ValueError: with what the converter or the runtime says, if either
            refuses.
    """
    converter = require("tf2onnx.convert", extra="onnx")
    require("onnxruntime", extra="onnx")
    try:
        with _no_warnings():
            model, _ = converter.from_function(
                function, input_signature=function.input_signature, opset=OPSET
            )
        content = model.SerializeToString()
        # The converter passes on what it does not know: only a runtime tells.
        runner(content)
    except Exception as error:  # the runtime's errors share no other type
        raise ValueError(
            f"`formats` must suit the model. ONNX does not take it: {error}"
        ) from error
    return content


@contextlib.contextmanager
def _no_warnings():
    """Keeps quiet that TensorFlow leaves the table of names out, as it may."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel("ERROR")
    try:
        yield
    finally:
        logger.setLevel(level)


def runner(content):
    """Returns a function of a batch of images.

    Raises:
        ImportError: without the extra `onnx`.
    """
    runtime = require("onnxruntime", extra="onnx")
    session = runtime.InferenceSession(
        content, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]

    def answer(images):
        outputs = session.run(names, {"images": images})
        return dict(zip(names, outputs, strict=True))

    return answer
