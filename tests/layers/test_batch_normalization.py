"""BatchNormalization: Keras' layer, by one operation."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from tests.support import checks

pytestmark = pytest.mark.every_lane
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


def built(shape, rng, **arguments):
    arguments |= {"momentum": MOMENTUM, "epsilon": EPSILON}
    layer = layers.BatchNormalization(**arguments)
    layer.build(shape)
    layer.set_weights([rng.uniform(0.5, 2.0, w.shape) for w in layer.weights])
    return layer


def step_of(layer, upstream, training=True, **call):
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = layer(x, training=training, **call)
            loss = tf.reduce_sum(tf.cast(outputs, upstream.dtype) * upstream)
        sources = [x, *map(checks.raw, layer.trainable_weights)]
        return [outputs, *tape.gradient(loss, sources)]

    return step


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_values_and_averages(rank, training, rng):
    shape = tuple(rng.integers(2, 8, rank))
    x = rng.normal(2.0, 3.0, shape)
    upstream = tf.constant(rng.normal(size=shape))
    weights, found = None, []
    for dtype in ("float64", "float32"):
        layer = built(shape, rng, dtype=dtype)
        weights = weights or layer.get_weights()
        layer.set_weights(weights)
        step = step_of(layer, upstream, training=training)
        found.append(step(tf.constant(x, dtype)))
    exact, ours = found
    checks.assert_each_close(ours, exact, 2e-5)
    after = ours[0], *layer.get_weights()[2:]
    checks.assert_each_close(after, normalized(x, weights, training), 1e-5)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("arguments", "masked"),
    [
        *(({}, masked) for masked in (False, True)),
        *(({x: False}, False) for x in ("scale", "center", "trainable")),
        *(({"axis": 1}, False), ({"dtype": "float64"}, False)),
    ],
)
def test_it_is_one_operation_where_possible(arguments, masked, training, rng):
    is_changed = masked or arguments != {}
    dtype, axis = arguments.get("dtype", "float32"), arguments.get("axis", -1)
    x = tf.constant(rng.normal(2.0, 3.0, [4, 5, 6]), dtype)
    mask = tf.constant(rng.integers(0, 2, [4, 5]) > 0) if masked else None
    ours = built(x.shape, rng, **arguments)
    arguments |= {"momentum": MOMENTUM, "epsilon": EPSILON}
    theirs = tf.keras.layers.BatchNormalization(**arguments)
    theirs.build(x.shape)
    theirs.set_weights(ours.get_weights())
    call = {"training": training, "mask": mask}
    traced = tf.function(lambda x: ours(x, **call))
    found = traced(x), *ours.get_weights()
    expected = theirs(x, **call), *theirs.get_weights()
    checks.assert_each_close(found, expected, 1e-5)
    graph = traced.get_concrete_function(x).graph
    names = {operation.type for operation in graph.get_operations()}
    unfused = dtype == "float64" or (masked and training) or axis == 1
    assert ("FusedBatchNormV3" in names) == (not unfused)
    steps = names & {"Mean", "SquaredDifference", "Rsqrt"}
    assert unfused or is_changed or not steps
    if not unfused:
        traced(x[:0])  # An empty batch moves no average.
        checks.assert_each_close(ours.get_weights(), found[1:], 1e-6)


def channels_of_all_kinds(rng, shape):
    """Near zero, far from it, farther, far and narrow, constant."""
    means, deviations = [0, 300, 1000, 1000, 255], [1, 1, 1, 0.01, 0]
    return rng.normal(means, deviations, [*shape, 5]).astype("float32")


def close_channels(actual, expected, tolerance):
    """Channel by channel: one is 1,000 where another is 1."""
    actual, expected = (tf.cast(t, tf.float64) for t in (actual, expected))
    # The gradient of a constant channel is nothing but rounding.
    axes = tuple(range(len(expected.shape) - 1))
    scale = np.maximum(np.abs(expected).max(axes), 1e-2)
    np.testing.assert_allclose(actual / scale, expected / scale, 0, tolerance)


@pytest.mark.slow
def test_xla_computes_what_eager_calls_do(rng):
    x = tf.constant(channels_of_all_kinds(rng, [6, 5, 7]))
    upstream = tf.constant(rng.normal(size=x.shape), tf.float64)
    layer = built(x.shape, rng)
    start = layer.get_weights()
    step, found = step_of(layer, upstream), []
    for function in (step, tf.function(step, jit_compile=True)):
        layer.set_weights(start)
        found.append([*function(x), *layer.get_weights()])
    exact, *_ = normalized(np.asarray(x, np.float64), start, True)
    close_channels(found[0][0], exact, 1e-5)
    for eager, compiled in zip(*found, strict=True):
        close_channels(compiled, eager, 1e-5)


@pytest.mark.parametrize(("sizes", "masked"), [((3, 2), True), ((5, 0), False)])
def test_replicas_share_a_batch(sizes, masked, two_replicas, rng):
    strategy = two_replicas
    x = channels_of_all_kinds(rng, [sum(sizes), 5])
    whole = {"x": x, "upstream": rng.normal(size=x.shape).astype("float32")}
    if masked:
        whole["mask"] = rng.integers(0, 2, x.shape[:-1]).astype(bool)
    whole = {name: tf.constant(array) for name, array in whole.items()}

    def new_layer():
        return built(x.shape, np.random.default_rng(1), synchronized=True)

    def step(layer, x, upstream, mask=None):
        return step_of(layer, upstream, mask=mask)(x)

    def part(context):
        index = context.replica_id_in_sync_group
        return {name: tf.split(x, sizes)[index] for name, x in whole.items()}

    with strategy.scope():
        layer = new_layer()
    parts = strategy.experimental_distribute_values_from_function(part)
    run = tf.function(lambda x: strategy.run(step, (layer,), x))
    averages = map(checks.raw, (layer.moving_mean, layer.moving_variance))
    of_each = map(strategy.experimental_local_results, [*run(parts), *averages])
    outputs, gradients, d_gamma, d_beta, *averages = of_each
    alone = new_layer()
    exact = [*step(alone, **whole), *alone.get_weights()[2:]]
    joint = tf.concat(outputs, 0), tf.concat(gradients, 0)
    joint = *joint, sum(d_gamma), sum(d_beta)
    for found, expected in zip(joint, exact[:4], strict=True):
        close_channels(found, expected, 1e-5)
    for copies, expected in zip(averages, exact[4:], strict=True):
        for copy in copies:
            close_channels(copy.numpy(), expected, 1e-5)
