"""Sums over positions and examples in half precision: float32 or wider.

Equal numbers are the worst: a sum in bfloat16 stops at 256 times its term.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import ops
from tests.support import checks

# A handful of roundings, one after the other.
TOLERANCE = {"mixed_bfloat16": 2e-2, "mixed_float16": 2.5e-3, "bfloat16": 2e-2}

_SEQUENCE, _MAP, _SHORT = (1, 2499, 2), (1, 50, 51, 2), (1, 301, 2)
_IMAGE = (1, 20, 21, 2)
_SEEN = {"attention_mask": np.ones([301, 301], bool)}


def _row(layer, shape, call=None, **arguments):
    return layer, shape, arguments, call or {}


_SMALL = {"filters": 2, "num_heads": 1, "key_dim": 2}
_lambda = functools.partial(_row, layers.LambdaLayer, **_SMALL)
_conv = functools.partial(_row, layers.LambdaConv, **_SMALL, kernel_size=3)
_attention = functools.partial(_row, layers.RelativeAttention, **_SMALL)
_excite = functools.partial(_row, layers.SqueezeExcite, ratio=1.0)
_norm = functools.partial(_row, layers.BatchNormalization)
ROWS = {
    "global": _lambda(_IMAGE),
    "content": _lambda((1, 65536, 2), use_position=False),
    "l2": _lambda(_MAP, scope=3, key_normalization="l2"),
    "mask": _lambda(_SHORT, _SEEN),
    "causal": _lambda(_SEQUENCE, scope=5, causal=True),
    "conv_strided": _conv(_MAP, strides=2),
    "attention": _attention(_IMAGE),
    "attention_causal": _attention(_SEQUENCE, scope=5, causal=True),
    "embedding": _row(layers.RelativePositionEmbedding, (1, 701, 2), key_dim=2),
    "squeeze_excite": _excite((2, 256, 256, 2)),
    "squeeze_excite_examples": _excite((4099, 3, 2)),
    "batch_normalization": _norm(_MAP),
    "batch_statistics": _norm(_MAP, {"training": True}),
    "dropout": _row(layers.Dropout, _MAP, rate=0.5),
    "stochastic_depth": _row(layers.StochasticDepth, _MAP, rate=0.5),
    **{
        name: _lambda(_MAP, scope=3, implementation=name)
        for name in ops.implementations(2)
        if name not in ("auto", "einsum")
    },
    "einsum": _lambda(_SHORT, implementation="einsum"),
    **{
        name: _lambda(_SEQUENCE, implementation=name)
        for name in ops.implementations(1)
        if name not in ops.implementations(2)
    },
}


def _answers(row, dtype, share=1.0):
    """Weights after a call on equal numbers; output and gradients by name."""
    layer_type, shape, arguments, given = row
    layer = layer_type(**arguments, dtype=dtype)
    x = tf.fill(shape, tf.constant(179 / 256, layer.compute_dtype))
    layer(x, **given)
    # Different from weight to weight, equal within each; exact in half.
    for index, weight in enumerate(layer.weights):
        weight.assign(np.full(weight.shape, 0.25 + index / 16))
    sources = {"inputs": x}
    for index, weight in enumerate(layer.trainable_weights):
        name = weight.name.split("/")[-1]
        sources[f"{index} {name}"] = checks.raw(weight)
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x, **given)
        loss = tf.reduce_sum(tf.cast(output, tf.float64)) * share
    gradients = tape.gradient(loss, sources, unconnected_gradients="zero")
    return layer.get_weights(), {"output": output, **gradients}


def _largest(arrays):
    return max(np.max(np.abs(array)) for array in arrays.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_equal_numbers_add_up(name):
    _, unscaled = _answers(ROWS[name], "float64")
    # In float16 the gradient of a kernel must not overflow.
    share = min(1.0, 2.0 ** np.floor(np.log2(2.0**14 / _largest(unscaled))))
    wide_weights, expected = _answers(ROWS[name], "float64", share)
    # Where the gradients of equal numbers cancel, what counts is the terms.
    largest = _largest(expected)
    for policy, tolerance in TOLERANCE.items():
        weights, found = _answers(ROWS[name], policy, share)
        for source, array in expected.items():
            scale = np.max(np.abs(array))
            scale = largest if scale < 1e-6 * largest else scale
            error = np.max(np.abs(tf.cast(found[source], tf.float64) - array))
            assert error <= tolerance * scale, (policy, source, error / scale)
        checks.assert_each_close(weights, wide_weights, tolerance)


_SOFTMAX = {"filters": 4, "num_heads": 2, "key_dim": 4}
_KEYS = {**_SOFTMAX, "position_embedding": None}
LOGITS = {
    "layer": (layers.LambdaLayer, _SOFTMAX, {}),
    "causal": (layers.LambdaLayer, {**_SOFTMAX, "causal": True}, {}),
    "pairs": (layers.LambdaLayer, _SOFTMAX, {"attention_mask": np.tri(9)}),
    "conv": (layers.LambdaConv, {**_SOFTMAX, "kernel_size": 3}, {}),
    "l2": (layers.LambdaLayer, {**_SOFTMAX, "key_normalization": "l2"}, {}),
    "attention": (layers.RelativeAttention, _KEYS, {}),
}


@pytest.mark.parametrize("name", LOGITS)
def test_large_logits(name, rng):
    """Of ten thousand and more, each a number that has no rounding in half."""
    layer_type, arguments, call = LOGITS[name]
    x = rng.integers(-2, 3, [2, 9, 2]).astype("float32")
    for policy, tolerance in TOLERANCE.items():
        layer = checks.built(x, layer_type, **arguments, dtype=policy)
        signs = rng.choice([-1.0, 1.0], layer.key.kernel.shape)
        layer.key.kernel.assign(4096 * signs)
        layer.query.kernel.assign(np.ones(layer.query.kernel.shape))
        found = layer(x, **call)
        expected = checks.oracle_output(layer, {"inputs": x, **call})
        checks.assert_close(tf.cast(found, tf.float64), expected, tolerance)
