"""Whole models by `streaming.step`: equal to the call on the sequence."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import streaming
from tests.support import streams

KERAS = tf.keras.layers


# The seed is the number in a test's name: `draw_model(seed)` draws it again.
@pytest.mark.filterwarnings("ignore:.*destroy the mask")
@pytest.mark.representatives(4)
@pytest.mark.parametrize("seed", range(10))
def test_ten_drawn_models_stream_cut_anywhere(seed):
    rng = np.random.default_rng(1000 + seed)
    model, exact = (
        streams.draw_model(seed, dtype) for dtype in ("float32", "float64")
    )
    exact.set_weights(model.get_weights())
    x = streams.draw_inputs(seed, model)
    cuts = np.sort(rng.choice(np.arange(1, x.shape[1]), 3, replace=False))
    pieces = np.diff([0, *cuts, x.shape[1]]).tolist()
    _, state = streams.assert_streams(model, x, pieces, 2e-6)
    lone = [1, 1, 1, x.shape[1] - 3]
    outputs, _ = streams.assert_streams(exact, x, lone, 1e-13)
    spec = streaming.state_spec(model, batch_size=2)
    assert state.keys() == spec.keys()
    for name, part in spec.items():
        assert part.name == name
        assert part.is_compatible_with(state[name])
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


def test_layers_of_ones_own_stream_by_what_they_say():
    @streaming.position_wise
    class Swish(KERAS.Layer):
        def call(self, inputs):
            return inputs * tf.sigmoid(inputs)

    class Total(KERAS.Layer):  # of all inputs so far
        def call(self, inputs):
            return tf.cumsum(inputs, axis=1)

        def state_spec(self, batch_size=None):
            return {"sum": tf.TensorSpec([batch_size, 1, 4], name="sum")}

        def initial_state(self, batch_size):
            return {"sum": tf.zeros([batch_size, 1, 4])}

        def step(self, inputs, state, mask=None):
            sums = state["sum"] + tf.cumsum(inputs, axis=1)
            return sums, {"sum": sums[:, -1:]}

    inputs = tf.keras.Input((None, 4))
    model = tf.keras.Model(inputs, Total(name="1.total")(Swish()(inputs)))
    assert list(streaming.state_spec(model)) == ["layer1_total_sum"]
    x = streams.draw_inputs(0, model, 9)
    streams.assert_streams(model, x, [2, 3, 4], 2e-6)
    x, state = model.outputs[0], streaming.initial_state(model, 2)
    wide = tf.keras.Model(inputs, KERAS.Dropout(0.1, dtype="float64")(x))
    outputs, _ = streaming.step(wide, tf.zeros([2, 3, 4]), state)
    assert outputs.dtype == tf.float64
    with pytest.raises(ValueError, match="`layer_type` must be a class"):
        streaming.position_wise(Swish())


def test_wrong_pieces_and_states_are_refused():
    with pytest.raises(ValueError, match="`model` must be a model of"):
        streaming.state_spec("gpt")
    model, tokens = streams.language_model(), tf.zeros([2, 1], tf.int32)
    state = streaming.initial_state(model, 2)
    for shape in ((2,), (2, 0), (2, 3, 1)):
        with pytest.raises(ValueError, match="`inputs` must have the shape"):
            streaming.step(model, tf.zeros(shape, tf.int32), state)
    larger = streaming.initial_state(model, 3)
    for wrong in ({}, {**state, "more": tokens}, larger, None):
        with pytest.raises(ValueError, match="`state` must come from this"):
            streaming.step(model, tokens, wrong)


def lambdas(inputs, **arguments):
    layer = layers.LambdaLayer(4, num_heads=1, scope=3, causal=True)
    return layer(inputs, **arguments)


def summed(inputs):
    return tf.cumsum(inputs, axis=1)


TWICE = {"call": lambda self, inputs, context=None: 2 * inputs}
TwiceLayer = type("TwiceLayer", (layers.LambdaLayer,), TWICE)
TwiceModel = type("TwiceModel", (tf.keras.Model,), TWICE)
# What is computed of inputs, why it cannot stream, and a shape but (8, 4).
REFUSED = {
    "not causal": (layers.LambdaLayer(4, scope=3), "later.*causal=True"),
    "step": (layers.LambdaConv(4, 3, padding="causal", strides=2), "strides=2"),
    "convolution": (KERAS.Conv1D(4, 3), "padding='valid'.*padding='causal'"),
    "pooling": (KERAS.GlobalAveragePooling1D(), "come later.*End the model"),
    "unknown": (KERAS.GRU(2, return_sequences=True), "GRU.*position_wise"),
    "axis": (KERAS.LayerNormalization(axis=1), "axis=1 .*Use axis=-1"),
    "slopes": (KERAS.PReLU(), "shared_axes"),
    "norm": (KERAS.Dense(4, tf.nn.l2_normalize), "activation.*other positions"),
    "sum": (KERAS.Conv1D(4, 1, padding="causal", activation=summed), "other p"),
    "inner axis": (KERAS.Activation(KERAS.Softmax(1)), "activation.*axis=1"),
    "inner slopes": (KERAS.Dense(4, KERAS.PReLU()), "activation.*shared_axes"),
    "by position": (KERAS.Rescaling(np.ones([8, 4])), "differ by position"),
    "context": (lambda x: lambdas(x, context=2 * x), "with context"),
    "training": (lambda x: lambdas(x, training=True), "training=True"),
    "an array": (lambda x: x + np.ones([8, 4], "float32"), "array of numbers"),
    "outputs": (lambda x: [x * 2, x * 3], "it has 2 outputs"),
    "inside": (lambda x: tf.keras.Model(x, KERAS.Flatten()(x))(x), "later"),
    "ranks": (lambda x: KERAS.Embedding(5, 4)(x) * x, "2 and 3 axes", 4),
    "no channels": (KERAS.Dense(3), "2 axes", 8),
    "call": (TwiceLayer(4, scope=3, causal=True), "has a `call` of its own"),
    "model": (lambda x: TwiceModel(x, lambdas(x))(x), "a TwiceModel sees"),
    "images": (lambda x: x * 2, "its inputs have the shape", 4, 4, 3),
}


@pytest.mark.representatives(len(REFUSED), everywhere=True)
@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_stream_is_refused_by_name(name):
    function, reason, *shape = REFUSED[name]
    inputs = tf.keras.Input(shape or (8, 4))
    model = tf.keras.Model(inputs, function(inputs))
    message = f"(?s){getattr(function, 'name', '')}' cannot stream.*{reason}"
    with pytest.raises(ValueError, match=message):
        streaming.state_spec(model)
