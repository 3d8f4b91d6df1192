"""Runs and exports made in a moment, and what an export answers."""

import dataclasses
import gc
import pathlib

import numpy as np
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf import serving
from lambdanet_tf.runs import WEIGHTS_FILE
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
    "activation": "swish",  # TensorFlow's, with a gradient of its own
}
RUN = Run(
    "finished",
    "LambdaResNetSmall",
    ARGUMENTS,
    CLASSES,
    image={"channels": 1, "bits": 16},
    recipe={"name": "digits"},
    metrics={"accuracy": 0.5},
    command="python train.py",
)


def write_run(path, **changes):
    """Writes a run with random weights; returns its path and its model."""
    tf.keras.utils.set_random_seed(0)
    generator = np.random.default_rng(1)
    run, folder = dataclasses.replace(RUN, **changes), RunFolder(path)
    model = models.build(run.model, **run.arguments)
    shake(model, generator)
    pathlib.Path(path).mkdir(parents=True)
    folder.write(run)
    folder.write_bytes(WEIGHTS_FILE, models.weights_as_bytes(model))
    images = generator.uniform(0, 255, (4, *run.arguments["input_shape"]))
    folder.write_examples(images.astype(np.float32), np.arange(4))
    return pathlib.Path(path), model


def shake(model, generator):
    """Gives every weight a value that training could have given it."""
    for weight in model.weights:
        value = np.asarray(weight)
        if value.ndim < 2:  # biases and batch normalization
            weight.assign(value + generator.uniform(0.1, 0.4, value.shape))


def classifier(units, activation=None, size=8):
    """Somebody's classifier: a dense layer reads the mean of the pixels."""
    images = tf.keras.Input((size, size, 3))
    x = tf.keras.layers.GlobalAveragePooling2D()(images / 255.0)
    x = tf.keras.layers.Dense(units, activation, bias_initializer="ones")(x)
    return tf.keras.Model(images, x)


def export(model, base, examples=None, **options):
    """Exports a model with these options; returns its version folder."""
    options = serving.ExportOptions(**options)
    return serving.export_model(model, base, "m", None, options, None, examples)


def card_of(folder):
    return (folder / "assets.extra/model_card.md").read_text("utf-8")


def answer(folder, signature="serving_default", **inputs):
    """The outputs of an export, which is loaded and then freed.

    Freed by a collector while a graph is built, protobuf 7.36 frees it twice.
    """
    run = tf.saved_model.load(str(folder)).signatures[signature]
    outputs = run(**{name: tf.constant(x) for name, x in inputs.items()})
    arrays = {name: output.numpy() for name, output in outputs.items()}
    del run, outputs
    gc.collect()
    return arrays
