"""StochasticDepth, Dropout and SqueezeExcite: what they compute."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf.layers.randomness import random_streams
from tests.support import checks

RANDOM = [layers.StochasticDepth, layers.Dropout]


@pytest.mark.parametrize("layer_type", RANDOM)
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_share_is_dropped_and_the_rest_grows(layer_type, policy):
    # A draw in bfloat16 keeps 97.6% instead of 98%.
    layer, x = layer_type(0.02, dtype=policy), tf.ones([200_000, 1])
    np.testing.assert_array_equal(layer(x), x)
    np.testing.assert_array_equal(layer_type(0.0)(x, training=True), x)
    output = layer(x, training=True)
    assert output.dtype == policy.removeprefix("mixed_")
    output = tf.cast(output, tf.float32).numpy()
    kept = output != 0
    assert abs(kept.mean() - 0.98) < 5 * np.sqrt(0.02 * 0.98 / 200_000)
    rounding = 1e-6 if policy == "float32" else 2**-8
    np.testing.assert_allclose(output[kept], 1 / 0.98, rtol=rounding)
    # NaN is dropped as well: zero times NaN would be NaN.
    output = tf.cast(layer(x * np.nan, training=True), tf.float32).numpy()
    assert 0 < np.sum(output == 0) < np.sum(np.isnan(output))


def test_stochastic_depth_drops_whole_examples_and_dropout_does_not():
    x = np.ones([100, 10, 10], "float32")
    output = layers.StochasticDepth(0.25)(x, training=True).numpy()
    assert np.all(output == output[:, :1, :1])
    kept = layers.Dropout(0.25)(x, training=True).numpy() != 0
    # Neither rows, nor columns, nor examples are dropped together.
    for axis in range(3):
        assert kept.mean(axis=axis).std() > 0


@pytest.mark.parametrize("layer_type", RANDOM)
def test_draws_follow_the_seed_and_never_repeat(layer_type):
    x, both = tf.ones([100, 7]), [layer_type(0.5), layer_type(0.5)]
    graph = tf.function(lambda: both[0](x, training=True))

    def draws():
        return [layer(x, training=True).numpy() for layer in both]

    seeded, streams = [], []
    for seed in (3, 3, 4):
        tf.keras.utils.set_random_seed(seed)
        seeded.append(draws())
        with random_streams(tf.constant([seed, 0], tf.int64)):
            streams.append(draws())
    for first, again, other in (seeded, streams):
        np.testing.assert_array_equal(first, again)
        assert np.any(first[0] != first[1])
        assert np.any(first[0] != other[0])
    assert np.any(draws()[0] != draws()[0])
    assert np.any(graph() != graph())


@pytest.mark.parametrize("activation", ["relu", "swish"])
def test_squeeze_excite_by_hand(activation, rng):
    x = rng.normal(size=[2, 3, 5, 7]).astype("float32")
    layer = layers.SqueezeExcite(ratio=0.5, activation=activation)
    layer(x)
    checks.randomize(layer, rng)
    reduce, reduce_bias, expand, expand_bias = layer.get_weights()
    assert reduce.shape == (7, 3)
    hidden = x.mean(axis=(1, 2)) @ reduce + reduce_bias
    positive, swish = np.maximum(hidden, 0), hidden / (1 + np.exp(-hidden))
    hidden = positive if activation == "relu" else swish
    gates = 1 / (1 + np.exp(-(hidden @ expand + expand_bias)))
    checks.assert_close(layer(x), x * gates[:, None, None], 1e-5)
    # Of few channels at least one unit is left.
    layer = layers.SqueezeExcite(ratio=0.01)
    layer(x)
    assert tuple(layer.weights[0].shape) == (7, 1)
