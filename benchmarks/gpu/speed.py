"""Times layers and networks on a GPU, or on what else TensorFlow has.

    python -m benchmarks.gpu.speed                       all, an hour
    python -m benchmarks.gpu.speed --only 7x7 --seconds 0.2
    python -m benchmarks.gpu.speed --baselines           timm, lucidrains, too

The lines of `benchmarks.layers.speed` with larger batches, and the networks
of `benchmarks.networks.speed`, each in float32 and in mixed bfloat16. Other
projects' layers are timed in float32.
"""

import dataclasses
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Otherwise TensorFlow takes all of the memory, and PyTorch finds none.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

import tensorflow as tf

from benchmarks import records
from benchmarks.layers import speed as layers
from benchmarks.networks import speed as networks

PRECISIONS = ("float32", "mixed_bfloat16")
TIMES = 8  # as many examples of a layer as on a CPU


def device():
    """The name of the first GPU, or of the processor."""
    for found in tf.config.list_physical_devices("GPU"):
        return tf.config.experimental.get_device_details(found)["device_name"]
    return records.processor()


def main(arguments=None):
    parser = records.parser(__doc__, seconds=2.0)
    parser.add_argument("--baselines", action="store_true")
    parser.add_argument("--times", type=int, default=TIMES, help="the batch")
    parser.add_argument("--batch", type=int, default=64, help="of networks")
    parser.add_argument("--size", type=int, default=networks.IMAGE_SIZE)
    options = parser.parse_args(arguments)
    recorder = records.Recorder("gpu", options)
    lines = [
        dataclasses.replace(line, batch=options.times * line.batch)
        for line in layers.LINES
    ]
    for precision in PRECISIONS:
        case = {"device": device(), "precision": precision}
        tf.keras.mixed_precision.set_global_policy(precision)
        layers.measure(recorder, lines, options, **case)
        networks.compare(recorder, options, **case)
        options.baselines = False  # they know one precision


if __name__ == "__main__":
    main()
