"""BatchNormalization: Keras' layer, by one operation."""

from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from tests.support import checks

pytestmark = pytest.mark.every_lane
Theirs = tf.keras.layers.BatchNormalization
EPSILON, MOMENTUM = 1e-3, 0.8
MOMENTS = np.mean, np.var


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
    layer = layers.BatchNormalization(
        momentum=MOMENTUM, epsilon=EPSILON, **arguments
    )
    layer.build(shape)
    layer.set_weights([rng.uniform(0.5, 2.0, w.shape) for w in layer.weights])
    return layer


def step_of(layer, upstream, training=True, **call):
    """A function of the inputs: outputs and all gradients."""

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
    """And gradients, which those in float64 are the measure of."""
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
    for exact, ours in zip(*found, strict=True):
        checks.assert_close(ours, exact, 2e-5)
    expected, mean, variance = normalized(x, weights, training)
    checks.assert_close(found[1][0], expected, 1e-5)
    after = layer.get_weights()
    checks.assert_close(after[2], mean, 1e-5)
    checks.assert_close(after[3], variance, 1e-5)


@pytest.mark.representatives(10, everywhere=True)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("arguments", "tolerance"),
    [
        ({"scale": False}, 1e-5),
        ({"center": False}, 1e-5),
        ({"dtype": "mixed_float16"}, 3e-3),
        ({"dtype": "mixed_bfloat16"}, 2e-2),
        ({"trainable": False}, 1e-5),
    ],
)
def test_what_it_has_besides(arguments, tolerance, training, rng):
    x = rng.normal(2.0, 3.0, [16, 5, 5, 4]).astype("float32")
    layer = built(x.shape, rng, **arguments)
    gamma = layer.gamma if layer.scale else np.ones(4)
    beta = layer.beta if layer.center else np.zeros(4)
    weights = gamma, beta, layer.moving_mean, layer.moving_variance
    # Frozen, it neither reads nor moves statistics.
    moves, before = training and layer.trainable, layer.get_weights()
    expected, mean, _ = normalized(x, weights, moves)
    output = layer(x, training=training)
    dtype = arguments.get("dtype", "float32").removeprefix("mixed_")
    assert output.dtype == dtype
    assert {tf.as_dtype(w.dtype) for w in layer.weights} == {tf.float32}
    checks.assert_close(tf.cast(output, tf.float32), expected, tolerance)
    checks.assert_close(layer.moving_mean, mean, tolerance)
    for kept, now in zip(before, layer.get_weights(), strict=True):
        assert moves or np.array_equal(now, kept)


@pytest.mark.representatives(8)  # all: each form has averages of its own
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("arguments", "masked"),
    [
        ({}, False),
        ({"axis": 1}, False),
        ({"dtype": "float64"}, False),
        ({}, True),
    ],
)
def test_it_is_one_operation_where_there_is_one(
    arguments, masked, training, rng
):
    dtype, axis = arguments.get("dtype", "float32"), arguments.get("axis", -1)
    x = tf.constant(rng.normal(2.0, 3.0, [4, 5, 6]), dtype)
    mask = rng.integers(0, 2, [4, 5]).astype(bool) if masked else None
    layer = built(x.shape, rng, **arguments)
    weights = layer.get_weights()
    rows = np.moveaxis(np.asarray(x), axis, -1)
    seen = rows[mask] if masked else rows
    mask = tf.constant(mask) if masked else None
    _, mean, variance = normalized(seen, weights, training)
    if training:
        weights[2:] = [f(seen, tuple(range(seen.ndim - 1))) for f in MOMENTS]
    expected = np.moveaxis(normalized(rows, weights, False)[0], -1, axis)
    traced = tf.function(lambda x: layer(x, training=training, mask=mask))
    checks.assert_close(traced(x), expected, 1e-5)
    checks.assert_close(layer.get_weights()[2], mean, 1e-5)
    checks.assert_close(layer.get_weights()[3], variance, 1e-5)
    graph = traced.get_concrete_function(x).graph
    names = {operation.type for operation in graph.get_operations()}
    unfused = dtype == "float64" or (masked and training)
    assert ("FusedBatchNormV3" in names) == (not unfused)
    steps = names & {"Mean", "SquaredDifference", "Rsqrt"}
    assert unfused or arguments or masked or not steps


def test_weights_and_configurations_are_those_of_keras(rng):
    ours = built((2, 3), rng, name="norm")
    theirs = Theirs.from_config(ours.get_config())
    theirs.build((2, 3))
    theirs.set_weights(ours.get_weights())
    x = rng.normal(size=[7, 3]).astype("float32")
    checks.assert_close(ours(x), theirs(x), 1e-5)
    by_position = (-1, 0.7, 0.01, False)
    config = layers.BatchNormalization(*by_position, name="norm").get_config()
    assert config == Theirs(*by_position, name="norm").get_config()


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
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float32", 1e-5), ("float64", 1e-9)]
    + [("mixed_bfloat16", 1e-2), ("mixed_float16", 2e-3)],
)
def test_xla_computes_what_eager_calls_do(dtype, tolerance, rng):
    x = channels_of_all_kinds(rng, [6, 5, 7])
    upstream = tf.constant(rng.normal(size=x.shape), tf.float64)
    layer = built(x.shape, rng, dtype=dtype)
    x, start = tf.cast(x, layer.compute_dtype), layer.get_weights()
    step, found = step_of(layer, upstream), []
    for function in (step, tf.function(step, jit_compile=True)):
        layer.set_weights(start)
        found.append([*function(x), *layer.get_weights()])
        inference = tf.function(layer, jit_compile=function is not step)
        found[-1].append(inference(x))
    exact = normalized(np.asarray(x, np.float64), start, True)
    close_channels(found[0][0], exact[0], tolerance)
    for eager, compiled in zip(*found, strict=True):
        close_channels(compiled, eager, tolerance)


@pytest.mark.slow
def test_fit_compiled_by_xla(rng):
    x = rng.normal(300.0, 1.0, [8, 4, 4, 3]).astype("float32")
    y = rng.normal(size=[8, 2]).astype("float32")
    trained = []
    for options in ({"run_eagerly": True}, {"jit_compile": True}):
        tf.keras.utils.set_random_seed(0)
        model = tf.keras.Sequential(
            [
                tf.keras.Input([4, 4, 3]),
                layers.BatchNormalization(momentum=0.5),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(2),
            ]
        )
        model.compile("sgd", "mse", **options)
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        trained.append(model.get_weights())
    for eager, compiled in zip(*trained, strict=True):
        checks.assert_close(compiled, eager, 1e-4)


@pytest.mark.slow
def test_threads_may_share_layers(rng):
    norms = [layers.BatchNormalization() for _ in range(3)]
    shapes = [[2, 9, 9, channels] for channels in (4, 8, 64)]
    xs = [tf.constant(rng.normal(size=s), tf.float32) for s in shapes]
    alone = [norm(x).numpy() for norm, x in zip(norms, xs, strict=True)]
    # Where they share an operation, this ends the process.
    with futures.ThreadPoolExecutor(8) as threads:
        turns = [i % 3 for i in range(300)]
        outputs = threads.map(lambda i: norms[i](xs[i]).numpy(), turns)
        for turn, output in zip(turns, outputs, strict=True):
            np.testing.assert_array_equal(output, alone[turn])


@pytest.mark.parametrize("compiled", [None, False, True])
@pytest.mark.parametrize(
    ("shape", "mask", "values"),
    [
        ([0, 3, 3, 2], None, 0),
        ([4, 0, 2], None, 0),
        ([3, 5, 2], np.zeros([3, 5], bool), 0),
        ([1, 2], None, 1),
        ([1, 1, 1, 2], None, 1),
        ([1, 2, 2], np.array([[True, False]]), 1),
    ],
)
def test_batches_of_no_value_or_one(shape, mask, values, compiled, rng):
    """None moves nothing, and one has no variance."""
    layer = built(shape, rng)
    gamma, beta, mean, variance = layer.get_weights()
    mask = None if mask is None else tf.constant(mask)
    step = step_of(layer, tf.ones(shape), mask=mask)
    if compiled is not None:
        step = tf.function(step, jit_compile=compiled)
    x = tf.constant(rng.normal(size=shape), tf.float32)
    outputs, *gradients = step(x)
    for tensor in (outputs, *gradients):
        assert np.isfinite(tensor).all()
    if values:
        first = np.reshape(x, [-1, 2])[0]
        checks.assert_close(np.reshape(outputs, [-1, 2])[0], beta, 1e-4)
        mean = MOMENTUM * mean + (1 - MOMENTUM) * first
        variance = MOMENTUM * variance
    kept = zip((gamma, beta, mean, variance), layer.get_weights(), strict=True)
    for expected, now in kept:
        checks.assert_close(now, expected, 1e-5 if values else 0)


def test_padding_may_be_anything(rng):
    x = rng.normal(size=[3, 5, 2]).astype("float32")
    mask = rng.integers(0, 2, [3, 5]).astype(bool)
    layer = built(x.shape, rng)
    start = layer.get_weights()
    upstream = tf.constant(rng.normal(size=x.shape) * mask[..., None])
    step = step_of(layer, upstream, mask=tf.constant(mask))
    found = []
    for padding in (0.0, np.nan, np.inf):
        layer.set_weights(start)
        padded = np.where(mask[..., None], x, padding)
        outputs, *gradients = step(tf.constant(padded, tf.float32))
        outputs = tf.where(mask[..., None], outputs, 0.0)
        found.append([outputs, *gradients, *layer.get_weights()])
    for zero, nan, infinite in zip(*found, strict=True):
        np.testing.assert_array_equal(nan, zero)
        np.testing.assert_array_equal(infinite, zero)


def test_a_mask_of_another_rank_is_refused(rng):
    layer = built((3, 5, 2), rng)
    with pytest.raises(ValueError, match="one axis less than the inputs"):
        layer(tf.ones([3, 5, 2]), training=True, mask=tf.ones([3], tf.bool))


def test_a_function_has_gradients_where_its_statistics_are_traced(rng):
    x = tf.constant(rng.normal(size=[3, 5, 4]))
    layer = built(x.shape, rng, dtype="float64")

    def call(x):
        return tf.square(layer(x, training=True))

    gradients = []
    for function in (call, tf.function(call)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = function(x)
        gradients += [tape.gradient(outputs, x)]
    checks.assert_close(*gradients, 1e-12)


@pytest.mark.slow
def test_second_derivatives(rng):
    """Of the two passes, against those of elementary operations."""
    x = tf.constant(rng.normal(size=[4, 3, 2]))
    up, direction = tf.constant(rng.normal(size=[2, 4, 3, 2]))
    layer = built(x.shape, rng, dtype="float64")
    gamma, beta, *_ = layer.get_weights()

    def plain(x):
        # `tf.nn.moments` stops a gradient that only the second one sees.
        mean = tf.reduce_mean(x, [0, 1])
        variance = tf.reduce_mean((x - mean) ** 2, [0, 1])
        return gamma * (x - mean) * tf.math.rsqrt(variance + EPSILON) + beta

    def second(call):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(call(x) ** 2 * up)
            first = inner.gradient(loss, x)
            product = tf.reduce_sum(first * direction)
        return outer.gradient(product, x)

    def ours(x):
        return layer(x, training=True)

    expected = second(plain)
    checks.assert_close(second(ours), expected, 1e-9)
    for compiled in (False, True):
        graph = tf.function(lambda: second(ours), jit_compile=compiled)
        checks.assert_close(graph(), expected, 1e-9)


def shared(strategy, values, masks, upstreams):
    """A synchronized layer's outputs, gradients and averages, by replica."""
    rng = np.random.default_rng(1)
    with strategy.scope():
        layer = built(values[0].shape, rng, synchronized=True)

    def step(x, mask, upstream):
        return step_of(layer, upstream, mask=mask)(x)

    def distributed(parts):
        if parts is None:
            return None
        return strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]
        )

    parts = [*map(distributed, (values, masks, upstreams))]
    found = [
        *tf.function(strategy.run)(step, parts),
        *map(checks.raw, (layer.moving_mean, layer.moving_variance)),
    ]
    return [*map(strategy.experimental_local_results, found)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "is_masked"),
    [((3, 2), True), ((4, 0), False), ((2, 3, 0, 1), False)],
)
def test_replicas_share_a_batch(
    sizes, is_masked, two_replicas, four_replicas, rng
):
    strategy = two_replicas if len(sizes) == 2 else four_replicas
    x = channels_of_all_kinds(rng, [sum(sizes), 5])
    mask = rng.integers(0, 2, x.shape[:-1]).astype(bool) if is_masked else None
    upstream = rng.normal(size=x.shape).astype("float32")
    x, mask, upstream = whole = [
        None if array is None else tf.constant(array)
        for array in (x, mask, upstream)
    ]
    outputs, gradients, d_gamma, d_beta, *averages = shared(
        strategy,
        *(None if part is None else tf.split(part, sizes) for part in whole),
    )
    alone = built(x.shape, np.random.default_rng(1), synchronized=True)
    exact = [*step_of(alone, upstream, mask=mask)(x), *alone.get_weights()[2:]]
    joint = tf.concat(outputs, 0), tf.concat(gradients, 0)
    joint = *joint, sum(d_gamma), sum(d_beta)
    for found, expected in zip(joint, exact[:4], strict=True):
        close_channels(found, expected, 1e-5)
    for copies, expected in zip(averages, exact[4:], strict=True):
        for copy in copies:
            close_channels(copy.numpy(), expected, 1e-5)


def test_replicas_meet_once_each_way(two_replicas, rng, monkeypatch):
    context_type, met = tf.distribute.ReplicaContext, []
    merge_call = context_type.merge_call

    def counted(self, function, args):
        met.extend(args)
        return merge_call(self, function, args)

    monkeypatch.setattr(context_type, "merge_call", counted)
    x = tf.constant(rng.normal(size=[4, 5, 3]), tf.float32)
    shared(two_replicas, [x, x], None, [x, x])
    # Ends the walk through the graphs of all replicas, for each of them.
    assert {value.op.type for value in met} == {"StopGradient"}
    shapes = [tuple(value.shape) for value in met]
    assert sorted(shapes) == [(2, 3), (2, 3), (2, 4, 3), (2, 4, 3)]


@pytest.mark.slow
def test_replicas_without_examples_keep_their_statistics(two_replicas, rng):
    """Five examples in batches of four: the last replica gets none."""
    with two_replicas.scope():
        inputs = tf.keras.Input([4, 6])
        x = layers.LambdaLayer(4, num_heads=2, key_dim=3)(inputs)
        x = layers.BatchNormalization()(x)
        x = tf.keras.layers.GlobalAveragePooling1D()(x)
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(x))
        model.compile(tf.keras.optimizers.SGD(1e-3), "mse", jit_compile=False)
    x = rng.normal(size=[5, 4, 6]).astype("float32")
    model.fit(x, np.zeros([5, 1]), batch_size=4, verbose=0)
    for weight in model.weights:
        for copy in two_replicas.experimental_local_results(checks.raw(weight)):
            assert np.isfinite(copy).all()
