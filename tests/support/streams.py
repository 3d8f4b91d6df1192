"""Streams compared with whole calls, and a small model of tokens."""

import functools

import numpy as np
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import streaming
from tests.support import checks

KERAS = tf.keras.layers
TOKENS, LENGTH = 13, 24


def in_pieces(step, state, inputs, pieces):
    assert sum(pieces) == inputs.shape[1]
    outputs, begin = [], 0
    for length in pieces:
        output, state = step(inputs[:, begin : begin + length], state)
        outputs.append(output)
        begin += length
    return tf.concat(outputs, axis=1), state


def draw_inputs(seed, model, length=LENGTH):
    rng = np.random.default_rng(seed)
    shape = (2, length, *model.inputs[0].shape[2:])
    if len(shape) == 2:
        return rng.integers(0, TOKENS, shape).astype("int32")
    return rng.normal(size=shape).astype("float64")


def assert_streams(model, inputs, pieces, tolerance):
    """Compares a stream with the call on the whole; returns both ends."""
    step = functools.partial(streaming.step, model)
    state = streaming.initial_state(model, inputs.shape[0])
    outputs, state = in_pieces(step, state, inputs, pieces)
    checks.assert_close(outputs, model(inputs), tolerance)
    return outputs, state


def language_model(length=None, activation=None, dtype=None):
    tf.keras.utils.set_random_seed(7)
    tokens = tf.keras.Input((length,), dtype="int32")
    x = KERAS.Embedding(TOKENS, 8, dtype=dtype)(tokens)
    past = {"num_heads": 2, "causal": True, "dtype": dtype}
    mixed = layers.LambdaLayer(8, key_dim=3, scope=5, name="mixer", **past)(x)
    x = KERAS.Add(dtype=dtype)([x, mixed])
    x = KERAS.LayerNormalization(dtype=dtype)(x)
    logits = KERAS.Dense(TOKENS, activation=activation, dtype=dtype)(x)
    model = tf.keras.Model(tokens, logits)
    # Far from uniform, so that a greedy choice is no matter of rounding.
    model.set_weights([4 * weight for weight in model.get_weights()])
    return model
