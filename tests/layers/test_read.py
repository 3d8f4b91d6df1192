"""What a query read: weights of values that are the layer's outputs."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from tests.support import checks

_SMALL = {"num_heads": 2, "key_dim": 3, "dtype": "float64"}
_LINE, _MAP, _VOLUME = (7, 5), (5, 4, 6), (3, 2, 4, 5)


def conv(*args, **arguments):
    return layers.LambdaConv(8, *args, **_SMALL, **arguments)


def layer(**arguments):
    return layers.LambdaLayer(8, **_SMALL, **arguments)


# What is read: a layer, the shape of its inputs, arguments of the call.
CASES = {
    "local": (layer(scope=3), _MAP, {}),
    "global": (layer(), _MAP, {}),
    "line": (layer(scope=5), _LINE, {}),
    "volume": (layer(scope=3), _VOLUME, {}),
    "content": (layer(use_position=False), _MAP, {}),
    "position": (layer(scope=3, use_content=False), _MAP, {}),
    "bias": (layer(scope=3, use_position_bias=True), _MAP, {}),
    "causal": (layer(scope=5, causal=True, use_batch_norm=True), _LINE, {}),
    "causal_content": (layer(use_position=False, causal=True), _LINE, {}),
    "multi_head": (
        layer(multi_head=True, use_position_bias=True),
        _MAP,
        {},
    ),
    "intra_depth": (layer(intra_depth=3, scope=3), _MAP, {}),
    "all": (
        layer(
            scope=3, causal=True, multi_head=True, intra_depth=2,
            use_position_bias=True, query_normalization="softmax",
            use_batch_norm=True,
        ),
        _LINE,
        {"mask": "padding"},
    ),
    "l2": (layer(key_normalization="l2"), _MAP, {}),
    "no_normalization": (layer(key_normalization=None), _MAP, {}),
    "fourier": (layer(scope=5, implementation="fourier"), _MAP, {}),
    "mask": (layer(scope=3), _LINE, {"mask": "padding"}),
    "context_mask": (layer(), _LINE, {"context_mask": "padding"}),
    "pairs": (layer(), _LINE, {"attention_mask": (7, 7)}),
    "pairs_of_heads": (layer(scope=3), _LINE, {"attention_mask": (2, 2, 7, 7)}),
    "pairs_of_groups": (
        layer(multi_head=True, key_normalization="l2"),
        _LINE,
        {"attention_mask": (2, 2, 7, 7)},
    ),
    "shared_mask": (layer(scope=3), _LINE, {"attention_mask": (2, 1, 7)}),
    "context": (layer(use_position=False), _LINE, {"context": (2, 4, 3)}),
    "explicit": (
        layer(position_embedding="explicit", intra_depth=2),
        _LINE,
        {"embeddings": (7, 7, 3, 2), "attention_mask": (2, 7, 7)},
    ),
    "explicit_of_examples": (
        layer(position_embedding="explicit", multi_head=True),
        _LINE,
        {"embeddings": (2, 7, 4, 2, 3), "context": (2, 4, 3)},
    ),
    "conv": (conv(3), _MAP, {}),
    "conv_strides": (conv(5, strides=2), (7, 6, 4), {}),
    "conv_dilated": (conv(3, dilation_rate=2), _MAP, {}),
    "conv_valid": (conv(3, strides=2, padding="valid"), (7, 6, 4), {}),
    "conv_causal": (
        conv(3, strides=2, padding="causal", multi_head=True),
        _LINE,
        {"mask": "padding"},
    ),
    "conv_content": (conv(3, strides=2, use_position=False), _MAP, {}),
}  # fmt: skip


def call_of(case, rng):
    """A layer with random weights, inputs and the arguments of a call."""
    made, shape, given = case
    made = type(made).from_config(made.get_config())
    inputs = rng.normal(size=(2, *shape))
    arguments = {}
    for argument, size in given.items():
        if size == "padding":
            arguments[argument] = np.arange(7) < np.array([[7], [4]])
        elif argument == "attention_mask":
            arguments[argument] = rng.random(size) < 0.6
        else:
            arguments[argument] = rng.normal(size=size)
    made(inputs, **arguments)
    checks.randomize(made, rng)
    return made, inputs, arguments


def read(made, inputs, tolerance=1e-12, **arguments):
    """What a layer read, which makes what it computes; and that."""
    expected = made(inputs, **arguments)
    reading = made.read(inputs, **arguments)
    outputs = tf.reshape(reading.outputs(), expected.shape)
    checks.assert_close(outputs, tf.cast(expected, outputs.dtype), tolerance)
    return reading, np.asarray(expected)


@pytest.mark.slow
@pytest.mark.representatives(10)
@pytest.mark.parametrize("name", CASES)
def test_weights_of_values_are_the_outputs(name, rng):
    made, inputs, arguments = call_of(CASES[name], rng)
    reading, expected = read(made, inputs, **arguments)
    context = arguments.get("context", inputs)
    assert reading.content.shape[3:-1] == context.shape[1:-1]
    assert reading.position.shape == reading.content.shape
    last = reading.places[-1]
    one = made.read(inputs, last if len(last) > 1 else last[0], **arguments)
    assert one.places == (last,)
    wanted = expected[(slice(None), *last)]
    checks.assert_close(one.outputs()[:, 0], wanted, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "multi_head", "causal", "conv"])
def test_parts_are_those_of_layers_without_the_other(name, rng):
    made, inputs, _ = call_of(CASES[name], rng)
    reading, weights = made.read(inputs), models.named_weights(made)
    none = tf.zeros_like(reading.content)
    for other, changes in (
        ("position", {"position": none, "bias": 0.0 * reading.bias}),
        ("content", {"content": none}),
    ):
        config = {**made.get_config(), f"use_{other}": False}
        config["use_position_bias"] &= other == "content"
        alone = type(made).from_config(config)
        alone(inputs)
        for key, weight in models.named_weights(alone).items():
            weight.assign(weights[key])
        expected = alone(inputs)
        outputs = dataclasses.replace(reading, **changes).outputs()
        outputs = tf.reshape(outputs, expected.shape)
        checks.assert_close(outputs, expected, 1e-12)


def test_local_and_causal_layers_read_what_they_see(rng):
    made, inputs, _ = call_of(CASES["causal"], rng)
    reading = made.read(inputs, 4)
    assert np.all(reading.content[:, :, :, :5] != 0)
    assert np.all(reading.content[:, :, :, 5:] == 0)
    near = np.asarray(reading.position)[0, 0, 0, :, 0] != 0
    assert near.tolist() == [False, False, True, True, True, False, False]
    # A softmax of keys, of which queries make a weighted sum.
    sums = tf.reduce_sum(reading.content, axis=[3, 4])[:, 0]
    channels = made.query_norm(made.query(inputs), training=False)[:, 4]
    queries = tf.reshape(channels, [2, 2, 3])
    checks.assert_close(sums, tf.reduce_sum(queries, axis=-1), 1e-12)


@pytest.mark.slow
def test_positions(rng):
    made, inputs, _ = call_of(CASES["local"], rng)
    every = made.read(inputs)
    assert every.places == tuple(np.ndindex(5, 4))
    some = made.read(inputs, [(1, 2), (4, 0)])
    assert some.places == ((1, 2), (4, 0))
    np.testing.assert_array_equal(some.content[:, 1], every.content[:, 16])
    np.testing.assert_array_equal(made.read(inputs, (4, 0)).bias[:, 0], 0)
    line, text, _ = call_of(CASES["line"], rng)
    assert line.read(text, [2, 5]).places == ((2,), (5,))
    assert line.read(text, 2).places == line.read(text, (2,)).places == ((2,),)
    for wrong in (2, (5, 0), (-1, 0), (1, 2, 3), [], (0.0, 1.0), [(0,)]):
        with pytest.raises(ValueError, match="`position` must be one index"):
            made.read(inputs, wrong)


def test_what_cannot_be_read(rng):
    with pytest.raises(ValueError, match="must be built"):
        layer().read(rng.normal(size=(2, *_MAP)))
    made, inputs, _ = call_of(CASES["local"], rng)
    with pytest.raises(ValueError, match="`positions` is not an argument"):
        made.read(inputs, positions=(1, 2))
    with pytest.raises(ValueError, match="was built for inputs with 2"):
        made.read(inputs[:, 0])


def test_a_mask_of_keras_counts(rng):
    words = tf.constant([[5, 17, 3, 0, 0], [1, 2, 3, 4, 5]])
    embedded = tf.keras.layers.Embedding(20, 5, mask_zero=True)(words)
    made = layers.LambdaLayer(8, num_heads=2, key_dim=3, dtype="float32")
    reading, _ = read(made, embedded, 1e-5)
    assert np.all(reading.content[0, :, :, 3:] == 0)
    assert np.all(reading.content[1] != 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["causal", "pairs", "conv_causal", "context_mask"]
)
def test_what_is_not_finite_is_read_by_those_who_see_it(name, rng):
    made, inputs, arguments = call_of(CASES[name], rng)
    inputs[0, 5] = np.nan
    expected = np.asarray(made(inputs, **arguments))
    outputs = made.read(inputs, **arguments).outputs()
    outputs = tf.reshape(outputs, expected.shape).numpy()
    np.testing.assert_array_equal(np.isnan(outputs), np.isnan(expected))
    np.testing.assert_allclose(outputs, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision(policy, rng):
    made = layers.LambdaLayer(8, num_heads=2, key_dim=4, dtype=policy)
    inputs = rng.normal(size=(2, *_MAP)).astype("float32")
    reading, _ = read(made, inputs, 0.02)
    assert reading.content.dtype == tf.float32


def attention(**arguments):
    return layers.RelativeAttention(8, **_SMALL, **arguments)


ATTENTION = {
    "global": (attention(), _MAP, {}),
    "local": (attention(scope=3), _MAP, {}),
    "joint": (attention(position_embedding="joint"), _MAP, {}),
    "content": (attention(position_embedding=None), _LINE, {}),
    "causal": (attention(causal=True), _LINE, {"mask": "padding"}),
    "pairs": (attention(), _LINE, {"attention_mask": (2, 7, 7)}),
    "pairs_of_heads": (attention(), _LINE, {"attention_mask": (2, 2, 7, 7)}),
    "context": (
        attention(position_embedding=None), _LINE, {"context": (2, 4, 3)}
    ),
    "height": (attention(axis=1), _MAP, {}),
    "width": (attention(axis=2, scope=3), _MAP, {}),
}  # fmt: skip


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


@pytest.mark.slow
@pytest.mark.parametrize("axis", [None, 1, 2])
def test_scores_in_a_model(axis, rng):
    inputs = tf.keras.Input(_MAP)
    made = layers.RelativeAttention(8, num_heads=2, axis=axis)
    outputs = made(inputs, return_attention_scores=True)
    assert isinstance(outputs, tuple)
    model = tf.keras.Model(inputs, list(outputs))
    images = rng.normal(size=(3, *_MAP)).astype("float32")
    results = model.predict(images, verbose=0)
    wanted = {None: (2, 20, 20), 1: (4, 2, 5, 5), 2: (5, 2, 4, 4)}[axis]
    assert results[1].shape == (3, *wanted)
    assert tuple(outputs[1].shape) == (None, *wanted)
    np.testing.assert_allclose(results[1].sum(-1), 1.0, rtol=1e-5)


def test_scores_need_known_sizes():
    made = layers.RelativeAttention(8, num_heads=2, scope=3)
    made(tf.zeros([1, 4, 4, 2]))

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 2])])
    def scores(images):
        return made(images, return_attention_scores=True)

    with pytest.raises(ValueError, match="static sizes"):
        scores.get_concrete_function()
