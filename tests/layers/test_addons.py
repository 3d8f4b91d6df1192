"""What tensorflow-addons defines too, as an independent witness.

It was archived in 2024; TensorFlow 2.15 is the newest that it runs with, so
these tests run in the legacy lane alone (`make test-legacy`).
"""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.data import augment

pytestmark = pytest.mark.addons


@pytest.fixture(scope="module")
def tfa():
    return pytest.importorskip("tensorflow_addons")


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
