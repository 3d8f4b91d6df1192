"""Every public layer and family of networks, as their user uses them."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf.environment import KERAS_3
from tests.support import checks
from tests.support import networks
from tests.support import streams

pytestmark = pytest.mark.every_lane


def every_layer(built=True, **common):
    """A model in which a layer of each kind sees the inputs themselves."""
    inputs = tf.keras.Input((6, 5, 8))
    small = {"num_heads": 2, "key_dim": 3, **common}
    table = layers.RelativePositionEmbedding(3, scope=3, **common)
    every = [
        layers.LambdaLayer(8, **small),
        layers.LambdaLayer(8, **small, scope=3, position_embedding=table),
        layers.LambdaConv(8, 3, **small),
        layers.RelativeAttention(8, **small),
        layers.SqueezeExcite(**common),
        layers.BatchNormalization(**common),
        layers.Dropout(0.5, **common),
        layers.StochasticDepth(0.5, **common),
    ]
    kinds = {type(layer).__name__ for layer in (*every, table)}
    assert kinds == {*layers.__all__}
    for layer in every:
        layer.trainable &= built
    x = tf.keras.layers.Concatenate()([layer(inputs) for layer in every])
    x = tf.keras.layers.GlobalAveragePooling2D()(x)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(5)(x))


def resnet(spec, **changes):
    return lambda: models.ResNet(
        dataclasses.replace(spec, **changes),
        input_shape=(16, 16, 3),
        classes=5,
        classifier_activation=None,
    )


def sequence():
    """A class for each position of a series, by what is known there."""
    inputs = x = tf.keras.Input((12, 6))
    past = {"num_heads": 2, "key_dim": 3}
    for layer in (
        layers.LambdaLayer(8, use_position=False, causal=True, **past),
        layers.LambdaConv(8, 3, padding="causal", dilation_rate=2, **past),
        layers.BatchNormalization(),
        layers.LambdaLayer(8, scope=5, causal=True, **past),
        tf.keras.layers.Dense(5),
    ):
        x = layer(x)
    return tf.keras.Model(inputs, x)


SHALLOW = {"stages": ("C", "L"), "widths": (8, 16), "strides": (1, 2)}
FAMILIES = {
    "every_layer": every_layer,
    "sequence": sequence,
    "resnet": resnet(networks.TINY, **SHALLOW),
    "mobilenet": lambda: networks.tiny_mobilenet(
        lambda_blocks=(2, 4), key_dim=4, classifier_activation=None
    ),
}


def examples(model, rng):
    x = rng.normal(size=(8, *model.input_shape[1:])).astype("float32")
    if model.input_shape[-1] == 3:  # Networks take pixels.
        x = 127.5 + 50 * x
    return x, rng.integers(0, 5, (8, *model.output_shape[1:-1]))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_from_build_to_export(name, rng, tmp_path):
    model = FAMILIES[name]()
    for weight in model.trainable_weights:  # Branches of gamma 0 learn nothing.
        if "gamma" in weight.name:
            weight.assign(tf.ones_like(weight))
    x, y = examples(model, rng)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # Keras 3 compiles by XLA unless it is told otherwise, which takes long.
    is_usual = name in ("every_layer", "resnet")
    model.compile("adam", loss, **({} if is_usual else {"jit_compile": False}))
    before = [np.array(weight) for weight in model.trainable_weights]
    fitted = model.fit(x, y, validation_data=(x, y), epochs=2, verbose=0)
    assert np.isfinite(fitted.history["loss"]).all()
    assert np.isfinite(fitted.history["val_loss"]).all()
    for old, weight in zip(before, model.trainable_weights, strict=True):
        assert not np.array_equal(old, weight), weight.name
    evaluated = model.evaluate(x, y, verbose=0)
    assert evaluated == pytest.approx(fitted.history["val_loss"][-1], 1e-4)

    expected = model.predict(x, verbose=0)
    loaded = checks.COPIES["keras_file"](model, tmp_path)
    checks.assert_close(loaded.predict(x, verbose=0), expected, 1e-6)
    steps = int(model.optimizer.iterations)
    assert steps == int(loaded.optimizer.iterations) > 0
    if name == "sequence":
        streams.assert_streams(model, x, [5, 1, 6], 2e-6)

    quiet = {"verbose": False} if KERAS_3 else {}
    model.export(str(tmp_path / "exported"), **quiet)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    serve = exported.signatures["serving_default"]
    # Each Keras names a single input in its own way.
    (name,) = serve.structured_input_signature[1]
    (output,) = serve(**{name: tf.constant(x)}).values()
    checks.assert_close(output, expected, 1e-5)


def assert_frozen(model, x):
    before = model.get_weights()
    model(x, training=True)
    checks.assert_each_close(model.get_weights(), before, 0)
    assert not model.trainable_weights


@pytest.mark.slow
@pytest.mark.parametrize("name", ["every_layer", "resnet"])
def test_what_is_frozen_stays_so_in_copies(name, rng, tmp_path):
    model = FAMILIES[name]()
    x, _ = examples(model, rng)
    count = len(model.trainable_weights)
    for layer in model.layers:
        layer.trainable = False
    ways = {*checks.COPIES} if name == "every_layer" else {"clone_model"}
    for way in {"keras_file", *ways}:
        copied = checks.COPIES[way](model, tmp_path)
        assert_frozen(copied, x)
        for layer in copied.layers[1:]:  # Inputs have no weights to freeze.
            assert not layer.trainable, way
            layer.trainable = True
        assert len(copied.trainable_weights) == count, way


@pytest.mark.slow
def test_layers_that_are_made_frozen_do_not_train(rng):
    for model in (every_layer(trainable=False), every_layer(built=False)):
        model.layers[-1].trainable = False
        assert_frozen(model, examples(model, rng)[0])
