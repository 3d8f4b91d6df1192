"""Causal attention by `step`: equal to the call on the whole sequence."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from tests.support import checks
from tests.support.pieces import in_pieces

CHANNELS, LENGTH = 5, 21

ARGUMENTS = {
    "window": {"scope": 7},
    "joint window": {"scope": 9, "position_embedding": "joint"},
    "window without positions": {"scope": 5, "position_embedding": None},
    "window without content": {"scope": 5, "use_content": False},
    "itself alone": {"scope": 1},
    "cache": {},
    "joint cache": {"position_embedding": "joint"},
    "cache without positions": {"position_embedding": None},
    "cache without content": {"use_content": False},
    "along the axis": {"axis": 1},
}
every_layer = pytest.mark.parametrize("name", ARGUMENTS)


def make(name, dtype="float32", seed=0):
    layer = layers.RelativeAttention(
        6, num_heads=2, key_dim=4, causal=True, dtype=dtype, **ARGUMENTS[name]
    )
    layer.build((None, LENGTH, CHANNELS))
    checks.randomize(layer, np.random.default_rng(seed))
    return layer


def normal(rng, *shape, dtype="float32"):
    return rng.normal(size=shape).astype(dtype)


def streamed(layer, x, pieces, step=None):
    state = layer.initial_state(len(x))
    return in_pieces(step or layer.step, state, x, pieces)


@every_layer
def test_every_position_equals_the_reference(name, rng):
    layer = make(name, "float64")
    x = normal(rng, 2, LENGTH, CHANNELS, dtype="float64")
    expected = checks.oracle_output(layer, {"inputs": x})
    outputs, _ = streamed(layer, x, [1] * LENGTH)
    checks.assert_close(outputs, expected, 1e-11)
    if name != "itself alone":
        fresh, _ = layer.step(x[:, -1:], layer.initial_state(2))
        checks.assert_far(fresh, expected[:, -1:])


@pytest.mark.once
@every_layer
@pytest.mark.parametrize("pieces", [[LENGTH], [8, 1, 12], [1, 19, 1]])
def test_pieces_equal_the_whole_with_padding_and_nan(name, pieces, rng):
    layer = make(name, "float64")
    x = normal(rng, 2, LENGTH, CHANNELS, dtype="float64")
    mask = rng.random(x.shape[:2]) < 0.7
    mask[1, 6] = True
    x[~mask] = np.inf
    x[1, 6] = np.nan
    expected = layer(x, context_mask=mask)

    def step(part, state):
        x, real = part[..., :-1], part[..., -1] > 0
        return layer.step(x, state, mask=real)

    both = np.concatenate([x, mask[..., None]], axis=-1)
    outputs, _ = streamed(layer, both, pieces, step)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(outputs), nan)
    assert not nan[0].all()
    checks.assert_close(outputs[~nan], expected[~nan], 1e-12)


@every_layer
def test_unknown_sizes_are_traced_once(name, rng):
    layer, traces = make(name), []

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, CHANNELS]),
            layer.state_spec(),
        ]
    )
    def step(inputs, state):
        traces.append(1)
        return layer.step(inputs, state)

    x = normal(rng, 3, LENGTH, CHANNELS)
    outputs, state = streamed(layer, x, [9, 1, 11], step)
    checks.assert_close(outputs, layer(x), 2e-6)
    assert len(traces) == 1
    spec = layer.state_spec(3)
    assert {k: v.dtype for k, v in state.items()} == {
        k: v.dtype for k, v in spec.items()
    }
    past = ARGUMENTS[name].get("scope", 2 * LENGTH + 1) // 2
    assert all(part.shape[1] == past for part in state.values())


@pytest.mark.parametrize("name", ["cache", "joint cache"])
def test_a_stream_longer_than_the_table_is_refused(name):
    layer = make(name)
    assert layer.max_positions == LENGTH
    x = tf.zeros([1, LENGTH, CHANNELS])
    _, state = layer.step(x, layer.initial_state(1))
    with pytest.raises(ValueError, match="21 positions.*resize_embeddings"):
        layer.step(x[:, :1], state)
    spec = tf.TensorSpec([1, None, CHANNELS])
    step = tf.function(layer.step, input_signature=[spec, layer.state_spec(1)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="21 positions"):
        step(x[:, :1], state)


def test_what_cannot_stream_is_refused():
    layer = layers.RelativeAttention(6, num_heads=2)
    with pytest.raises(ValueError, match="before it is built"):
        layer.initial_state(1)
    layer.build((None, LENGTH, CHANNELS))
    with pytest.raises(ValueError, match="needs causal=True"):
        layer.state_spec()
    lines = layers.RelativeAttention(6, num_heads=2, axis=2, causal=True)
    lines.build((None, 4, LENGTH, CHANNELS))
    with pytest.raises(ValueError, match="Streams are sequences"):
        lines.state_spec()
    layer, x = make("window"), tf.zeros([2, 1, CHANNELS])
    for wrong in ({}, layer.initial_state(3), make("cache").initial_state(2)):
        with pytest.raises(ValueError, match="`state` must come from"):
            layer.step(x, wrong)
    with pytest.raises(ValueError, match="`inputs` must have the shape"):
        layer.step(tf.zeros([2, 1, 3]), layer.initial_state(2))
