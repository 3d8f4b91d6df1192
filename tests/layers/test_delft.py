"""What the CIFAR-10 study of Delft computed, beside the right formulas.

Written out from github.com/joigalcar3/LambdaNetworks (lambda_layer.py,
resnet_lambda.py).
"""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.studies import delft
from lambdanet_tf import models
from tests.support import checks
from tests.support.random_layers import built

pytestmark = pytest.mark.once


def test_pixels_were_mixed_with_channels(rng):
    """It takes images (b, d, h, w), as they lie, for positions (b, n, d)."""
    images = rng.normal(size=[3, 4, 4, 8])
    size = {"num_heads": 2, "key_dim": 5, "dtype": "float64"}
    layer = built(images, **size, use_batch_norm=False)
    as_they_lie = np.moveaxis(images, -1, 1).reshape(images.shape)
    studied = checks.oracle_output(layer, {"inputs": as_they_lie})
    right = checks.oracle_output(layer, {"inputs": images})
    mixed = delft.MixedPixels(dtype="float64")(images)
    checks.assert_close(layer(mixed), studied, 1e-12)
    checks.assert_close(layer(images), right, 1e-12)
    checks.assert_far(studied, right)


def test_its_statistics_were_those_of_the_last_batch(rng):
    """PyTorch: running = (1 - momentum) running + momentum batch.

    TensorFlow's decay of 0.9999 was given as the momentum.
    """
    batches = rng.normal(size=[20, 16, 1]).astype("float32")
    batches[-1] += 2  # as batches of one class may
    norm = tf.keras.layers.BatchNormalization(momentum=delft.INVERTED_DECAY)
    running, momentum = 0.0, 0.9999
    for batch in batches:
        norm(batch, training=True)
        running = (1 - momentum) * running + momentum * batch.mean()
    kept = float(checks.raw(norm.moving_mean)[0])
    assert kept == pytest.approx(running, abs=1e-5)
    assert kept == pytest.approx(batches[-1].mean(), abs=1e-3)
    assert kept > batches.mean() + 1


def test_networks_of_the_study_mix_pixels():
    arguments = {"stages": ["L"], "widths": [8], "strides": [1]}
    with delft.mixing_lambda_blocks():
        mixing = models.build("LambdaResNetSmall", **arguments)
    right = models.build("LambdaResNetSmall", **arguments)
    names, others = ({x.name for x in m.layers} for m in (mixing, right))
    assert names - others == {"stage2_block1_mixed_pixels"}
