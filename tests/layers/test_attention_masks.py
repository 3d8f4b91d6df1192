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


@pytest.mark.parametrize("kind", ["global", "local", "axis"])
@pytest.mark.parametrize("form", ["mask", "padding"])
def test_nothing_permitted_gives_zero(form, kind, rng):
    x = normal(rng, 2, 11, 5)
    arguments = {"global": {}, "local": {"scope": 5}, "axis": {"axis": 1}}
    layer = built(x, **_SIZE, **arguments[kind])
    call, empty = {"inputs": x}, np.zeros([2, 11], bool)
    if form == "mask":
        call["attention_mask"] = rng.integers(0, 2, [11, 11])
        call["attention_mask"][4] = 0
        call["attention_mask"] |= np.diag([1] * 4 + [0] + [1] * 6)
        empty[:, 4] = True
    else:
        call["context_mask"] = np.ones([2, 11], bool)
        call["context_mask"][0] = False
        empty[0] = True
    output, gradients = checks.output_and_gradients(
        layer, call, rng.normal(size=[2, 11, 10])
    )
    assert np.all(output[empty] == 0)
    assert np.all(np.any(output[~empty] != 0, axis=-1))
    for name, gradient in gradients.items():
        assert np.all(np.isfinite(gradient)), name
    checks.assert_equals_oracle(layer, call, rng, jointly=True)


def spoilt(x, positions, rng):
    """The same inputs with NaN or infinity at some positions."""
    x = x.copy()
    x[positions] = rng.choice([np.nan, np.inf, -np.inf], x[positions].shape)
    return x


@pytest.mark.parametrize("kind", ["global", "local", "axis", "causal"])
def test_padding_never_leaks(kind, rng):
    # Not as numbers, not as NaN, and not into the gradients.
    x = normal(rng, 2, 11, 5)
    arguments = {"global": {}, "local": {"scope": 5}, "axis": {"axis": 1}}
    arguments["causal"] = {"causal": True}
    layer = built(x, **_SIZE, **arguments[kind])
    real = np.ones([2, 11], bool)
    real[0, 7:] = real[1, :4] = real[1, 6] = False
    weights = [checks.raw(weight) for weight in layer.trainable_weights]

    def output_and_gradients(x):
        x = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = tf.boolean_mask(layer(x, context_mask=real), real)
            loss = tf.reduce_sum(output**2)
        gradients = tape.gradient(loss, [x, *weights])
        return output, gradients[0].numpy(), gradients[1:]

    expected, gradient, ours = output_and_gradients(x)
    assert np.all(gradient[~real] == 0)
    for bad in (1e3 * x, spoilt(x, ~real, rng)):
        changed = np.where(real[..., None], x, bad)
        output, other, theirs = output_and_gradients(changed)
        checks.assert_close(output, expected, 1e-5)
        checks.assert_close(other[real], gradient[real], 1e-5)
        for one, two in zip(ours, theirs, strict=True):
            checks.assert_close(two, one, 1e-5)
    checks.assert_far(layer(1e3 * x)[real], layer(x)[real])


@pytest.mark.parametrize("by_example", [False, True])
def test_nan_reaches_whom_a_mask_permits(by_example, rng):
    x = normal(rng, 2, 11, 5)
    mask = rng.integers(0, 2, [2, 11, 11] if by_example else [11, 11])
    mask = mask.astype(bool)
    mask[..., 3] = False
    mask[..., 1, 6] = True
    layer = built(x, **_SIZE)
    expected = layer(x, attention_mask=mask).numpy()
    bad = spoilt(x, (slice(None), [3, 6]), rng)
    output = layer(bad, attention_mask=mask).numpy()
    sees = np.broadcast_to(mask[..., 6], [2, 11])
    for example in range(2):
        for query in np.delete(np.arange(11), [3, 6]):
            if sees[example, query]:
                assert np.all(np.isnan(output[example, query]))
            else:
                checks.assert_close(
                    output[example, query], expected[example, query], 1e-5
                )


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
    changed[:, now + 1 :] = 100 * normal(rng, 2, 19, 5)
    checks.assert_close(layer(changed)[:, :21], expected[:, :21], 1e-6)
    checks.assert_far(layer(changed)[:, 21:], expected[:, 21:])
    bad = spoilt(x, (slice(None), slice(now + 1, None)), rng)
    checks.assert_close(layer(bad)[:, :21], expected[:, :21], 1e-6)
    assert np.all(np.isnan(layer(bad)[:, 21:]))


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
