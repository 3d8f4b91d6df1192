"""Whole models by `streaming.step`: equal to the call on the sequence."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import streaming
from tests.support import checks
from tests.support import streams
from tests.support.pieces import in_pieces

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
    streams.assert_spec(state, spec)
    for name, part in spec.items():
        assert part.name == name
        assert part.shape.is_compatible_with(state[name].shape)
    # The state must count, or a model that forgets would pass.
    fresh, _ = streaming.step(
        model, x[:, -1:], streaming.initial_state(model, 2)
    )
    assert not np.allclose(fresh, outputs[:, -1:], atol=1e-4)


@pytest.mark.slow
def test_a_compiled_step_takes_any_batch_and_length():
    model = streams.language_model(scope=7, dtype="float64")
    specs = tf.TensorSpec([None, None], tf.int32), streaming.state_spec(model)
    step = tf.function(
        lambda x, state: streaming.step(model, x, state), input_signature=specs
    )
    for batch in (1, 3):
        x = np.tile(streams.draw_inputs(0, model, 20)[:1], [batch, 1])
        state = streaming.initial_state(model, tf.constant(batch))
        outputs, state = in_pieces(step, state, x, [9, 1, 1, 9])
        checks.assert_close(outputs, model(x), 1e-13)
    assert step.experimental_get_tracing_count() == 1
    sizes = [part.shape[1:] for part in streaming.state_spec(model).values()]
    assert all(size.is_fully_defined() for size in sizes)


def assert_series_streams(model):
    x = np.random.default_rng(0).normal(size=[2, 9, 4]).astype("float32")
    streams.assert_streams(model, x, [2, 3, 4], 2e-6)


def test_a_second_call_and_a_second_layer_have_states_of_their_own():
    first, second = (
        KERAS.Conv1D(4, 2, padding="causal", name=name)
        for name in ("conv1d", "conv1d_1")
    )
    inputs = tf.keras.Input((9, 4))
    model = tf.keras.Model(inputs, second(first(first(inputs))))
    assert len(streaming.state_spec(model)) == 3
    assert_series_streams(model)


def test_layers_of_ones_own_stream_by_what_they_say():
    @streaming.position_wise
    class Swish(KERAS.Layer):
        def call(self, inputs):
            return inputs * tf.sigmoid(inputs)

    class Total(KERAS.Layer):
        """The sum of all inputs so far."""

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
    assert list(streaming.state_spec(model)) == ["_1_total_sum"]
    assert_series_streams(model)
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
    for wrong in (
        {},
        {**state, "more": tokens},
        streaming.initial_state(model, 3),
    ):
        with pytest.raises(ValueError, match="`state` must come from this"):
            streaming.step(model, tokens, wrong)


# A layer of a model, and why it cannot stream.
CULPRITS = {
    "not causal": (layers.LambdaLayer(4, scope=3), "later.*causal=True"),
    "strides": (
        layers.LambdaConv(4, 3, padding="causal", strides=2),
        "strides=2",
    ),
    "convolution": (KERAS.Conv1D(4, 3), "padding='valid'.*padding='causal'"),
    "pooling": (KERAS.GlobalAveragePooling1D(), "come later.*End the model"),
    "unknown": (
        KERAS.GRU(2, return_sequences=True),
        "whether a GRU.*position_wise",
    ),
    "axis": (KERAS.LayerNormalization(axis=1), "axis=1 .*Use axis=-1"),
    "slopes": (KERAS.PReLU(), "shared_axes"),
    "by position": (KERAS.Rescaling(np.ones([8, 4])), "differ by position"),
}


def sequential(*inner, shape=(8, 4)):
    return tf.keras.Sequential([tf.keras.Input(shape), *inner])


@pytest.mark.parametrize("name", CULPRITS)
def test_a_layer_that_does_not_stream_is_named(name):
    layer, reason = CULPRITS[name]
    reason = f"(?s)'{layer.name}' cannot stream.*{reason}"
    with pytest.raises(ValueError, match=reason):
        streaming.state_spec(sequential(layer))


def called_with(**arguments):
    """A model whose lambda layer is given more than its inputs."""
    inputs = tf.keras.Input((8, 4))
    layer = layers.LambdaLayer(4, num_heads=1, scope=3, causal=True)
    arguments = {k: x(inputs) for k, x in arguments.items()}
    return tf.keras.Model(inputs, layer(inputs, **arguments))


def with_array():
    inputs, array = tf.keras.Input((8, 4)), np.ones([8, 4], "float32")
    return tf.keras.Model(inputs, KERAS.Dense(2)(inputs + array))


def of_two_ranks():
    """Tokens times their embeddings, channels times positions."""
    inputs = tf.keras.Input((4,))
    embedded = KERAS.Embedding(5, 4)(inputs)
    return tf.keras.Model(inputs, KERAS.Multiply()([embedded, inputs]))


def two_outputs():
    inputs = tf.keras.Input((8, 4))
    return tf.keras.Model(inputs, [KERAS.Dense(2)(inputs) for _ in range(2)])


REFUSED = {
    "ranks": (of_two_ranks, "2 and 3 axes"),
    "no channels": (lambda: sequential(KERAS.Dense(3), shape=(8,)), "2 axes"),
    "inside": (lambda: sequential(sequential(KERAS.Flatten())), "come later"),
    "context": (lambda: called_with(context=KERAS.Dense(4)), "with context"),
    "training": (
        lambda: called_with(training=lambda _: True),
        "training=True",
    ),
    "an array added": (with_array, "array of numbers"),
    "images": (
        lambda: sequential(KERAS.Dense(3), shape=(4, 4, 3)),
        "its inputs have the shape",
    ),
    "outputs": (two_outputs, "it has 2 outputs"),
}


@pytest.mark.representatives(len(REFUSED), everywhere=True)
@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_stream_is_refused(name):
    make, reason = REFUSED[name]
    with pytest.raises(ValueError, match=f"(?s)cannot stream: .*{reason}"):
        streaming.state_spec(make())
