"""The network for other runtimes, in files beside the SavedModel.

Each holds the function of `serving_default`, less its labels: float32 `images`
of one size to `logits` and `probabilities`. Its weights are float32.
"""

import statistics
import time

import tensorflow as tf

from lambdanet_tf.serving import onnx_file
from lambdanet_tf.serving import tflite_file

# Each has FILE, BATCH, `convert` to bytes, and `runner` from them.
FORMATS = {"tflite": tflite_file, "onnx": onnx_file}


def write_formats(folder, network, options):
    """Writes the files that the options ask for.

    Args:
        folder: path of the version folder.
        network: `Inference`.
        options: `ServingOptions`.

    Raises:
        ImportError: if a format needs an extra that is not installed.
        ValueError: if a converter does not take the network.
    """
    shape = options.image_shape(network.input_shape)
    for name in options.formats:
        function = _function(network, (FORMATS[name].BATCH, *shape))
        file = folder / FORMATS[name].FILE
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(FORMATS[name].convert(function))


def formats_in(folder):
    """Returns the names of the formats that an export holds."""
    return [n for n, form in FORMATS.items() if (folder / form.FILE).is_file()]


def answer(folder, name, images, batch_sizes=(), repeats=1):
    """Runs images through a format's own runtime.

    Args:
        folder: path of the version folder.
        name: one of `FORMATS`.
        images: float32 array `(batch, height, width, channels)`.
        batch_sizes: batch sizes to time; the images are repeated.
        repeats: int. Repetitions of each timing.

    Returns:
        ({output name: array}, {batch size: milliseconds per image}).
    """
    run = FORMATS[name].runner((folder / FORMATS[name].FILE).read_bytes())
    times = {}
    for batch in batch_sizes:
        some = images[[index % len(images) for index in range(batch)]]
        run(some)
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            run(some)
            seconds.append(time.perf_counter() - start)
        times[batch] = 1000 * statistics.median(seconds) / batch
    return run(images), times


def _function(network, shape):
    """The network at one shape, where converters know every size."""
    images = tf.TensorSpec(shape, tf.float32, name="images")

    @tf.function(input_signature=[images])
    def classify(images):
        logits = network.compute(tf.clip_by_value(images, 0.0, 255.0))[1]
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

    return classify
