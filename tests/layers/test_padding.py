"""Whatever stands at padding reaches no output and no gradient.

Every way to say what is padding, in every layer that takes one: NaN and
infinity there change nothing of what zeros there give.
"""

import functools
import typing

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from tests.support import checks
from tests.support.random_layers import built

LENGTH, CHANNELS = 11, 5
REAL = np.ones([3, LENGTH], bool)
REAL[0, 7:] = REAL[1, :2] = REAL[1, 5] = False
REAL[2] = False  # an example without any position
PAIRS = REAL[:, :, None] & REAL[:, None]
COLUMNS = np.broadcast_to(REAL[:, None], PAIRS.shape)

_SMALL = {"filters": 6, "num_heads": 2, "key_dim": 3}


class Row(typing.NamedTuple):
    """A layer, the masks of its call, its arguments, whether a context."""

    layer: type
    masks: dict
    arguments: dict
    context: bool


def _row(layer, masks, context=False, **arguments):
    return Row(layer, masks, {**_SMALL, **arguments}, context)


_lambda = functools.partial(_row, LambdaLayer)
_conv = functools.partial(_row, LambdaConv, {"mask": REAL}, kernel_size=3)
_attention = functools.partial(_row, RelativeAttention)
_CONTEXT, _KERAS = {"context_mask": REAL}, {"mask": REAL}
_QUERIES, _ALONE = {"attention_mask": PAIRS}, {"attention_mask": COLUMNS}
_BOTH = {**_ALONE, **_CONTEXT}
_PAST = {"padding": "causal", "dilation_rate": 2}
ROWS = {
    "layer": _lambda(_CONTEXT),
    "layer_pairs": _lambda(_QUERIES, scope=3),
    "layer_both": _lambda(_BOTH, num_heads=6, query_normalization="softmax"),
    "layer_l2_columns": _lambda(_ALONE, key_normalization="l2"),
    "layer_sums": _lambda(_BOTH, key_normalization=None),
    "multi_head": _lambda(
        _CONTEXT, scope=3, multi_head=True, use_position_bias=True
    ),
    "causal": _lambda(_CONTEXT, causal=True, scope=5, use_batch_norm=True),
    "causal_l2": _lambda(_KERAS, causal=True, key_normalization="l2"),
    "context": _lambda(_CONTEXT, use_position=False, context=True),
    "conv_valid": _conv(padding="valid", use_position_bias=True),
    "conv_strided": _conv(strides=2),
    "conv_causal": _conv(**_PAST, use_batch_norm=True),
    "attention": _attention(_CONTEXT),
    "attention_axis": _attention(_CONTEXT, axis=1, scope=5),
    "attention_causal": _attention(_CONTEXT, causal=True, scope=5),
    "attention_context": _attention(
        _CONTEXT, position_embedding=None, context=True
    ),
}


def _data(row):
    """Inputs by name with zeros at padding, and which of them is padded."""
    rng = np.random.default_rng(0)
    names = ["inputs", "context"] if row.context else ["inputs"]
    data = {name: rng.normal(size=[3, LENGTH, CHANNELS]) for name in names}
    data[names[-1]][~REAL] = 0
    return data, names[-1]


def _bad(data, padded):
    bad, rng = data[padded].copy(), np.random.default_rng(1)
    numbers = [np.nan, np.inf, -np.inf, 1e3]
    bad[~REAL] = rng.choice(numbers, bad[~REAL].shape)
    return {**data, padded: bad}


def _tensors(data):
    return {name: tf.constant(x, tf.float32) for name, x in data.items()}


def _call(row, layer, data, training):
    """The output, gradients of what is real, and weights after the call."""
    tensors = _tensors(data)
    real = np.ones_like(REAL) if row.context else REAL
    if row.layer is LambdaConv:
        real = layer.compute_mask(tensors["inputs"], tf.constant(REAL))
    weights = map(checks.raw, layer.trainable_weights)
    before = layer.get_weights()
    with tf.GradientTape() as tape:
        tape.watch(list(tensors.values()))
        output = layer(**tensors, **row.masks, training=training)
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
        *(
            pytest.param(name, False, marks=pytest.mark.once)
            for name in ("layer_pairs", "causal", "conv_valid", "attention")
        ),
    ],
)
def test_padding_stays_padding(name, training):
    row = ROWS[name]
    data, padded = _data(row)
    tensors = _tensors(data)
    inputs, call = tensors.pop("inputs"), {**tensors, **row.masks}
    layer = built(inputs, row.layer, **row.arguments, call=call)
    _, expected, gradients, averages = _call(row, layer, data, training)
    bad = _bad(data, padded)
    output, counted, ours, moved = _call(row, layer, bad, training)
    checks.assert_close(counted, expected, 1e-5)
    # Not at queries of which nothing says that they are padding.
    if row.context or [*row.masks] != ["attention_mask"]:
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
    for one, other in zip(averages, moved, strict=True):
        checks.assert_close(other, one, 1e-5)
