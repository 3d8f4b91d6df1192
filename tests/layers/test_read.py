"""What a query read: weights of values that are the layer's outputs."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from tests.support import checks

_SMALL = {"num_heads": 2, "key_dim": 3, "dtype": "float64"}
_LINE, _MAP = (7, 5), (5, 4, 6)

layer = functools.partial(layers.LambdaLayer, 8, **_SMALL)
conv = functools.partial(layers.LambdaConv, 8, 3, strides=2, **_SMALL)
attention = functools.partial(layers.RelativeAttention, 8, **_SMALL)
_PADDING = {"mask": (2, 7)}
_PAIRS, _CONTEXT = {"attention_mask": (2, 7, 7)}, {"context": (2, 4, 3)}
_GIVEN = {"embeddings": (7, 7, 3, 2), "attention_mask": (2, 7, 7)}
_EXPLICIT = {"position_embedding": "explicit", "intra_depth": 2}

# What is read: a layer, the shape of its inputs, and of what a call is given.
CASES = {
    "local": (layer(scope=3), _MAP, {}),
    "global": (layer(intra_depth=3), _MAP, {}),
    "content": (layer(use_position=False), _MAP, {}),
    "causal": (layer(scope=5, causal=True, use_batch_norm=True), _LINE, {}),
    "bias": (layer(use_position_bias=True), _MAP, {}),
    "l2": (layer(key_normalization="l2"), _MAP, {}),
    "pairs": (layer(scope=3), _LINE, _PAIRS),
    "context": (layer(use_position=False), _LINE, _CONTEXT),
    "explicit": (layer(**_EXPLICIT), _LINE, _GIVEN),
    "conv_valid": (conv(padding="valid"), (7, 6, 4), {}),
    "conv_causal": (conv(padding="causal"), _LINE, _PADDING),
}


def call_of(case, rng):
    made, shape, given = case
    made = type(made).from_config(made.get_config())
    inputs = rng.normal(size=(2, *shape))
    arguments = {name: rng.normal(size=size) for name, size in given.items()}
    for name in {"mask", "attention_mask"} & {*arguments}:
        arguments[name] = arguments[name] < 0.3
    made(inputs, **arguments)
    checks.randomize(made, rng)
    return made, inputs, arguments


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_weights_of_values_are_the_outputs(name, rng):
    made, inputs, arguments = call_of(CASES[name], rng)
    expected = made(inputs, **arguments)
    reading = made.read(inputs, **arguments)
    found = tf.reshape(reading.outputs(), expected.shape)
    checks.assert_close(found, expected, 1e-12)
    context = arguments.get("context", inputs)
    assert reading.content.shape[3:-1] == context.shape[1:-1]
    assert reading.position.shape == reading.content.shape
    last = reading.places[-1]
    one = made.read(inputs, last if len(last) > 1 else last[0], **arguments)
    assert one.places == (last,)
    wanted = np.asarray(expected)[(slice(None), *last)]
    checks.assert_close(one.outputs()[:, 0], wanted, 1e-12)


def test_positions(rng):
    made, inputs, _ = call_of(CASES["local"], rng)
    some = made.read(inputs, [(1, 2), (4, 0)])
    assert some.places == ((1, 2), (4, 0))
    wanted = made(inputs)[:, 4, 0]
    checks.assert_close(some.outputs()[:, 1], wanted, 1e-12)
    for wrong in (2, (5, 0), (-1, 0), (1, 2, 3), [], (0.0, 1.0), [(0,)]):
        with pytest.raises(ValueError, match="`position` must be one index"):
            made.read(inputs, wrong)
    with pytest.raises(ValueError, match="'.* was built for"):
        made.read(inputs[:, 0])


ATTENTION = {
    "global": (attention(), _MAP, {}),
    "joint": (attention(scope=3, position_embedding="joint"), _MAP, {}),
    "causal": (attention(causal=True), _LINE, _PADDING),
    "context": (attention(position_embedding=None), _LINE, _CONTEXT),
    "height": (attention(axis=1), _MAP, {}),
    "width": (attention(axis=2, scope=3), _MAP, {}),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_returns_its_scores(name, rng):
    made, inputs, given = call_of(ATTENTION[name], rng)
    expected = made(inputs, **given)
    outputs, scores = made(inputs, return_attention_scores=True, **given)
    checks.assert_close(outputs, expected, 1e-12)
    context = given.get("context", inputs)
    values = tf.reshape(made.value(context), [*context.shape[:-1], 2, 4])
    equation = {"height": "bwhnm,bmwhv->bnwhv", "width": "bghnm,bgmhv->bgnhv"}
    if name not in equation:
        values = tf.reshape(values, [2, -1, 2, 4])
    applied = tf.einsum(equation.get(name, "bhnm,bmhv->bnhv"), scores, values)
    applied = tf.reshape(applied, expected.shape)
    checks.assert_close(applied, expected, 1e-12)
    sums = np.asarray(tf.reduce_sum(scores, -1))
    np.testing.assert_allclose(sums[sums > 0], 1.0, rtol=1e-12)
