"""What a mask, a scope or the future hides from attention stays hidden.

Large numbers and half precisions, queries that may see nothing, NaN, and the
masks that Keras propagates.
"""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.layers import RelativeAttention
from tests.support import checks
from tests.support.attention_layers import built
from tests.support.attention_layers import normal

pytestmark = pytest.mark.once

_SIZE = {"filters": 10, "num_heads": 2, "key_dim": 3}


@pytest.mark.parametrize("form", ["plain", "mask", "padding", "causal"])
@pytest.mark.parametrize(
    ("policy", "tolerance"),
    [("float32", 1e-5), ("mixed_float16", 5e-3), ("mixed_bfloat16", 4e-2)],
)
def test_large_scores(form, policy, tolerance):
    # One-hot inputs make every score a product of integers, up to 58 * 1024.
    length, rng = 20, np.random.default_rng(3)
    x = np.eye(length, dtype="float32")[None]
    layer = RelativeAttention(
        4,
        num_heads=1,
        key_dim=4,
        position_embedding=None,
        causal=form == "causal",
        dtype=policy,
    )
    layer(x)
    for dense, scale in ((layer.query, 32), (layer.key, 16)):
        steps = rng.integers(-5, 6, dense.kernel.shape)
        dense.kernel.assign(scale * steps)
    layer.value.kernel.assign(rng.integers(-2, 3, layer.value.kernel.shape))
    arguments = {"inputs": x}
    if form == "mask":
        arguments["attention_mask"] = rng.integers(0, 2, [length, length])
    if form == "padding":
        arguments["context_mask"] = rng.integers(0, 2, [1, length])
    expected = checks.oracle_output(layer, arguments)
    output, gradients = checks.output_and_gradients(
        layer, arguments, np.full_like(expected, 2.0**-10)
    )
    checks.assert_close(output.astype(np.float64), expected, tolerance)
    for name, gradient in gradients.items():
        assert np.all(np.isfinite(gradient)), name
    assert np.any(gradients["value"] != 0)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_softmax_of_many_positions_in_half_precision(policy):
    # Equal scores of 10,000 positions: a share of 1e-4 each, and a sum that
    # bfloat16 cannot count to.
    layer = RelativeAttention(
        filters=1,
        num_heads=1,
        position_embedding=None,
        query_initializer="zeros",
        value_initializer="ones",
        dtype=policy,
    )
    output = layer(tf.ones([1, 4, 1]), context=tf.ones([1, 10_000, 1]))
    checks.assert_close(tf.cast(output, tf.float32), np.ones([1, 4, 1]), 2e-2)


def spoilt(x, positions, rng):
    """The same inputs with NaN or infinity at some positions."""
    x = x.copy()
    x[positions] = rng.choice([np.nan, np.inf, -np.inf], x[positions].shape)
    return x


def test_nan_stays_in_the_scope(rng):
    x = normal(rng, 1, 12, 13, 5)
    layer = built(x, **_SIZE, scope=(3, 5))
    expected = layer(x).numpy()
    output = layer(spoilt(x, (0, 5, 6), rng)).numpy()
    seen = np.zeros([12, 13], bool)
    seen[4:7, 4:9] = True
    assert np.all(np.isnan(output[0, seen]))
    checks.assert_close(output[0, ~seen], expected[0, ~seen], 1e-5)


@pytest.mark.parametrize("arguments", [{}, {"scope": 7}, {"axis": 1}])
def test_the_future_changes_nothing(arguments, rng):
    x = normal(rng, 2, 40, 5)
    layer = built(x, **_SIZE, causal=True, **arguments)
    now, expected = 20, layer(x).numpy()
    changed = x.copy()
    changed[:, now + 1 :] = 1e4 * normal(rng, 2, 19, 5)
    np.testing.assert_array_equal(layer(changed)[:, :21], expected[:, :21])
    checks.assert_far(layer(changed)[:, 21:], expected[:, 21:])
    bad = spoilt(x, (slice(None), slice(now + 1, None)), rng)
    checks.assert_close(layer(bad)[:, :21], expected[:, :21], 1e-6)
    assert np.all(np.isnan(layer(bad)[:, 21:]))
    # The present must count: otherwise a layer shifted by one would pass.
    changed[:, now] += 1
    checks.assert_far(layer(changed)[:, now], expected[:, now], 1e-3)


@pytest.mark.parametrize("axis", [None, 1])
def test_propagated_mask_is_padding(axis, rng):
    tokens = rng.integers(1, 9, [5, 5])
    for example in range(4):
        tokens[example, example + 1 :] = 0
    inputs = tf.keras.Input([5], dtype="int32")
    embedding = tf.keras.layers.Embedding(9, 7, mask_zero=True)
    layer = RelativeAttention(**_SIZE, axis=axis)
    outputs = layer(embedding(inputs))
    pooled = tf.keras.layers.GlobalAveragePooling1D()(outputs)
    model = tf.keras.Model(inputs, [outputs, pooled])
    checks.randomize(model, rng)
    x = tf.gather(checks.raw(embedding.embeddings), tokens)
    real = tokens != 0
    expected = checks.oracle_output(layer, {"inputs": x, "context_mask": real})
    unmasked = checks.oracle_output(layer, {"inputs": x})
    checks.assert_far(unmasked[real], expected[real])
    output, mean = model(tf.constant(tokens))
    output = output.numpy()
    checks.assert_close(output[real], expected[real], 1e-5)
    mask = real[..., None]
    expected = np.sum(output * mask, axis=1) / mask.sum(axis=1)
    checks.assert_close(mean, expected, 1e-5)
