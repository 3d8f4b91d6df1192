"""Causal layers by `step`: equal to the call on the whole sequence."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from tests.support import checks
from tests.support.streams import in_pieces

_SIZE = {"filters": 4, "num_heads": 2, "key_dim": 3}
CHANNELS, LENGTH = 5, 20

_PAST = {"kernel_size": 3, "padding": "causal"}
_L2 = {"intra_depth": 2, "key_normalization": "l2"}
LAYERS = {
    "layer": (LambdaLayer, {"scope": 7}),
    "content": (LambdaLayer, {"use_position": False}),
    "l2": (LambdaLayer, {"scope": 3, **_L2}),
    "dilated": (LambdaConv, {**_PAST, "dilation_rate": 3}),
    "strided": (LambdaConv, {**_PAST, "strides": 2}),
}


def make(name, **arguments):
    layer_type, own = LAYERS[name]
    past = {} if layer_type is LambdaConv else {"causal": True}
    layer = layer_type(**{**_SIZE, **past, **own, **arguments})
    layer.build((None, None, CHANNELS))
    checks.randomize(layer, np.random.default_rng(0))
    return layer


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_every_position_equals_the_reference(name, rng):
    layer = make(name, dtype="float64")
    x = rng.normal(size=[2, LENGTH, CHANNELS])
    mask = rng.random(x.shape[:2]) < 0.7
    least = LAYERS[name][1].get("strides", 1)
    pieces = [least] * 5 + [8] + [least] * ((LENGTH - 8) // least - 5)
    empty = layer.initial_state(2)
    outputs, _ = in_pieces(layer.step, empty, x, pieces)
    expected = checks.oracle_output(layer, {"inputs": x})
    checks.assert_close(outputs, expected, 1e-11)
    # The state must count, or a layer that forgets would pass.
    fresh, _ = layer.step(x[:, -least:], empty)
    checks.assert_far(fresh, expected[:, -1:])

    def masked_step(part, state):
        return layer.step(part[..., :-1], state, mask=part[..., -1] > 0)

    x[~mask] = np.inf
    both = np.concatenate([x, mask[..., None]], axis=-1)
    outputs, _ = in_pieces(masked_step, empty, both, pieces)
    x[~mask] = 0
    expected = checks.oracle_output(layer, {"inputs": x, "context_mask": mask})
    checks.assert_close(outputs, expected, 1e-11)


@pytest.mark.slow
def test_a_long_stream_in_single_precision(rng):
    layer, exact = make("layer"), make("layer", dtype="float64")
    layer.key.kernel.assign(300 * checks.raw(layer.key.kernel))
    exact.set_weights(layer.get_weights())
    x = rng.normal(size=[1, 1200, CHANNELS]).astype("float32")
    step, state = tf.function(layer.step), layer.initial_state(1)
    outputs, _ = in_pieces(step, state, x, [1] * 200 + [500] * 2)
    expected = exact(x.astype("float64"))
    # As far away as the whole call in single precision is, not farther:
    # logits of hundreds lose digits before their exponential.
    error = np.max(np.abs(np.asarray(layer(x), "float64") - expected))
    tolerance = max(3 * error / np.max(np.abs(expected)), 1e-5)
    assert tolerance < 1e-3
    checks.assert_close(outputs, expected, tolerance)


def test_what_cannot_stream_is_refused():
    for arguments, reason in (
        ({"scope": 7}, "causal=True"),
        ({"causal": True}, "would grow"),
        ({"causal": True, "position_embedding": "explicit"}, "explicit"),
    ):
        layer = LambdaLayer(**_SIZE, **arguments)
        layer.build((None, 11, CHANNELS))
        with pytest.raises(ValueError, match=reason):
            layer.initial_state(2)


def test_wrong_states_are_refused():
    layer, inputs = make("layer"), tf.ones([2, 1, CHANNELS])
    state = layer.initial_state(2)
    for wrong in (inputs[0], inputs[:, :0]):
        with pytest.raises(ValueError, match="`inputs`"):
            layer.step(wrong, state)
    others = make("layer", scope=9).initial_state(2)
    for wrong in ({}, layer.initial_state(3), others, None):
        with pytest.raises(ValueError, match="`state`"):
            layer.step(inputs, wrong)
    layer = make("strided")
    with pytest.raises(ValueError, match="multiple of `strides`"):
        layer.step(inputs, layer.initial_state(2))
