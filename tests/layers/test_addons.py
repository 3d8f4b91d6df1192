"""What tensorflow-addons defines too: `make test-legacy` has them."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import training
from lambdanet_tf.data import augment
from tests.support import checks

pytestmark = pytest.mark.addons


def test_averages(rng):
    """Of updates counted from 0; they leave out batch normalization's."""
    tfa = pytest.importorskip("tensorflow_addons")
    dense = tf.keras.layers.Dense(4, use_bias=False, input_shape=(3,))
    norm = tf.keras.layers.BatchNormalization(momentum=0.5)
    model = tf.keras.Sequential([dense, norm])
    theirs = tfa.optimizers.MovingAverage(
        tf.keras.optimizers.legacy.SGD(0.1), 0.9, dynamic_decay=True
    )
    ours = [training.Averages(model, 0.9) for _ in range(2)]
    weights = model.trainable_variables
    for step in range(12):
        x = tf.constant(rng.normal(size=(8, 3)), tf.float32)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - x[:, :1]) ** 2)
        gradients = tape.gradient(loss, weights)
        theirs.apply_gradients(zip(gradients, weights, strict=True))
        for first, averages in enumerate(ours):
            averages.update(step + first)
    found = [model.get_weights()]
    for averages in ours:
        with averages.applied():
            found.append(model.get_weights())
    theirs.assign_average_vars(weights)
    for variable, now, from_0, from_1 in zip(
        model.weights, *found, strict=True
    ):
        checks.assert_far(from_0, now, 1e-4)
        checks.assert_far(from_1, from_0, 1e-5)
        expected = from_0 if variable.trainable else now
        np.testing.assert_allclose(variable, expected, 1e-5, 1e-7)


def test_rotated_and_shifted_pixels(rng):
    tfa = pytest.importorskip("tensorflow_addons")
    transforms = tfa.image.transform_ops
    image = tf.constant(rng.uniform(0, 255, (11, 9, 3)), tf.float32)
    for seed in ([3, 1], [2, 7]):
        draws = tf.random.stateless_uniform([5], seed, -1.0, 1.0)
        rotated = augment.random_affine(image, seed, rotation=40.0)
        angle = draws[0] * (40.0 * np.pi / 180)
        none, size = tf.zeros([2]), tf.constant([11, 9])
        matrix = augment.affine_matrix(size, angle, none, none + 1)
        theirs = transforms.angles_to_projective_transforms(angle, 11.0, 9.0)
        np.testing.assert_allclose(matrix, theirs[0], atol=1e-5)
        theirs = tfa.image.rotate(image, angle, interpolation="bilinear")
        np.testing.assert_allclose(rotated, theirs, atol=1e-2)
        shifted = augment.random_affine(image, seed, shift=3.0)
        shift = draws[2:0:-1] * 3.0
        theirs = tfa.image.translate(image, shift, interpolation="bilinear")
        np.testing.assert_allclose(shifted, theirs, atol=1e-2)
