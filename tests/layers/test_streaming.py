"""Causal layers by `step`: equal to the call on the whole sequence."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from lambdanet_tf import layers
from lambdanet_tf import ops
from tests.support import checks
from tests.support.pieces import in_pieces
from tests.support.streams import assert_spec

_SIZE = {"filters": 4, "num_heads": 2, "key_dim": 3}
CHANNELS, LENGTH = 5, 21

LAMBDAS = {
    "layer": {"scope": 7},
    "content": {"use_position": False},
    "position": {"scope": 5, "use_content": False},
    "multi_head_l2": {
        "scope": 3,
        "multi_head": True,
        "intra_depth": 2,
        "key_normalization": "l2",
    },
}
CONVOLUTION = {"kernel_size": 3, "padding": "causal", "dilation_rate": 3}
ATTENTION = {
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
LAYERS = {
    **{name: (layers.LambdaLayer, LAMBDAS[name]) for name in LAMBDAS},
    "convolution": (layers.LambdaConv, CONVOLUTION),
    **{name: (layers.RelativeAttention, ATTENTION[name]) for name in ATTENTION},
}
every_layer = pytest.mark.parametrize("name", LAYERS)
every_lambda = pytest.mark.parametrize("name", [*LAMBDAS, "convolution"])
every_attention = pytest.mark.parametrize("name", ATTENTION)


def make(name, length=None, seed=0, **arguments):
    """A built layer with random weights."""
    layer_type, own = LAYERS[name]
    past = {} if layer_type is layers.LambdaConv else {"causal": True}
    layer = layer_type(**{**_SIZE, **past, **own, **arguments})
    length = LENGTH if name in ATTENTION else length
    layer.build((None, length, CHANNELS))
    checks.randomize(layer, np.random.default_rng(seed))
    return layer


def normal(rng, *shape, dtype="float32"):
    return rng.normal(size=shape).astype(dtype)


def stream(layer, x, pieces, mask=None, step=None):
    """Outputs of a sequence that comes in pieces, and the last state."""
    state = layer.initial_state(len(x))
    if mask is None:
        return in_pieces(step or layer.step, state, x, pieces)

    def masked(part, state):
        real = part[..., -1] > 0
        return layer.step(part[..., :-1], state, mask=real)

    both = np.concatenate([x, mask[..., None]], axis=-1)
    return in_pieces(masked, state, both, pieces)


def assert_streams(layer, x, pieces, tolerance, step=None):
    """Holds a stream against the call on the whole; the last state."""
    outputs, state = stream(layer, x, pieces, step=step)
    checks.assert_close(outputs, layer(x), tolerance)
    return state


@st.composite
def streams(draw):
    """A layer's type and arguments, pieces, and whether there is padding."""
    groups = draw(st.integers(1, 3))
    arguments = {
        "num_heads": groups,
        "filters": groups * draw(st.integers(1, 3)),
        "key_dim": draw(st.integers(1, 4)),
        "intra_depth": draw(st.integers(1, 3)),
        "multi_head": draw(st.booleans()),
        "key_normalization": draw(st.sampled_from(ops.KEY_NORMALIZATIONS)),
        "query_normalization": draw(st.sampled_from([None, "softmax"])),
        "use_batch_norm": draw(st.booleans()),
        "implementation": draw(st.sampled_from(ops.implementations(1))),
    }
    parts = draw(st.sampled_from(["both", "content", "position"]))
    arguments["use_content"] = parts != "position"
    arguments["use_position"] = parts != "content"
    taps, stride = draw(st.integers(0, 9)) * 2 + 1, 1
    if draw(st.booleans()):
        layer_type = layers.LambdaLayer
        arguments |= {"causal": True, "scope": taps}
    else:
        layer_type = layers.LambdaConv
        stride, dilation = draw(st.sampled_from([(1, 1), (1, 3), (2, 1)]))
        arguments |= {
            "kernel_size": taps,
            "padding": "causal",
            "strides": stride,
            "dilation_rate": dilation,
        }
    sizes = st.one_of(st.just(1), st.integers(1, 40))
    pieces = draw(st.lists(sizes, min_size=1, max_size=5))
    pieces = [stride * piece for piece in pieces]
    return layer_type, arguments, pieces, draw(st.booleans())


@pytest.mark.slow
@pytest.mark.once
@hypothesis.settings(max_examples=20)
@hypothesis.given(streams())
def test_pieces_equal_the_whole(case):
    layer_type, arguments, pieces, padded = case
    rng = np.random.default_rng(sum(pieces))
    layer = layer_type(**arguments, dtype="float64")
    x = normal(rng, 2, sum(pieces), CHANNELS, dtype="float64")
    mask = rng.random(x.shape[:2]) < 0.7 if padded else None
    layer(x)
    checks.randomize(layer, rng)
    name = "context_mask" if layer_type is layers.LambdaLayer else "mask"
    expected = layer(x, **({} if mask is None else {name: mask}))
    outputs, state = stream(layer, x, pieces, mask)
    np.testing.assert_allclose(outputs, expected, rtol=1e-9, atol=1e-9)
    spec = layer.state_spec(2)
    assert {k: (v.shape, v.dtype) for k, v in state.items()} == {
        k: (v.shape, v.dtype) for k, v in spec.items()
    }


@pytest.mark.slow
@pytest.mark.representatives(8)
@every_layer
def test_every_position_equals_the_reference(name, rng):
    layer = make(name, dtype="float64")
    x = normal(rng, 2, LENGTH, CHANNELS, dtype="float64")
    outputs, _ = stream(layer, x, [1] * LENGTH)
    expected = checks.oracle_output(layer, {"inputs": x})
    checks.assert_close(outputs, expected, 1e-11)
    # The state must count, or a layer that forgets would pass.
    if name != "itself alone":
        fresh, _ = layer.step(x[:, -1:], layer.initial_state(2))
        checks.assert_far(fresh, expected[:, -1:])


@pytest.mark.slow
@pytest.mark.once
@every_attention
def test_pieces_equal_the_whole_with_padding_and_nan(name, rng):
    layer = make(name, dtype="float64")
    x = normal(rng, 2, LENGTH, CHANNELS, dtype="float64")
    mask = rng.random(x.shape[:2]) < 0.7
    mask[1, 6] = True
    x[~mask] = np.inf
    x[1, 6] = np.nan
    expected = layer(x, context_mask=mask)
    nan = np.isnan(expected)
    assert not nan[0].all()
    for pieces in ([LENGTH], [8, 1, 12], [1, 19, 1]):
        outputs, _ = stream(layer, x, pieces, mask)
        np.testing.assert_array_equal(np.isnan(outputs), nan)
        checks.assert_close(outputs[~nan], expected[~nan], 1e-12)


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "implementation"),
    [
        *((name, "auto") for name in (*LAMBDAS, "convolution")),
        *(("layer", name) for name in ops.implementations(1)[1:]),
    ],
)
def test_later_positions_of_a_step_change_no_bit(name, implementation, rng):
    layer = make(name, 40, implementation=implementation)
    before, x = normal(rng, 2, 11, CHANNELS), normal(rng, 2, 40, CHANNELS)
    _, state = layer.step(before, layer.initial_state(2))
    expected = layer.step(x, state)[0][:, :23]
    changed = x.copy()
    changed[:, 23:] *= 1e4
    actual = layer.step(changed, state)[0]
    np.testing.assert_array_equal(actual[:, :23], expected)
    checks.assert_far(actual[:, 23:], layer.step(x, state)[0][:, 23:])


@pytest.mark.slow
@pytest.mark.representatives(2)
@every_lambda
def test_half_precision_is_close_to_single(name, rng):
    layer = make(name)
    half = make(name, dtype="mixed_bfloat16")
    half.set_weights(layer.get_weights())
    x = normal(rng, 2, 40, CHANNELS)
    outputs, state = stream(half, x, [1] * 20 + [20])
    assert outputs.dtype == tf.bfloat16
    sums = [state[k].dtype for k in state if k != "values"]
    assert all(dtype == tf.float32 for dtype in sums)
    expected = tf.cast(half(x), tf.float32)
    outputs = tf.cast(outputs, tf.float32)
    checks.assert_close(outputs, expected, 2e-2)
    checks.assert_close(outputs, layer(x), 1e-1)


@pytest.mark.slow
@pytest.mark.representatives(2)
@every_lambda
def test_a_step_is_compiled_by_xla(name, rng):
    layer = make(name)
    x = tf.constant(normal(rng, 3, 12, CHANNELS))
    step = tf.function(layer.step, jit_compile=True)
    assert_streams(layer, x, [1] * 12, 1e-5, step)


@pytest.mark.slow
@pytest.mark.representatives(5)
@every_layer
def test_unknown_sizes_are_traced_once(name, rng):
    layer = make(name)
    specs = [tf.TensorSpec([None, None, CHANNELS]), layer.state_spec()]
    step = tf.function(layer.step, input_signature=specs)
    x = normal(rng, 3, LENGTH, CHANNELS)
    state = assert_streams(layer, x, [9, 1, 11], 2e-6, step)
    assert step.experimental_get_tracing_count() == 1
    assert_spec(state, layer.state_spec(3))
    if name in ATTENTION:
        past = ATTENTION[name].get("scope", 2 * LENGTH + 1) // 2
        assert all(part.shape[1] == past for part in state.values())


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize("name", ["layer", "multi_head_l2", "convolution"])
def test_a_server_can_stream(name, rng, tmp_path):
    layer = make(name)
    module = tf.Module()
    module.variables_ = [checks.raw(weight) for weight in layer.weights]

    @tf.function
    def step(inputs, **state):
        outputs, state = layer.step(inputs, state)
        return {"outputs": outputs, **state}

    signature = step.get_concrete_function(
        inputs=tf.TensorSpec([None, 1, CHANNELS], name="inputs"),
        **layer.state_spec(),
    )
    tf.saved_model.save(module, str(tmp_path / "saved"), {"step": signature})
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["step"]

    def step_of_server(inputs, state):
        state = dict(served(inputs=inputs, **state))
        return state.pop("outputs"), state

    for batch in (1, 3):
        x = tf.constant(normal(rng, batch, 9, CHANNELS))
        assert_streams(layer, x, [1] * 9, 1e-5, step_of_server)


@pytest.mark.slow
@every_lambda
def test_nan_reaches_whom_it_reaches_in_the_whole(name, rng):
    layer = make(name, 30, implementation="einsum")
    x = normal(rng, 3, 30, CHANNELS)
    x[0, 13], x[1, 7] = np.nan, np.inf
    outputs, _ = stream(layer, x, [10, 10, 1, 1, 8])
    nan = np.isnan(outputs)
    np.testing.assert_array_equal(nan, np.isnan(layer(x)))
    assert nan[0].any()
    assert not nan[0, :13].any()
    assert not nan[2].any()


@pytest.mark.slow
@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("normalization", "scale"),
    [("softmax", 1.0), ("softmax", 300.0), ("l2", 1.0), (None, 1.0)],
)
def test_a_long_stream_in_single_precision(normalization, scale, rng):
    arguments = {"key_normalization": normalization, "use_batch_norm": False}
    layer = make("layer", **arguments)
    layer.key.kernel.assign(scale * checks.raw(layer.key.kernel))
    exact = make("layer", dtype="float64", **arguments)
    exact.set_weights(layer.get_weights())
    x = normal(rng, 1, 4000, CHANNELS)
    step = tf.function(layer.step)
    outputs, _ = stream(layer, x, [1] * 500 + [700] * 5, step=step)
    expected = exact(x.astype("float64"))
    # As far away as the whole call in single precision is, not farther:
    # logits of hundreds lose digits before their exponential.
    error = np.max(np.abs(np.asarray(layer(x), "float64") - expected))
    tolerance = max(3 * error / np.max(np.abs(expected)), 1e-5)
    assert tolerance < 1e-3
    checks.assert_close(outputs, expected, tolerance)


# A layer's type and arguments, the sizes of its inputs, and the reason.
REFUSED = {
    "later positions": (layers.LambdaLayer, {"scope": 7}, (11,), "causal=True"),
    "global": (layers.LambdaLayer, {"causal": True}, (11,), "would grow"),
    "explicit": (
        layers.LambdaLayer,
        {"causal": True, "position_embedding": "explicit"},
        (11,),
        "explicit",
    ),
    "same": (layers.LambdaConv, {"kernel_size": 3}, (11,), "padding='causal'"),
    "attention": (layers.RelativeAttention, {}, (11,), "needs causal=True"),
    "lines": (
        layers.RelativeAttention,
        {"axis": 2, "causal": True},
        (4, 11),
        "Streams are sequences",
    ),
}


@pytest.mark.representatives(len(REFUSED), everywhere=True)
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_stream_is_refused(name):
    layer_type, arguments, sizes, reason = REFUSED[name]
    layer = layer_type(**_SIZE, **arguments)
    with pytest.raises(ValueError, match="before it is built"):
        layer.initial_state(2)
    layer.build((None, *sizes, CHANNELS))
    for call in (
        layer.state_spec,
        lambda: layer.initial_state(2),
        lambda: layer.step(tf.zeros([2, 1, CHANNELS]), {}),
    ):
        with pytest.raises(ValueError, match=reason):
            call()


def test_wrong_pieces_and_states_are_refused():
    layer, inputs = make("layer"), tf.zeros([2, 1, CHANNELS])
    state = layer.initial_state(2)
    for wrong in (inputs[0], inputs[:, :0], tf.zeros([2, 1, 3])):
        with pytest.raises(ValueError, match="`inputs`"):
            layer.step(wrong, state)
    without = {name: state[name] for name in state if name != "values"}
    others = make("layer", scope=9).initial_state(2)
    for wrong in ({}, without, layer.initial_state(3), others):
        with pytest.raises(ValueError, match="`state`"):
            layer.step(inputs, wrong)


def test_wrong_pieces_and_states_of_attention_are_refused():
    layer, x = make("window"), tf.zeros([2, 1, CHANNELS])
    for wrong in ({}, layer.initial_state(3), make("cache").initial_state(2)):
        with pytest.raises(ValueError, match="`state` must come from"):
            layer.step(x, wrong)
    with pytest.raises(ValueError, match="`inputs` must have the shape"):
        layer.step(tf.zeros([2, 1, 3]), layer.initial_state(2))


def test_pieces_of_a_strided_convolution_are_multiples_of_its_strides():
    layer = make("convolution", strides=2, dilation_rate=1)
    with pytest.raises(ValueError, match="multiple of `strides`"):
        layer.step(tf.zeros([2, 1, CHANNELS]), layer.initial_state(2))


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
