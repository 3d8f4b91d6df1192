"""Padding: NaN and infinity there give what zeros do, and reach no gradient."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from tests.support import checks
from tests.support.checks import built
from tests.support.checks import normal

LENGTH, CHANNELS = 11, 5
REAL = np.ones([3, LENGTH], bool)
REAL[0, 7:] = REAL[1, :2] = REAL[1, 5] = False
REAL[2] = False  # an example without any position

_SMALL = {"filters": 6, "num_heads": 2, "key_dim": 3}


def _row(layer, masks, has_context=False, **arguments):
    """A layer, the masks of its call, whether it has a context, arguments."""
    return layer, masks, has_context, {**_SMALL, **arguments}


_lambda = functools.partial(_row, LambdaLayer)
_conv = functools.partial(_row, LambdaConv, {"mask": REAL}, kernel_size=3)
_attention = functools.partial(_row, RelativeAttention)
_CONTEXT, _KERAS = {"context_mask": REAL}, {"mask": REAL}
_BOTH = {"attention_mask": REAL[:, None].repeat(LENGTH, 1), **_CONTEXT}
_PAST = {"padding": "causal", "dilation_rate": 2}
_BIAS = {"use_position_bias": True}
ROWS = {
    "layer": _lambda(_CONTEXT),
    "layer_both": _lambda(_BOTH, num_heads=6, query_normalization="softmax"),
    "layer_l2": _lambda(_CONTEXT, key_normalization="l2"),
    "layer_sums": _lambda(_BOTH, key_normalization=None),
    "bias": _lambda(_CONTEXT, scope=3, **_BIAS),
    "causal": _lambda(_CONTEXT, causal=True, scope=5, use_batch_norm=True),
    "causal_both": _lambda(_BOTH, causal=True),
    "causal_l2": _lambda(_KERAS, causal=True, key_normalization="l2"),
    "context": _lambda(_CONTEXT, True, use_position=False),
    "conv_valid": _conv(padding="valid", **_BIAS),
    "conv_strided": _conv(strides=2),
    "conv_causal": _conv(**_PAST, use_batch_norm=True),
    "attention": _attention(_CONTEXT),
    "attention_axis": _attention(_CONTEXT, axis=1, scope=5),
    "attention_causal": _attention(_CONTEXT, causal=True, scope=5),
    "attention_context": _attention(_CONTEXT, True, position_embedding=None),
}


def _call(layer, masks, data, training):
    """The output, gradients of what is real, and weights after the call."""
    tensors = {name: tf.constant(x, tf.float32) for name, x in data.items()}
    real = np.ones_like(REAL) if "context" in data else REAL
    if isinstance(layer, LambdaConv):
        real = layer.compute_mask(tensors["inputs"], tf.constant(REAL))
    weights = map(checks.raw, layer.trainable_weights)
    before = layer.get_weights()
    with tf.GradientTape() as tape:
        tape.watch(list(tensors.values()))
        output = layer(**tensors, **masks, training=training)
        counted = tf.boolean_mask(output, real)
        loss = tf.reduce_sum(counted**2)
    sources = tensors | {str(i): weight for i, weight in enumerate(weights)}
    gradients = tape.gradient(loss, sources, unconnected_gradients="zero")
    after = layer.get_weights()
    layer.set_weights(before)
    return output.numpy(), counted, gradients, after


# In inference each position is normalized by itself, whatever the mask; in
# training statistics may leak, too.
@pytest.mark.parametrize(
    ("name", "training"),
    [
        *((name, True) for name in ROWS),
        *((x, False) for x in ("layer_both", "causal", "conv_valid")),
    ],
)
def test_padding_stays_padding(name, training):
    layer_type, masks, has_context, arguments = ROWS[name]
    rng = np.random.default_rng(0)
    data = {"inputs": normal(rng, 3, LENGTH, CHANNELS)}
    if has_context:
        data["context"] = normal(rng, 3, LENGTH, CHANNELS)
    padded = [*data][-1]
    data[padded][~REAL] = 0
    numbers = rng.choice([np.nan, np.inf, -np.inf, 1e3], data[padded].shape)
    bad = {**data, padded: np.where(REAL[..., None], data[padded], numbers)}
    call = {**data, **masks}
    layer = built(call.pop("inputs"), layer_type, **arguments, call=call)
    _, expected, gradients, averages = _call(layer, masks, data, training)
    output, counted, ours, moved = _call(layer, masks, bad, training)
    checks.assert_close(counted, expected, 1e-5)
    assert np.all(np.isfinite(output))
    for source, gradient in gradients.items():
        assert np.any(gradient != 0), source
        ours_there = np.array(ours[source])
        assert np.all(np.isfinite(ours_there)), source
        gradient = np.array(gradient)
        if source == padded:
            assert np.all(ours_there[~REAL] == 0)
            # Zeros may count in the statistics of a batch.
            gradient[~REAL] = 0
        checks.assert_close(ours_there, gradient, 2e-5)
    checks.assert_each_close(moved, averages, 1e-5)


def test_gradients_of_a_blank_example_are_bounded(rng):
    # Keys of no length cannot be normalized to unit length.
    x = normal(rng, 2, LENGTH, CHANNELS)
    x[1] = 0
    layer = LambdaLayer(**_SMALL, scope=3, key_normalization="l2")
    layer.build(x.shape)
    _, gradients = checks.output_and_gradients(layer, {"inputs": x}, 1.0)
    assert np.max(np.abs(gradients["inputs"])) < 100
    for gradient in gradients.values():
        assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("layer_type", [LambdaLayer, RelativeAttention])
def test_one_mask_for_all_queries_needs_no_static_sizes(layer_type, rng):
    x = normal(rng, 2, 5, 4)
    layer = built(x, layer_type, **_SMALL, scope=3, causal=True)
    inputs, mask = tf.keras.Input([None, 4]), tf.keras.Input([1, None])
    model = tf.keras.Model([inputs, mask], layer(inputs, attention_mask=mask))
    real = normal(rng, 2, 1, 5) > 0
    output = model([tf.constant(x), tf.constant(real, tf.float32)])
    checks.assert_close(output, layer(x, attention_mask=real), 1e-5)
    one, both = real[:1, 0], real[[0, 0], 0]
    checks.assert_close(layer(x, mask=one), layer(x, mask=both), 1e-6)
