"""What tensorflow-addons defines too, as an independent witness.

It was archived in 2024; TensorFlow 2.15 is the newest that it runs with, so
these tests run in the legacy lane alone (`make test-legacy`).
"""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import training
from lambdanet_tf.data import augment

pytestmark = pytest.mark.addons


@pytest.fixture(scope="module")
def tfa():
    return pytest.importorskip("tensorflow_addons")


# Stochastic depth. Addons drop the branch of the whole batch, do not rescale
# it in training, and scale it in inference; ours drops it per example and
# divides it by the probability to survive. Up to that factor the two are one.


def branch_outputs(tfa, residual, survival, draws):
    """The branch after both layers, ours divided by nothing, theirs by p."""
    theirs = tfa.layers.StochasticDepth(survival)
    ours = layers.StochasticDepth(1 - survival)
    shortcut = tf.zeros_like(residual)
    return [
        np.stack([layer() for _ in range(draws)])
        for layer in (
            lambda: ours(residual, training=True),
            lambda: theirs([shortcut, residual], training=True) / survival,
        )
    ]


def test_stochastic_depth_of_one_example(tfa, rng):
    residual = tf.constant(rng.normal(size=(1, 3)), tf.float32)
    ours, theirs = branch_outputs(tfa, residual, 0.7, draws=400)
    for outputs in (ours, theirs):
        kept = outputs.any(axis=(1, 2))
        np.testing.assert_allclose(
            outputs[kept],
            np.broadcast_to(residual / 0.7, outputs[kept].shape),
            rtol=1e-6,
        )
        assert abs(kept.mean() - 0.7) < 4 * np.sqrt(0.7 * 0.3 / 400)


def test_stochastic_depth_in_inference(tfa, rng):
    residual = tf.constant(rng.normal(size=(4, 3)), tf.float32)
    theirs = tfa.layers.StochasticDepth(0.7)(
        [tf.zeros_like(residual), residual], training=False
    )
    ours = layers.StochasticDepth(0.3)(residual, training=False)
    np.testing.assert_allclose(theirs / 0.7, ours, rtol=1e-6)


def test_stochastic_depth_of_a_batch_differs(tfa):
    """Theirs keeps or drops all examples together; ours each by itself."""
    ours, theirs = branch_outputs(tfa, tf.ones([64, 1]), 0.5, draws=8)
    assert all(len(np.unique(batch)) == 1 for batch in theirs)
    assert all(len(np.unique(batch)) == 2 for batch in ours)


# Averages. Theirs with `dynamic_decay` counts the updates from 0, ours, as
# TensorFlow's ExponentialMovingAverage, from 1; and theirs leaves the
# statistics of batch normalization out.


def small_model():
    return tf.keras.Sequential(
        [
            tf.keras.layers.Dense(4, use_bias=False, input_shape=(3,)),
            tf.keras.layers.BatchNormalization(momentum=0.5),
            tf.keras.layers.Dense(2),
        ]
    )


def averaged_model(tfa, rng, first_update):
    """Trains by their optimizer; returns their averages, ours, the model."""
    model = small_model()
    optimizer = tfa.optimizers.MovingAverage(
        tf.keras.optimizers.legacy.SGD(0.1), 0.9, dynamic_decay=True
    )
    averages = training.Averages(model, 0.9)
    for step in range(12):
        x = tf.constant(rng.normal(size=(8, 3)), tf.float32)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - 1.0))
        trained = model.trainable_variables
        gradients = tape.gradient(loss, trained)
        optimizer.apply_gradients(zip(gradients, trained, strict=True))
        averages.update(step + first_update)
    with averages.applied():
        ours = model.get_weights()
    trained = model.get_weights()
    optimizer.assign_average_vars(model.trainable_variables)
    return model.get_weights(), ours, trained, model


def test_averages_are_theirs_counted_from_zero(tfa, rng):
    theirs, ours, trained, model = averaged_model(tfa, rng, first_update=0)
    for a, b, now, weight in zip(
        theirs, ours, trained, model.weights, strict=True
    ):
        if weight.trainable:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
            assert np.abs(a - now).max() > 1e-4
        else:  # Theirs has left it as it is.
            np.testing.assert_array_equal(a, now)
            assert np.abs(b - now).max() > 1e-4


def test_averages_counted_from_one_differ(tfa, rng):
    theirs, ours, _, _ = averaged_model(tfa, rng, first_update=1)
    assert np.abs(theirs[0] - ours[0]).max() > 1e-5


# Image operations.


@pytest.mark.parametrize("size", [(9, 9), (8, 13)])
def test_affine_matrices(tfa, rng, size):
    none, one = tf.zeros([2]), tf.ones([2])
    angle = tf.constant(rng.uniform(-1, 1), tf.float32)
    np.testing.assert_allclose(
        augment.affine_matrix(tf.constant(size), angle, none, one),
        tfa.image.transform_ops.angles_to_projective_transforms(
            angle, float(size[0]), float(size[1])
        )[0],
        atol=1e-5,
    )
    down, right = shift = rng.uniform(-3, 3, size=2).astype(np.float32)
    np.testing.assert_allclose(
        augment.affine_matrix(
            tf.constant(size), tf.constant(0.0), tf.constant(shift), one
        ),
        tfa.image.translate_ops.translations_to_projective_transforms(
            [right, down]
        )[0],
        atol=1e-5,
    )


def test_rotated_and_shifted_pixels(tfa, rng):
    """A rotation and a shift at random are theirs, one after the other."""
    image = tf.constant(rng.uniform(0, 255, (11, 9, 3)), tf.float32)
    for seed in ([3, 1], [2, 7]):
        draws = tf.random.stateless_uniform([5], seed, -1.0, 1.0)
        rotated = augment.random_affine(image, seed, rotation=40.0)
        angle = draws[0] * (40.0 * np.pi / 180)
        np.testing.assert_allclose(
            rotated,
            tfa.image.rotate(image, angle, interpolation="bilinear"),
            atol=1e-2,
        )
        shifted = augment.random_affine(image, seed, shift=3.0)
        np.testing.assert_allclose(
            shifted,
            tfa.image.translate(
                image, draws[2:0:-1] * 3.0, interpolation="bilinear"
            ),
            atol=1e-2,
        )


# Weight decay. Ours is the gradient of a penalty, as the paper's; SGDW
# subtracts a share of the weight beside the gradient step. Without momentum
# they are one, if that share is rate x decay; with momentum only the former
# passes through it.


def decayed(optimizer, penalty):
    weight = tf.Variable([1.0, -2.0, 3.0])
    for step in range(10):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(weight + float(step)))
            loss += penalty * tf.reduce_sum(tf.square(weight))
        gradient = tape.gradient(loss, weight)
        optimizer.apply_gradients([(gradient, weight)])
    return weight.numpy()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_coupled_and_decoupled_decay(tfa, momentum):
    rate, decay = 0.1, 0.2
    coupled = decayed(
        tf.keras.optimizers.SGD(rate, momentum=momentum), decay / 2
    )
    decoupled = decayed(
        tfa.optimizers.SGDW(rate * decay, rate, momentum=momentum), 0.0
    )
    difference = np.abs(coupled - decoupled).max()
    assert difference < 1e-5 if momentum == 0 else difference > 0.1
