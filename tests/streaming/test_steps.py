"""Whole models by `streaming.step`: equal to the call on the sequence."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import streaming
from tests.support import streams

KERAS = tf.keras.layers
CHANNELS = 6


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
        tf.keras.Input((streams.LENGTH, CHANNELS), dtype=dtype),
        KERAS.Dense(CHANNELS, activation="gelu", dtype=dtype),
        layers.LambdaLayer(key_dim=3, scope=5, **past),
    ]
    return tf.keras.Sequential(inner, name=f"inner{rng.integers(10**9)}")


# Layers that compute a position from that position alone.
NORMS = [
    KERAS.LayerNormalization,
    layers.BatchNormalization,
    functools.partial(KERAS.Dropout, 0.3),
    functools.partial(KERAS.PReLU, shared_axes=[1]),
]


def draw_model(seed, dtype="float32"):
    """A model of tokens or of a series, the same for every dtype."""
    tf.keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    if rng.integers(2):
        inputs = tf.keras.Input((streams.LENGTH,), dtype="int32")
        x = KERAS.Embedding(streams.TOKENS, CHANNELS, dtype=dtype)(inputs)
    else:
        inputs = tf.keras.Input((streams.LENGTH, 5), dtype=dtype)
        x = KERAS.Dense(CHANNELS, dtype=dtype)(inputs)
    shared = KERAS.Dense(CHANNELS, activation="tanh", dtype=dtype)
    for _ in range(rng.integers(2, 5)):
        before, mix = x, mixer(rng, dtype)
        if rng.integers(2):
            x = NORMS[rng.integers(4)](dtype=dtype)(x)
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
    outputs = KERAS.Dense(streams.TOKENS, dtype=dtype)(x)
    model = tf.keras.Model(inputs, outputs)
    for weight in model.weights:  # Statistics and biases, too.
        noise = 0.1 * rng.normal(size=tuple(weight.shape))
        weight.assign(np.asarray(weight) + np.abs(noise))
    return model


_LATER = (pytest.param(x, marks=pytest.mark.slow) for x in range(4, 10))


@pytest.mark.parametrize("seed", [*range(4), *_LATER])
def test_ten_drawn_models_stream_cut_anywhere(seed):
    rng = np.random.default_rng(1000 + seed)
    model, exact = (draw_model(seed, x) for x in ("float32", "float64"))
    exact.set_weights(model.get_weights())
    x = streams.draw_inputs(seed, model)
    cuts = np.sort(rng.choice(np.arange(1, x.shape[1]), 3, replace=False))
    pieces = np.diff([0, *cuts, x.shape[1]]).tolist()
    _, state = streams.assert_streams(model, x, pieces, 2e-6)
    lone = [1, 1, 1, x.shape[1] - 3]
    outputs, _ = streams.assert_streams(exact, x, lone, 1e-13)
    spec = streaming.state_spec(model, batch_size=2)
    tf.nest.assert_same_structure(state, spec)
    for part, tensor in zip(*map(tf.nest.flatten, (spec, state)), strict=True):
        assert part.is_compatible_with(tensor)
    # The state must count, or a model that forgets would pass.
    empty = streaming.initial_state(model, 2)
    fresh, _ = streaming.step(model, x[:, -1:], empty)
    assert not np.allclose(fresh, outputs[:, -1:], atol=1e-4)


def test_a_second_call_and_a_second_layer_have_states_of_their_own():
    first, second = (
        KERAS.Conv1D(4, 2, padding="causal", name=name)
        for name in ("conv1d", "conv1d_1")
    )
    inputs = tf.keras.Input((9, 4))
    grows = tf.keras.Sequential([tf.keras.Input((9, 4)), KERAS.Dense(4)])
    model = tf.keras.Model(inputs, grows(second(first(first(inputs)))))
    x = streams.draw_inputs(0, model, 9)
    for states in (3, 4):
        assert len(streaming.state_spec(model)) == states
        streams.assert_streams(model, x, [2, 3, 4], 2e-6)
        grows.add(KERAS.Conv1D(4, 2, padding="causal"))
    assert len(streaming.state_spec(grows)) == 2
    grows.add(KERAS.GlobalAveragePooling1D(name="mean"))
    for grown in (grows, model):
        with pytest.raises(ValueError, match="'mean' cannot stream"):
            streaming.state_spec(grown)


class Seen(KERAS.Layer):
    def call(self, inputs):
        counts = tf.range(1, tf.shape(inputs)[1] + 1)[:, None]
        return inputs + tf.cumsum(inputs, 1) / tf.cast(counts, inputs.dtype)

    def initial_state(self, batch_size):
        return {"seen": tf.zeros([batch_size, 0, 4])}

    def step(self, inputs, state):
        seen = tf.concat([state["seen"], inputs], axis=1)
        return self(seen)[:, -tf.shape(inputs)[1] :], {"seen": seen}


def test_a_layer_with_a_step_streams(tmp_path):
    inputs = tf.keras.Input((None, 4))
    hidden = KERAS.Dense(4, activation="tanh")(inputs)
    model = tf.keras.Model(inputs, Seen(name="1.own")(hidden))
    (spec,) = tf.nest.flatten(streaming.state_spec(model))
    assert spec.shape[1] is None
    x = streams.draw_inputs(0, model, 9)
    streams.assert_streams(model, x, [2, 3, 4], 2e-6)
    streaming.export(model, tmp_path)
    served = tf.saved_model.load(tmp_path).signatures["step"]
    assert {*served.structured_input_signature[1]} == {"inputs", "state_0"}


class TiedLogits(KERAS.Layer):
    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding

    def call(self, inputs):
        table = tf.convert_to_tensor(self.embedding.embeddings)
        return tf.matmul(inputs, table, transpose_b=True)


def test_functions_between_layers_and_tied_weights():
    """As decoders of today have them: SwiGLU, tied embeddings."""
    silu = getattr(tf.keras.activations, "silu", tf.nn.silu)
    tanh = getattr(tf.keras, "ops", tf.math).tanh
    text = tf.keras.Input((None,), dtype="int32")
    embedding = KERAS.Embedding(13, 8)
    x = embedding(text)
    x = x + layers.LambdaLayer(num_heads=2, scope=5, causal=True)(x)
    x = KERAS.Dense(8)(silu(KERAS.Dense(16)(x)) * KERAS.Dense(16)(x))
    x = TiedLogits(embedding)(0.5 * tanh(x) + 1.0)
    model = tf.keras.Model(text, x)
    streams.assert_streams(model, streams.draw_inputs(0, model), [5, 19], 2e-6)


def test_wrong_models_and_states_are_refused():
    with pytest.raises(ValueError, match="`model` must be a"):
        streaming.state_spec("gpt")
    x = tf.keras.Input((8, 4))
    with pytest.raises(ValueError, match="1 input.* and 2 output"):
        streaming.state_spec(tf.keras.Model(x, [x * 2, x * 3]))
    model, tokens = streams.language_model(), tf.zeros([2, 1], tf.int32)
    state = streaming.initial_state(model, 2)
    for wrong in ({}, {**state, "more": tokens}, None):
        with pytest.raises(ValueError, match="`state` must come from"):
            streaming.step(model, tokens, wrong)


def summed(inputs):
    return tf.cumsum(inputs, axis=1)


TWICE = {"call": lambda self, inputs, context=None: 2 * inputs}
TwiceLayer = type("TwiceLayer", (layers.LambdaLayer,), TWICE)
OWN = {"name": "own"}
LOCAL = {"num_heads": 1, "scope": 3, **OWN}
# What is computed of inputs; where the layer is not called "own", its name.
REFUSED = {
    "not causal": layers.LambdaLayer(4, **LOCAL),
    "same": KERAS.Conv1D(4, 3, padding="same", **OWN),
    "pooling": KERAS.GlobalAveragePooling1D(**OWN),
    "of a convolution": KERAS.Conv1D(
        4, 1, padding="causal", activation=summed, **OWN
    ),
    # No weight has been trained, and zeros have any sum.
    "zeros": lambda x: KERAS.Activation(summed, **OWN)(
        KERAS.Dense(4, kernel_initializer="zeros")(x)
    ),
    "context": lambda x: layers.LambdaLayer(4, causal=True, **LOCAL)(x, 2 * x),
    "mask": lambda x: layers.LambdaLayer(4, causal=True, **LOCAL)(
        x, attention_mask=np.eye(8)
    ),
    "array": lambda x: x + np.ones([8, 4], "float32"),
    "inside": lambda x: tf.keras.Model(x, KERAS.Flatten(**OWN)(x))(x),
    "call": TwiceLayer(4, causal=True, **LOCAL),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_stream_is_refused_by_name(name):
    inputs = tf.keras.Input((8, 4))
    model = tf.keras.Model(inputs, REFUSED[name](inputs))
    layer = r"[\w.]+" if name == "array" else "own"
    with pytest.raises(ValueError, match=f"^Layer '{layer}' cannot stream: "):
        streaming.state_spec(model)
