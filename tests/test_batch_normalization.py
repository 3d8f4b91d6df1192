"""BatchNormalization: Keras' layer, by one operation."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf.environment import KERAS_3
from tests import checks

pytestmark = pytest.mark.every_lane
Theirs = tf.keras.layers.BatchNormalization
EPSILON, MOMENTUM = 1e-3, 0.8


def normalized(x, weights, training):
    """Outputs and moved averages in float64; Ioffe and Szegedy, section 3."""
    gamma, beta, mean, variance = (np.asarray(w, np.float64) for w in weights)
    averages = mean, variance
    if training:
        rows = np.asarray(x, np.float64).reshape(-1, x.shape[-1])
        mean = rows.sum(0) / len(rows)
        variance = ((rows - mean) ** 2).sum(0) / len(rows)
        averages = [
            MOMENTUM * old + (1 - MOMENTUM) * new
            for old, new in zip(averages, (mean, variance), strict=True)
        ]
    outputs = gamma * (x - mean) / np.sqrt(variance + EPSILON) + beta
    return outputs, *averages


def built(layer_type, shape, rng, **arguments):
    layer = layer_type(momentum=MOMENTUM, epsilon=EPSILON, **arguments)
    layer.build(shape)
    layer.set_weights([rng.uniform(0.5, 2.0, w.shape) for w in layer.weights])
    return layer


def operations(layer, x, **call):
    """Names of the operations of a traced call."""
    traced = tf.function(lambda x: layer(x, **call)).get_concrete_function(x)
    return {operation.type for operation in traced.graph.get_operations()}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_values_and_averages(rank, training, rng):
    shape = tuple(rng.integers(2, 8, rank))
    x = rng.normal(2.0, 3.0, shape).astype("float32")
    layer = built(layers.BatchNormalization, shape, rng)
    before = layer.get_weights()
    expected, mean, variance = normalized(x, before, training)
    checks.assert_close(layer(x, training=training), expected, 1e-5)
    after = layer.get_weights()
    checks.assert_close(after[2], mean, 1e-5)
    # Keras 2's own keeps the variance of a sample for images.
    count = x.size / shape[-1]
    checks.assert_close(
        after[3], variance, 1e-5 if KERAS_3 else 1 / (count - 1)
    )


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_gradients_are_those_of_keras(rank, training, rng):
    shape = tuple(rng.integers(2, 8, rank))
    x = rng.normal(2.0, 3.0, shape)
    upstream = rng.normal(size=shape)
    gradients, weights = {}, None
    for dtype in ("float64", "float32"):
        layer = built(layers.BatchNormalization, shape, rng, dtype=dtype)
        weights = weights or layer.get_weights()
        layer.set_weights(weights)
        inputs = tf.constant(x, dtype)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs, training=training)
            loss = tf.reduce_sum(outputs * tf.constant(upstream, dtype))
        sources = [inputs, *map(checks.raw, layer.trainable_weights)]
        gradients[dtype] = tape.gradient(loss, sources)
    for exact, ours in zip(*gradients.values(), strict=True):
        checks.assert_close(ours, exact, 2e-5)


def test_one_example_normalizes_to_the_offset(rng):
    layer = built(layers.BatchNormalization, (1, 3), rng)
    _, beta, _, variance = layer.get_weights()
    output = layer(rng.normal(size=[1, 3]).astype("float32"), training=True)
    checks.assert_close(output[0], beta, 1e-4)
    checks.assert_close(layer.get_weights()[3], MOMENTUM * variance, 1e-6)


@pytest.mark.parametrize("arguments", [{"scale": False}, {"center": False}])
@pytest.mark.parametrize("training", [False, True])
def test_without_scale_or_offset(arguments, training, rng):
    x = rng.normal(size=[5, 4, 3]).astype("float32")
    layer = built(layers.BatchNormalization, x.shape, rng, **arguments)
    weights = {w.name.split("/")[-1].split(":")[0]: w for w in layer.weights}
    full = [
        np.array(weights.get(name, default))
        for name, default in (
            ("gamma", np.ones(3)),
            ("beta", np.zeros(3)),
            ("moving_mean", None),
            ("moving_variance", None),
        )
    ]
    expected = normalized(x, full, training)[0]
    checks.assert_close(layer(x, training=training), expected, 1e-5)


def test_frozen_it_neither_reads_nor_moves_statistics(rng):
    x = rng.normal(2.0, 3.0, [6, 4]).astype("float32")
    layer = built(layers.BatchNormalization, x.shape, rng)
    layer.trainable = False
    before = layer.get_weights()
    expected = normalized(x, before, False)[0]
    checks.assert_close(layer(x, training=True), expected, 1e-5)
    for kept, now in zip(before, layer.get_weights(), strict=True):
        np.testing.assert_array_equal(now, kept)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("training", [False, True])
def test_half_precision(policy, training, rng):
    x = rng.normal(2.0, 3.0, [16, 5, 5, 4]).astype("float32")
    layer = built(layers.BatchNormalization, x.shape, rng, dtype=policy)
    expected, mean, _ = normalized(x, layer.get_weights(), training)
    output = layer(x, training=training)
    assert output.dtype == policy.removeprefix("mixed_")
    assert {tf.as_dtype(w.dtype) for w in layer.weights} == {tf.float32}
    step = 2e-2 if policy == "mixed_bfloat16" else 3e-3
    checks.assert_close(tf.cast(output, tf.float32), expected, step)
    checks.assert_close(layer.get_weights()[2], mean, step)


@pytest.mark.skipif(not KERAS_3, reason="Keras 2's own layer chooses")
@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        ({"axis": 1}, {}),
        ({"dtype": "float64"}, {}),
        ({"synchronized": True}, {"training": True}),
        ({}, {"training": True, "mask": tf.ones([4, 5], tf.bool)}),
    ],
)
def test_what_the_operation_cannot_is_computed_by_keras(arguments, call, rng):
    x = tf.constant(
        rng.normal(size=[4, 5, 6]), arguments.get("dtype", "float32")
    )
    ours = built(layers.BatchNormalization, x.shape, rng, **arguments)
    theirs = built(Theirs, x.shape, rng, **arguments)
    theirs.set_weights(ours.get_weights())
    assert "FusedBatchNormV3" not in operations(ours, x, **call)
    np.testing.assert_array_equal(ours(x, **call), theirs(x, **call))


@pytest.mark.parametrize("training", [False, True])
def test_it_is_one_operation(training, rng):
    x = tf.constant(rng.normal(size=[2, 4, 4, 6]), tf.float32)
    layer = built(layers.BatchNormalization, x.shape, rng)
    names = operations(layer, x, training=training)
    assert "FusedBatchNormV3" in names
    assert not names & {"Mean", "SquaredDifference", "Rsqrt"}


def test_weights_and_configurations_are_those_of_keras(rng, tmp_path):
    ours = built(layers.BatchNormalization, (2, 3), rng, name="norm")
    theirs = Theirs.from_config(ours.get_config())
    theirs.build((2, 3))
    theirs.set_weights(ours.get_weights())
    x = rng.normal(size=[7, 3]).astype("float32")
    checks.assert_close(ours(x), theirs(x), 1e-5)
    inputs = tf.keras.Input((3,))
    model = tf.keras.Model(inputs, ours(inputs))
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.layers[1]) is layers.BatchNormalization
    np.testing.assert_array_equal(loaded(x), model(x))
