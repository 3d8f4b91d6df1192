"""Tiny networks of every family, images, and weights that tell them apart."""

import contextlib
import dataclasses

import numpy as np
import tensorflow as tf

from lambdanet_tf import layers
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
MOBILENET_ROWS = (
    specs.InvertedRow(1, 8, 1, 1),
    specs.InvertedRow(2, 8, 2, 2),
    specs.InvertedRow(2, 16, 1, 2),
)
ATTENTION = dataclasses.replace(
    TINY,
    stages=("S", "AX", "P"),
    attention_heads=2,
    attention_scope=3,
    key_dim=4,
)


@contextlib.contextmanager
def shapes_alone():
    """Networks that are built in here have no values: ten times as quick.

    Names that Keras gives start anew before, and what it notes is gone after.
    """
    # With many objects around, to collect garbage takes longer than to build.
    tf.keras.backend.clear_session(free_memory=False)
    try:
        with tf.keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        tf.keras.backend.clear_session(free_memory=False)


def tiny(input_shape=(16, 16, 3), classes=5, **arguments):
    return models.ResNet(
        TINY, input_shape=input_shape, classes=classes, **arguments
    )


def tiny_mobilenet(input_shape=(16, 16, 3), classes=5, **arguments):
    return models.MobileNetV2(
        rows=MOBILENET_ROWS,
        stem_filters=8,
        head_filters=32,
        input_shape=input_shape,
        classes=classes,
        **arguments,
    )


def every_layer(units=5):
    """A model in which every layer of a kind sees the inputs themselves."""
    inputs = tf.keras.Input((6, 5, 8))
    table = layers.RelativePositionEmbedding(3, scope=3)
    arguments = {"num_heads": 2, "key_dim": 3}
    outputs = [
        layer(inputs)
        for layer in (
            layers.LambdaLayer(8, **arguments),
            layers.LambdaLayer(
                8, **arguments, scope=3, position_embedding=table
            ),
            layers.LambdaConv(8, 3, **arguments),
            layers.RelativeAttention(8, num_heads=2),
            layers.SqueezeExcite(),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.StochasticDepth(0.5),
        )
    ]
    x = tf.keras.layers.Concatenate()(outputs)
    x = tf.keras.layers.GlobalAveragePooling2D()(x)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(units)(x))


def some_images(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(0, 255, shape).astype(np.float32)


def arrays(model, dtype=None):
    """The weights of a model by name, as they are now."""
    named = models.named_weights(model)
    return {name: np.array(weight, dtype) for name, weight in named.items()}


def same_weights(model, expected):
    """The names of weights that are equal in a model and in another.

    The other may be arrays by name, as those of a model before.
    """
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


def in_float64(spec, **arguments):
    """A network in float64, its weights, and images that it sees."""
    tf.keras.mixed_precision.set_global_policy("float64")
    model = models.ResNet(
        spec,
        input_shape=(5, 7, 3),
        include_top=False,
        include_preprocessing=False,
        **arguments,
    )
    vary(model)
    images = some_images(2, 5, 7, 3) / 64 - 2  # Inputs are float32.
    return model, arrays(model, np.float64), images


def assert_trains_in_half(model):
    images = some_images(4, 16, 16, 3)
    model.compile(
        "sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    assert np.isfinite(model.train_on_batch(images, np.arange(4)))
