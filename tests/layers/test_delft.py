"""What the CIFAR-10 study of Delft computed, beside the right formulas.

Its layer is written out from github.com/joigalcar3/LambdaNetworks
(lambda_layer.py, resnet_lambda.py), in NumPy, images channels first.
"""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.studies import delft
from lambdanet_tf import models
from lambdanet_tf.layers import LambdaLayer
from tests.support import checks
from tests.support.random_layers import built

pytestmark = pytest.mark.once

_BATCH, _SIZE, _CHANNELS, _HEADS, _KEY = 3, 4, 8, 2, 5
_N = _SIZE * _SIZE


def delft_layer(x, layer):
    """`LambdaLayer.forward` of the study, without its normalizations.

    Args:
        x: positions of each image, `(b, n, d)`.
        layer: for its weights.

    Returns:
        `(b, d, height, width)`.
    """
    weights, _ = checks.split_point(layer, {})
    b, _, d = x.shape
    keys = np.exp(x @ weights["key"])
    keys = keys / keys.sum(axis=1, keepdims=True)
    values = x @ weights["value"]
    # Heads are the outer axis here, the inner one there: a permutation of the
    # weights' columns.
    queries = (x @ weights["query"]).reshape(b, _N, _HEADS, _KEY)
    lambdas = np.einsum("bmk,bmv->bkv", keys, values)[:, None]
    table = weights["embeddings"][..., 0]
    rows, columns = np.divmod(np.arange(_N), _SIZE)
    pairs = table[
        rows - rows[:, None] + _SIZE - 1,
        columns - columns[:, None] + _SIZE - 1,
    ]
    lambdas = lambdas + np.einsum("nmk,bmv->bnkv", pairs, values)
    output = np.einsum("bnhk,bnkv->bhvn", queries, lambdas)
    return output.reshape(b, d, _SIZE, _SIZE)


def channels_first(x):
    return np.moveaxis(np.asarray(x), -1, 1)


def test_pixels_were_mixed_with_channels(rng):
    images = rng.normal(size=[_BATCH, _SIZE, _SIZE, _CHANNELS])
    size = {"num_heads": _HEADS, "key_dim": _KEY, "dtype": "float64"}
    layer = built(images, **size, use_batch_norm=False)
    first = channels_first(images)
    studied = delft_layer(first.reshape(_BATCH, _N, _CHANNELS), layer)
    positions = first.reshape(_BATCH, _CHANNELS, _N).swapaxes(1, 2)
    right = delft_layer(positions, layer)
    checks.assert_close(channels_first(layer(images)), right, 1e-12)
    checks.assert_far(studied, right)
    mixed = layer(delft.MixedPixels(dtype="float64")(images))
    checks.assert_close(channels_first(mixed), studied, 1e-12)


def test_its_values_were_normalized_by_position(rng):
    """`BatchNorm1d(m)` of values (b, m, v): statistics of each position.

    The paper normalizes each channel over images and positions. Where one
    position is brighter in all images, only the latter keeps that.
    """
    brightness = 3 * rng.normal(size=[_SIZE, _SIZE, 1])
    x = rng.normal(size=[_BATCH, _SIZE, _SIZE, _CHANNELS]) + brightness
    layer = LambdaLayer(num_heads=_HEADS, key_dim=_KEY, norm_epsilon=1e-9)
    layer(x)
    kernel = np.abs(checks.raw(layer.value.kernel).numpy())
    layer.value.kernel.assign(kernel)
    values = x.reshape(_BATCH, _N, _CHANNELS) @ kernel
    normed = layer.value_norm(values, training=True).numpy()

    def standardized(axes):
        mean = values.mean(axes, keepdims=True)
        return (values - mean) / values.std(axes, keepdims=True)

    checks.assert_close(normed, standardized((0, 1)), 1e-4)
    checks.assert_far(normed, standardized((0, 2)))
    of_position = standardized((0, 2)).mean(axis=(0, 2))
    np.testing.assert_allclose(of_position, 0, atol=1e-9)
    assert np.ptp(np.mean(normed, axis=(0, 2))) > 1


@pytest.mark.slow
def test_its_statistics_were_those_of_the_last_batch(rng):
    """PyTorch: running = (1 - momentum) running + momentum batch.

    TensorFlow's decay of 0.9999 given as momentum keeps the last batch; a
    decay that settles within the run keeps an average of many.
    """
    batches = rng.normal(size=[200, 16, 1]) + rng.normal(size=[200, 1, 1])
    batches[-1] += 2  # as batches of one class may
    expected = {delft.INVERTED_DECAY: batches[-1].mean(), 0.99: 0.0}
    for decay, mean in expected.items():
        momentum, running = 1 - decay, 0.0
        norm = tf.keras.layers.BatchNormalization(momentum=decay)
        for batch in batches:
            norm(tf.constant(batch, tf.float32), training=True)
            running = (1 - momentum) * running + momentum * batch.mean()
        kept = float(checks.raw(norm.moving_mean)[0])
        assert kept == pytest.approx(running, abs=1e-5)
        assert kept == pytest.approx(mean, abs=1e-3 if decay < 0.5 else 0.5)


def test_networks_of_the_study_mix_pixels():
    arguments = {"stages": ["L"], "widths": [8], "strides": [1]}
    with delft.mixing_lambda_blocks():
        mixing = models.build("LambdaResNetSmall", **arguments)
    right = models.build("LambdaResNetSmall", **arguments)
    names = [
        {layer.name for layer in model.layers} for model in (mixing, right)
    ]
    assert names[0] - names[1] == {"stage2_block1_mixed_pixels"}
    assert models.named_weights(mixing).keys() == (
        models.named_weights(right).keys()
    )
