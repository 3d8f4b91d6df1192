"""Models that stream: drawn ones, and a small one of tokens."""

import functools

import numpy as np
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import streaming
from tests.support import checks

KERAS = tf.keras.layers
TOKENS, CHANNELS, LENGTH = 13, 6, 24


def in_pieces(step, state, inputs, pieces):
    """The outputs of all pieces of a sequence, and the last state."""
    assert sum(pieces) == inputs.shape[1]
    outputs, begin = [], 0
    for length in pieces:
        output, state = step(inputs[:, begin : begin + length], state)
        outputs.append(output)
        begin += length
    return tf.concat(outputs, axis=1), state


def mixer(rng, dtype):
    """A layer that reads the past, of a kind and with arguments drawn anew."""
    heads = {"num_heads": int(rng.choice([1, 2, 3])), "dtype": dtype}
    past = {"causal": True, **heads}
    norm = {"use_batch_norm": True}
    odd, dilation = 2 * int(rng.integers(1, 6)) + 1, int(rng.integers(1, 3))
    kind = rng.integers(5)
    if kind == 0:
        drawn = {"intra_depth": int(rng.integers(1, 3)), "scope": odd}
        drawn["key_normalization"] = [None, "l2", "softmax"][rng.integers(3)]
        return layers.LambdaLayer(CHANNELS, key_dim=4, **drawn, **past, **norm)
    norm["key_dim"] = 3
    if kind == 1:
        return layers.LambdaLayer(CHANNELS, use_position=False, **past, **norm)
    if kind == 2:
        past = {"padding": "causal", "dilation_rate": dilation, **heads}
        return layers.LambdaConv(CHANNELS, odd, **past, **norm)
    if kind == 3:
        past = {"padding": "causal", "dilation_rate": dilation, "dtype": dtype}
        size = int(rng.integers(1, 5))
        activation = str(rng.choice(["relu", "tanh"]))
        return KERAS.Conv1D(CHANNELS, size, activation=activation, **past)
    past["num_heads"] = 2
    inner = [  # With a state of its own.
        tf.keras.Input((LENGTH, CHANNELS), dtype=dtype),
        KERAS.Dense(CHANNELS, activation="gelu", dtype=dtype),
        layers.LambdaLayer(key_dim=3, scope=5, **past),
    ]
    return tf.keras.Sequential(inner, name=f"inner{rng.integers(10**9)}")


def norms(dtype):
    """Layers that compute a position from that position alone."""
    return [
        KERAS.LayerNormalization(dtype=dtype),
        layers.BatchNormalization(dtype=dtype),
        KERAS.Dropout(0.3, dtype=dtype),
        KERAS.PReLU(shared_axes=[1], dtype=dtype),
    ]


def draw_model(seed, dtype="float32"):
    """A model of tokens or of a series, the same for every dtype."""
    tf.keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    if rng.integers(2):
        inputs = tf.keras.Input((LENGTH,), dtype="int32")
        x = KERAS.Embedding(TOKENS, CHANNELS, dtype=dtype)(inputs)
    else:
        inputs = tf.keras.Input((LENGTH, 5), dtype=dtype)
        x = KERAS.Dense(CHANNELS, dtype=dtype)(inputs)
    shared = KERAS.Dense(CHANNELS, activation="tanh", dtype=dtype)
    for _ in range(rng.integers(2, 5)):
        before, mix = x, mixer(rng, dtype)
        if rng.integers(2):
            x = norms(dtype)[rng.integers(4)](x)
        x = mix(x)
        if rng.integers(4) == 0:
            x = mix(x)  # Again, with another state.
        joined = rng.integers(4)
        if joined == 1:
            x = 0.5 * x + before
        else:
            kinds = KERAS.Concatenate, None, KERAS.Add, KERAS.Multiply
            x = kinds[joined](dtype=dtype)([x, before])
        if joined == 0:
            x = KERAS.Dense(CHANNELS, dtype=dtype)(x)
        x = shared(x)
    outputs = KERAS.Dense(TOKENS, dtype=dtype)(x)
    model = tf.keras.Model(inputs, outputs)
    for weight in model.weights:  # Statistics and biases, too.
        noise = 0.1 * rng.normal(size=tuple(weight.shape))
        weight.assign(np.asarray(weight) + np.abs(noise))
    return model


def draw_inputs(seed, model, length=LENGTH):
    """Two sequences for a model."""
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
    """A small model of tokens."""
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
