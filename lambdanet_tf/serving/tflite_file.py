"""The network as a TFLite file, for telephones and small computers."""

import warnings

import numpy as np
import tensorflow as tf
from tensorflow.lite.python.convert import ConverterError

FILE = "assets.extra/model.tflite"
# With a free batch the converter makes transpositions of more than the six
# axes that the runtime has, for LambdaResNet-50 among others.
BATCH = 1


def convert(function):
    """Converts a `tf.function` of one signature; returns the file's bytes.

    Only operations that are built into the runtime are used.

    Raises:
        ValueError: with what the converter says, if it refuses.
    """
    concrete = function.get_concrete_function()
    holder = tf.Module()
    holder.weights = concrete.graph.variables
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [concrete], holder
    )
    try:
        content = converter.convert()
        _interpreter(content).allocate_tensors()
    except (ConverterError, RuntimeError) as error:
        raise ValueError(
            "`formats` must suit the model. TFLite does not take it: "
            f"{_reason(error)}"
        ) from error
    return content


def runner(content):
    """Returns a function of a batch of images; they run one at a time."""
    run = _interpreter(content).get_signature_runner()

    def answer(images):
        answers = [run(images=image[np.newaxis]) for image in images]
        return {
            name: np.concatenate([one[name] for one in answers])
            for name in answers[0]
        }

    return answer


def _reason(error):
    """What a converter says, without where, and without all of the graph."""
    _, found, reason = str(error).rpartition("failed while converting: ")
    return reason.partition("<unknown>")[0].strip() if found else str(error)


def _interpreter(content):
    with warnings.catch_warnings():
        # The successor is a package of its own, which a check can do without.
        warnings.filterwarnings("ignore", r"\s*Warning: tf.lite.Interpreter")
        return tf.lite.Interpreter(model_content=content)
