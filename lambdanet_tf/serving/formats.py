"""Files for other runtimes: TFLite, TFLite with 8-bit integers, and ONNX.

Each maps float32 `images` of one size to float32 `logits` and `probabilities`,
as the signature `serving_default` does.
"""

import contextlib
import os
import pathlib
import sys
import warnings
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import UserError
from lambdanet_tf.environment import require
from lambdanet_tf.environment import require_all
from lambdanet_tf.serving.inference import Inference
from lambdanet_tf.serving.options import FORMATS

# With a free batch the TFLite converter makes transpositions of more than the
# six axes that its runtime has, for LambdaResNet-50 among others.
_TFLITE_BATCH = 1
_ONNX_OPSET = 17

_WAY_OUT = (
    "\nLambda layers of a named algorithm may pass with `implementation="
    "'auto'` in the options of the export; other layers can be replaced, or "
    "served by the SavedModel alone, without `formats`."
)

# A batch of images to outputs by name.
Runner = Callable[[np.ndarray], dict[str, np.ndarray]]


def check_installed(names: Sequence[str]) -> None:
    """Raises an ImportError if a format lacks an extra."""
    if "onnx" in names:
        require_all({"tf2onnx": "onnx", "onnxruntime": "onnx"})


def write(
    folder: pathlib.Path,
    network: Inference,
    calibration: np.ndarray | None = None,
) -> None:
    """Converts a network and writes the files that its options name.

    Args:
        folder: the version folder.
        network: the classifier.
        calibration: float32 images `(images, height, width, channels)` in
            [0, 255] that choose the ranges of 8-bit integers.

    Raises:
        ImportError: if a format needs an extra that is not installed.
        ValueError: if a converter or a runtime rejects the network, or
            "tflite_int8" has no images for calibration.
    """
    names = network.options.formats
    if "tflite_int8" in names and (calibration is None or not len(calibration)):
        raise UserError(
            "`formats` can hold 'tflite_int8' only with images of the training "
            "set, which choose the ranges of its integers. Export a run whose "
            "data set is here, or pass them as `calibration`."
        )
    for name in names:
        file = folder / FORMATS[name]
        file.parent.mkdir(exist_ok=True)
        try:
            with _quiet():
                content = _convert(name, network, calibration)
                # Converters keep operations that they do not know, so only
                # the runtime tells.
                _runner(name, content)(_blank(network))
        except Exception as error:  # those of C++ have no public names
            raise UserError(
                f"`formats` must suit the model. {name!r} rejects it: "
                f"{_reason(error)}{_WAY_OUT}"
            ) from error
        file.write_bytes(content)


def load(folder: pathlib.Path, name: str) -> Runner:
    """Loads a file of an export into its runtime.

    Raises:
        ImportError: if the format needs an extra that is not installed.
    """
    with _quiet():
        return _runner(name, (folder / FORMATS[name]).read_bytes())


def accuracies(
    folder: pathlib.Path,
    network: Inference,
    images: np.ndarray,
    labels: np.ndarray,
) -> dict[str, float]:
    """Returns the accuracy of the Keras model, and of each file of an export.

    Args:
        folder: the version folder.
        network: the classifier.
        images: `(images, height, width, channels)` in [0, 255].
        labels: class of each.
    """
    logits = {"Keras": network.expected_outputs({"images": images})["logits"]}
    for name in network.options.formats:
        logits[name] = load(folder, name)(images)["logits"]
    classes = {
        name: values[:, 0] > 0
        if values.shape[-1] == 1
        else values.argmax(axis=-1)
        for name, values in logits.items()
    }
    return {
        name: float(np.mean(predicted == labels))
        for name, predicted in classes.items()
    }


def _blank(network):
    """A batch of one black image."""
    return np.zeros((1, *network.classifier.image_shape), np.float32)


def _convert(name, network, calibration):
    """Converts a network, of images of one size: converters need it."""
    batch = None if name == "onnx" else _TFLITE_BATCH
    shape = (batch, *network.classifier.image_shape)
    spec = tf.TensorSpec(shape, tf.float32, "images")

    @tf.function(input_signature=[spec])
    def classify(images):
        images = tf.clip_by_value(images, 0.0, 255.0)
        logits = network.compute({"images": images}, "portable")["logits"]
        return {
            "logits": logits,
            "probabilities": network.classifier.probabilities(logits),
        }

    if name == "onnx":
        converter = require("tf2onnx.convert", extra="onnx")
        model, _ = converter.from_function(classify, [spec], opset=_ONNX_OPSET)
        _embed(model.graph, classify.get_concrete_function().graph.captures)
        return model.SerializeToString()
    return _to_tflite(classify, calibration if "int8" in name else None)


def _embed(graph, captures):
    """Makes the tensors that layers keep a part of an ONNX graph.

    They are no variables, so the converter takes them for inputs.
    """
    kept = {inner.name: outer for outer, inner in captures}
    numpy_helper = require("onnx.numpy_helper", extra="onnx")
    for value in [value for value in graph.input if value.name in kept]:
        graph.input.remove(value)
        array = kept[value.name].numpy()
        graph.initializer.append(numpy_helper.from_array(array, value.name))


def _to_tflite(function, calibration):
    """Converts to operations that are built into the TFLite runtime."""
    concrete = function.get_concrete_function()
    holder = tf.Module()
    holder.weights = concrete.graph.variables
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [concrete], holder
    )
    if calibration is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: (
            [image[np.newaxis].astype(np.float32)] for image in calibration
        )
        integers = tf.lite.OpsSet.TFLITE_BUILTINS_INT8
        converter.target_spec.supported_ops = [integers]
    return converter.convert()


def _reason(error):
    """What a converter rejects, without the position and the whole graph."""
    _, found, reason = str(error).rpartition("failed while converting: ")
    return reason.partition("<unknown>")[0].strip() if found else str(error)


def _runner(name, content) -> Runner:
    return _onnx_runner(content) if name == "onnx" else _tflite_runner(content)


def _tflite_runner(content):
    """A function of a batch of images, which run one at a time."""
    with warnings.catch_warnings():
        # Its successor `ai_edge_litert` is a package of its own.
        warnings.filterwarnings("ignore", r"\s*Warning: tf.lite.Interpreter")
        interpreter: Any = tf.lite.Interpreter(model_content=content)
    interpreter.allocate_tensors()
    run = interpreter.get_signature_runner()

    def outputs(images):
        single = [run(images=image[np.newaxis]) for image in images]
        return {
            name: np.concatenate([each[name] for each in single])
            for name in single[0]
        }

    return outputs


def _onnx_runner(content):
    runtime = require("onnxruntime", extra="onnx")
    session = runtime.InferenceSession(
        content, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]

    def outputs(images):
        arrays = session.run(names, {"images": images})
        return dict(zip(names, arrays, strict=True))

    return outputs


@contextlib.contextmanager
def _quiet():
    """Silences reports of converters and runtimes about accepted graphs.

    C++ writes some of them past Python's `sys.stderr`. A rejected graph is an
    exception.
    """
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel("ERROR")
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w", encoding="utf-8") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        logger.setLevel(level)
