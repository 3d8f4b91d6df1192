"""Tiny networks of every family, images, and weights that tell them apart."""

import contextlib
import dataclasses
import functools

import numpy as np
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf import specs

TINY = specs.ResNetSpec(
    name="tiny",
    stages=("C", "LC", "L"),
    widths=(8, 16, 16),
    strides=(1, 2, 2),
    stem_filters=(8,),
    stem_strides=(1,),
    stem_kernel_size=3,
    stem_pool=False,
    shortcut="pool",
    key_dim=4,
    scope=5,
)
ATTENTION = dataclasses.replace(
    TINY, stages=("S", "AX", "P"), attention_heads=2, attention_scope=3
)
tiny_mobilenet = functools.partial(
    models.MobileNetV2,
    rows=(
        specs.InvertedRow(1, 8, 1, 1),
        specs.InvertedRow(2, 8, 2, 2),
        specs.InvertedRow(2, 16, 1, 2),
    ),
    stem_filters=8,
    head_filters=32,
    input_shape=(16, 16, 3),
    classes=5,
)


def tiny(input_shape=(16, 16, 3), classes=5, **arguments):
    arguments |= {"input_shape": input_shape, "classes": classes}
    return models.ResNet(TINY, **arguments)


@contextlib.contextmanager
def shapes_alone():
    """Networks that are built in here have no values: ten times as quick."""
    tf.keras.backend.clear_session(free_memory=False)
    try:
        with tf.keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        tf.keras.backend.clear_session(free_memory=False)


def some_images(*shape):
    rng = np.random.default_rng(0)
    return rng.uniform(0, 255, shape).astype(np.float32)


def arrays(model):
    named = models.named_weights(model)
    return {name: np.array(weight) for name, weight in named.items()}


def same_weights(model, expected):
    """The names of weights that equal another model's, or arrays by name."""
    if not isinstance(expected, dict):
        expected = arrays(expected)
    ours = arrays(model).items()
    return {n for n, value in ours if np.array_equal(value, expected[n])}


def assert_weights(model, expected, but=()):
    """All weights are equal but those whose names begin so: these are not."""
    names = {*models.named_weights(model)}
    assert names
    others = {name for name in names if name.startswith(tuple(but))}
    assert same_weights(model, expected) == names - others


def vary(model, seed=0):
    """Gives every weight distinct values that keep activations moderate."""
    rng = np.random.default_rng(seed)
    for name, weight in models.named_weights(model).items():
        shape = tuple(weight.shape)
        if name.endswith(("gamma", "variance")):
            value = rng.uniform(0.5, 1.0, shape)
        elif name.endswith("kernel"):
            value = rng.normal(size=shape) / np.sqrt(np.prod(shape[:-1]))
        else:
            value = 0.1 * rng.normal(size=shape)
        weight.assign(value.astype(np.float64))
