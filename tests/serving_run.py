"""A run folder as training leaves it, made in a moment, for the tests.

python -m tests.serving_run FOLDER    makes one in a process of its own
"""

import json
import pathlib
import sys

import numpy as np
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf.serving import run_folder

CLASSES = ("zero", "one", "two", "three", "four")
ARGUMENTS = {
    "input_shape": [8, 7, 1],
    "classes": len(CLASSES),
    "stages": ["CL"],
    "widths": [8],
    "strides": [1],
}


def write_run(path, status="finished", **fields):
    """Writes a run with random weights; returns its path and its model."""
    path = pathlib.Path(path)
    path.mkdir(parents=True)
    record = {
        "format": run_folder.RUN_FORMAT,
        "status": status,
        "model": {"builder": "LambdaResNetSmall", "arguments": ARGUMENTS},
        "recipe": {"name": "digits"},
        "classes": CLASSES,
        "image": {"height": 8, "width": 7, "channels": 1},
        "metrics": {"accuracy": 0.5},
        "versions": {},
        "command": "python train.py",
        **fields,
    }
    (path / run_folder.RUN_FILE).write_text(json.dumps(record))
    generator = np.random.default_rng(1)
    np.savez(
        path / run_folder.EXAMPLES_FILE,
        images=generator.uniform(0, 255, (4, 8, 7, 1)).astype(np.float32),
        labels=np.arange(4),
    )
    network = record["model"]
    model = getattr(models, network["builder"])(**network["arguments"])
    shake(model, generator)
    model.save_weights(path / run_folder.WEIGHTS_FILE)
    return path, model


def shake(model, generator):
    """Gives every weight a value that training could have given it.

    Fresh networks hide errors: their residual branches end in zeros and
    their batch statistics are zeros and ones.
    """
    for weight in model.weights:
        value = np.asarray(weight)
        if value.ndim < 2:  # biases and batch normalisation
            weight.assign(value + generator.uniform(0.1, 0.4, value.shape))


if __name__ == "__main__":
    tf.keras.utils.set_random_seed(0)
    write_run(sys.argv[1])
