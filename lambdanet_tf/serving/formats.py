"""Files for other runtimes: TFLite and ONNX.

Like the signature `serving_default`, each maps float32 `images` of one size to
float32 `logits` and `probabilities`.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.environment import require
from lambdanet_tf.serving.inference import Inference

# If the batch size is unknown, the TFLite converter writes transpositions of
# more than six axes, for example for LambdaResNet-50. Its runtime has no more.
_BATCHES = {"tflite": 1, "onnx": None}
_ONNX_OPSET = 17


def convert(name: str, network: Inference) -> bytes:
    """Returns the file of a classifier in a format of `FORMATS`."""
    shape = (_BATCHES[name], *network.image_shape)
    spec = tf.TensorSpec(shape, tf.float32, "images")

    @tf.function(input_signature=[spec])
    def classify(images):
        images = tf.clip_by_value(images, 0.0, 255.0)
        logits = network.compute(images, "portable")["logits"]
        return {
            "logits": logits,
            "probabilities": network.probabilities(logits),
        }

    if name == "onnx":
        tf2onnx = require("tf2onnx", extra="onnx")
        model, _ = tf2onnx.convert.from_function(
            classify, [spec], opset=_ONNX_OPSET
        )
        return model.SerializeToString()
    holder = tf.Module()
    holder.weights = network.weights
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [classify.get_concrete_function()], holder
    )
    return converter.convert()


def runner(
    name: str, content: bytes
) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    """Loads a file as a function from images to outputs by name."""
    if name == "onnx":
        runtime = require("onnxruntime", extra="onnx")
        session = runtime.InferenceSession(content)
        names = [output.name for output in session.get_outputs()]
        return lambda images: dict(
            zip(names, session.run(names, {"images": images}), strict=True)
        )
    with warnings.catch_warnings():
        # Its successor `ai_edge_litert` is a separate package.
        warnings.filterwarnings("ignore", r"\s*Warning: tf.lite.Interpreter")
        interpreter: Any = tf.lite.Interpreter(model_content=content)
    interpreter.allocate_tensors()
    run = interpreter.get_signature_runner()

    def outputs(images):
        single = [run(images=image[np.newaxis]) for image in images]
        return {
            key: np.concatenate([each[key] for each in single])
            for key in single[0]
        }

    return outputs
