"""A run folder as training leaves it, made in a moment, for the tests.

python -m tests.support.serving_run FOLDER    makes one in a process of its own
"""

import dataclasses
import pathlib
import sys

import numpy as np
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf.runs import Run
from lambdanet_tf.runs import RunFolder

CLASSES = ("zero", "one", "two", "three", "four")
SHAPE = (8, 7, 1)
ARGUMENTS = {
    "input_shape": list(SHAPE),
    "classes": len(CLASSES),
    "stages": ["CL"],
    "widths": [8],
    "strides": [1],
}
RUN = Run(
    "finished",
    "LambdaResNetSmall",
    ARGUMENTS,
    CLASSES,
    image={"height": 8, "width": 7, "channels": 1},
    recipe={"name": "digits"},
    metrics={"accuracy": 0.5},
    command="python train.py",
)


def write_run(path, **changes):
    """Writes a run with random weights; returns its path and its model."""
    tf.keras.utils.set_random_seed(0)
    generator = np.random.default_rng(1)
    run = dataclasses.replace(RUN, **changes)
    model = models.build(run.model, **run.arguments)
    shake(model, generator)
    pathlib.Path(path).mkdir(parents=True)
    folder = RunFolder(path)
    folder.write(run)
    folder.write_weights(model)
    shape = (4, *run.arguments["input_shape"])
    images = generator.uniform(0, 255, shape).astype(np.float32)
    folder.write_examples(images, np.arange(4))
    return pathlib.Path(path), model


def shake(model, generator):
    """Gives every weight a value that training could have given it.

    Fresh networks hide errors: their residual branches end in zeros and
    their batch statistics are zeros and ones.
    """
    for weight in model.weights:
        value = np.asarray(weight)
        if value.ndim < 2:  # biases and batch normalization
            weight.assign(value + generator.uniform(0.1, 0.4, value.shape))


if __name__ == "__main__":
    write_run(sys.argv[1])
