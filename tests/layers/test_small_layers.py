"""StochasticDepth, Dropout and SqueezeExcite: what they compute."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from tests.support import checks

RANDOM = [layers.StochasticDepth, layers.Dropout]


@pytest.mark.parametrize("layer_type", RANDOM)
def test_inference_and_rate_zero_change_nothing(layer_type, rng):
    x = rng.normal(size=[4, 3, 5]).astype("float32")
    np.testing.assert_array_equal(layer_type(0.5)(x), x)
    np.testing.assert_array_equal(layer_type(0.0)(x, training=True), x)


def test_stochastic_depth_drops_whole_examples():
    x = np.ones([1000, 2, 3], "float32")
    output = layers.StochasticDepth(0.25)(x, training=True).numpy()
    per_example = output.reshape(1000, -1)
    assert np.all(per_example == per_example[:, :1])
    kept = per_example[:, 0] != 0
    np.testing.assert_allclose(per_example[kept, 0], 1 / 0.75, rtol=1e-6)
    assert abs(kept.mean() - 0.75) < 5 * np.sqrt(0.25 * 0.75 / 1000)


def test_dropout_drops_single_activations():
    x = np.ones([10, 100, 100], "float32")
    output = layers.Dropout(0.25)(x, training=True).numpy()
    kept = output != 0
    np.testing.assert_allclose(output[kept], 1 / 0.75, rtol=1e-6)
    assert abs(kept.mean() - 0.75) < 5 * np.sqrt(0.25 * 0.75 / x.size)
    # Neither rows, nor columns, nor examples are dropped together.
    for axis in range(3):
        assert kept.mean(axis=axis).std() > 0


@pytest.mark.parametrize("layer_type", RANDOM)
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_rate_in_half_precision(layer_type, policy):
    # A draw in bfloat16 keeps 97.6% instead of 98%.
    x = tf.ones([200_000, 1])
    output = layer_type(0.02, dtype=policy)(x, training=True)
    assert output.dtype == policy.removeprefix("mixed_")
    kept = np.mean(tf.cast(output, tf.float32).numpy() != 0)
    assert abs(kept - 0.98) < 5 * np.sqrt(0.02 * 0.98 / 200_000)


@pytest.mark.parametrize("layer_type", RANDOM)
def test_draws_follow_the_seed_and_never_repeat(layer_type):
    x = tf.ones([100, 7])
    call = tf.function(lambda x: layer_type(0.5)(x, training=True))

    def draws(seed):
        tf.keras.utils.set_random_seed(seed)
        layer = layer_type(0.5)
        return [layer(x, training=True).numpy() for _ in range(2)]

    first, again, other = draws(3), draws(3), draws(4)
    np.testing.assert_array_equal(first, again)
    assert np.any(first[0] != first[1])
    assert np.any(first[0] != other[0])
    assert np.any(call(x) != call(x))


@pytest.mark.parametrize("layer_type", RANDOM)
def test_what_is_dropped_is_dropped(layer_type):
    output = layer_type(0.5)(tf.fill([64, 3], np.nan), training=True).numpy()
    assert np.any(output == 0)
    assert np.any(np.isnan(output))
    assert np.all((output == 0) | np.isnan(output))


@pytest.mark.parametrize("activation", ["relu", "swish"])
def test_squeeze_excite_by_hand(activation, rng):
    x = rng.normal(size=[2, 3, 5, 7]).astype("float32")
    layer = layers.SqueezeExcite(ratio=0.5, activation=activation)
    layer(x)
    checks.randomize(layer, rng)
    reduce, reduce_bias, expand, expand_bias = (
        checks.raw(weight).numpy() for weight in layer.weights
    )
    assert reduce.shape == (7, 3)
    hidden = x.mean(axis=(1, 2)) @ reduce + reduce_bias
    if activation == "relu":
        hidden = np.maximum(hidden, 0)
    else:
        hidden = hidden / (1 + np.exp(-hidden))
    gates = 1 / (1 + np.exp(-(hidden @ expand + expand_bias)))
    checks.assert_close(layer(x), x * gates[:, None, None], 1e-5)
    # Of few channels at least one unit is left.
    layer = layers.SqueezeExcite(ratio=0.01)
    layer(x)
    assert tuple(layer.weights[0].shape) == (7, 1)
