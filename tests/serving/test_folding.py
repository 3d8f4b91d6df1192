"""Folded networks compute the same function with fewer weights."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import ops
from lambdanet_tf import serving
from lambdanet_tf.serving import fold_batch_norm
from tests.support import cases
from tests.support import checks
from tests.support import networks
from tests.support.serving_run import shake

Keras = tf.keras.layers
Conv2D = Keras.Conv2D
Norm = Keras.BatchNormalization


def norms_of(model):
    return [layer for layer in model.layers if isinstance(layer, Norm)]


def chain(shape, *steps):
    """A model of one layer after the other."""
    x = inputs = tf.keras.Input(shape)
    for step in steps:
        x = step(x)
    return tf.keras.Model(inputs, x)


def fold(model, rng, **arguments):
    """Shakes and folds a model, which must stay the same function."""
    shake(model, rng)
    model.compile("sgd", tf.nn.log_poisson_loss)  # Keras cannot load it.
    inputs = rng.normal(size=(2, *model.inputs[0].shape[1:]))
    inputs = inputs.astype(np.float32)
    expected = tf.nest.flatten(model(inputs))
    folded = fold_batch_norm(model, **arguments)
    found = tf.nest.flatten(folded(inputs))
    for output, wanted in zip(found, expected, strict=True):
        assert np.abs(wanted).max() > 0
        checks.assert_close(output, wanted, 1e-5)
    return folded


@pytest.mark.parametrize("norm", [{}, {"center": False}, {"scale": False}])
@pytest.mark.parametrize(
    "layer",
    [
        lambda: Conv2D(5, 3, use_bias=False),
        lambda: Conv2D(5, 3, strides=2, padding="same"),
        lambda: Keras.DepthwiseConv2D(3, depth_multiplier=2),
        lambda: Keras.Dense(7),
    ],
)
def test_a_norm_disappears_into_the_linear_layer_before_it(layer, norm, rng):
    model = chain((7, 5, 3), layer(), Norm(**norm))
    assert norms_of(fold(model, rng)) == []


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_copy_has_the_policy_of_its_model(policy, rng):
    """In a process of another one: layers take that of the process."""
    tf.keras.mixed_precision.set_global_policy(policy)
    inputs = tf.keras.Input((7, 5, 3))
    x = Norm()(Conv2D(5, 3)(inputs)) + Conv2D(5, 3)(inputs)
    model = tf.keras.Model(inputs, x)
    others = {"float32": "mixed_bfloat16", "mixed_bfloat16": "float32"}
    tf.keras.mixed_precision.set_global_policy(others[policy])
    x = rng.normal(size=(2, 7, 5, 3)).astype("float32")
    found, wanted = fold_batch_norm(model)(x), model(x)
    assert found.dtype == wanted.dtype
    tolerance = 1e-5 if policy == "float32" else 2e-2
    checks.assert_close(tf.cast(found, tf.float32), wanted, tolerance)


class Squared(Conv2D):
    """Somebody's convolution, by the squares of its kernel."""

    def call(self, inputs):
        kernel = tf.convert_to_tensor(self.kernel)
        return tf.nn.conv2d(inputs, kernel**2, 1, "VALID")


def read_by(reader):
    """A step whose values are read by a norm, and by something else."""

    def step(x):
        y = Conv2D(5, 3)(x)
        return reader(y, Norm()(y))

    return [step]


def attend(y, z):
    layer = layers.LambdaLayer(5, num_heads=1, key_dim=3, scope=3)
    return layer(z, context=y)


def twice():
    shared = Conv2D(3, 3, padding="same")
    return [shared, Norm(), shared, Norm()]


def of_batch(x):
    return Norm(momentum=1.0)(x, training=True)


# What a network is made of, and how many of its norms stay.
STEPS = {
    "read by a layer": (lambda: read_by(lambda y, z: Keras.Add()([y, z])), 1),
    "read by the user": (lambda: read_by(lambda y, z: [y, z]), 1),
    "read by a sum": (lambda: read_by(lambda y, z: y + z), 1),
    "an argument by name": (lambda: read_by(attend), 1),
    "activation": (lambda: [Conv2D(5, 3, activation="relu"), Norm()], 1),
    "of a layer that is called twice": (twice, 2),
    "of the batch": (lambda: [Keras.Dense(4), of_batch], 1),
    "subclass": (lambda: [Squared(4, 3, use_bias=False), Norm()], 1),
    "another axis": (lambda: [Conv2D(4, 3), Norm(axis=1)], 1),
    "ours": (lambda: [Conv2D(4, 3), layers.BatchNormalization()], 0),
    "strides": (lambda: [layers.LambdaConv(4, 3, strides=2, key_dim=3)], 0),
}


@pytest.mark.parametrize("name", STEPS)
def test_which_norms_stay(name, rng):
    steps, number = STEPS[name]
    folded = fold(chain((7, 5, 3), *steps()), rng)
    assert len(norms_of(folded)) == number


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"use_batch_norm": False},
        {"use_position_bias": True},
        {"use_content": False},
        {"use_position": False},
        {"query_normalization": "softmax"},
        {"causal": True, "use_batch_norm": True},
    ],
)
def test_lambda_layers_of_every_kind(arguments, rng):
    layer = layers.LambdaLayer(num_heads=2, key_dim=3, **arguments)
    folded = fold(chain((7, 6), layer), rng)
    assert folded.layers[-1].query_norm is None
    assert folded.layers[-1].value_norm is None


@cases.every_implementation
def test_the_algorithm_is_chosen_and_tables_stay_shared(implementation, rng):
    table = layers.RelativePositionEmbedding(3, scope=5)
    given = {"key_dim": 3, "scope": 5, "position_embedding": table}
    both = [layers.LambdaLayer(num_heads=2, **given) for _ in range(2)]
    model = chain((7, 5, 6), *both)
    folded = fold(model, rng, implementation=implementation).layers[-2:]
    assert folded[0].position_embedding is folded[1].position_embedding
    assert {layer.implementation for layer in folded} == {implementation}


@pytest.mark.slow
@pytest.mark.parametrize(
    "network",
    [
        functools.partial(networks.tiny_mobilenet, lambda_blocks=(2, 4)),
        functools.partial(models.ResNet, networks.ATTENTION),
    ],
    ids=["MobileNetV2", "attention"],
)
def test_an_export_is_the_network_wherever_it_is_made(network):
    model = network(input_shape=(10, 9, 3))
    networks.vary(model)
    images = networks.some_images(3, 10, 9, 3)
    with ops.planning_for("tpu"):
        exported = serving.Inference(model)
    logits = exported(images)["logits"]
    checks.assert_close(exported.probabilities(logits), model(images), 1e-4)
