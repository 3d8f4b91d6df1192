"""What the CIFAR-10 study of Delft did to its pixels, of which one variant is.

Written out from github.com/joigalcar3/LambdaNetworks (lambda_layer.py,
resnet_lambda.py).
"""

import numpy as np
import pytest

from benchmarks.studies import delft
from lambdanet_tf import models

pytestmark = pytest.mark.once


def test_pixels_were_mixed_with_channels(rng):
    """It reads images channels first as rows of channels, as they lie."""
    images = rng.normal(size=[3, 4, 4, 8])
    mixed = delft.MixedPixels(dtype="float64")(images)
    mixed = np.reshape(mixed, [3, 16, 8])
    for position, column in np.ndindex(16, 8):
        channel, pixel = divmod(8 * position + column, 16)
        expected = images[:, pixel // 4, pixel % 4, channel]
        np.testing.assert_array_equal(mixed[:, position, column], expected)


def test_networks_of_the_study_mix_pixels():
    arguments = {"stages": ["L"], "widths": [8], "strides": [1]}
    with delft.mixing_lambda_blocks():
        mixing = models.build("LambdaResNetSmall", **arguments)
    right = models.build("LambdaResNetSmall", **arguments)
    names = [
        {layer.name for layer in model.layers} for model in (mixing, right)
    ]
    assert names[0] - names[1] == {"stage2_block1_mixed_pixels"}
