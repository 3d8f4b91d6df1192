"""Every algorithm and every block size against the paper's einsum.

The einsum itself is held against the loops of `oracle.py` in `test_layers.py`;
here float64 shows that the orders of summation are the same function, for
geometries and block sizes that small layers never reach.
"""

import contextlib
import dataclasses
import functools
import json
import math
import multiprocessing
import subprocess
import sys
import threading

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from benchmarks.layers import plan_memory
from lambdanet_tf import layers
from lambdanet_tf import ops
from lambdanet_tf.analysis.traced_flops import operation_flops
from lambdanet_tf.ops.position import choice
from tests.support import checks
from tests.support import oracle

pytestmark = pytest.mark.once

DIMS = ops.Dims(num_heads=2, key_dim=3, value_dim=5, intra_depth=2)
GEOMETRIES = {
    "same 7x9": [ops.same_axis(7, 5), ops.same_axis(9, 3)],
    "wider than the map": [ops.same_axis(7, 23), ops.same_axis(9, 31)],
    "global 6x5": [ops.same_axis(6, 11), ops.same_axis(5, 9)],
    "strided": [ops.same_axis(16, 5, 2), ops.same_axis(19, 7, 3)],
    "dilated": [ops.same_axis(16, 5, 1, 2), ops.same_axis(19, 7, 1, 3)],
    "valid": [ops.valid_axis(16, 5, 2), ops.valid_axis(19, 7)],
    "sequence": [ops.same_axis(37, 9)],
    "strided sequence": [ops.same_axis(37, 9, 2)],
    "causal": [ops.causal_axis(37, 5)],
    "causal, dilated": [ops.causal_axis(23, 5, 1, 2)],
    "volume": [ops.same_axis(5, 3), ops.same_axis(6, 5), ops.same_axis(7, 3)],
}


def value_and_gradients(axes, plan, dims=DIMS):
    """Output and gradients of one algorithm on fixed random tensors."""
    geometry = ops.Geometry.of(axes)
    return with_gradients(
        lambda *tensors: checks.position_output(*tensors, geometry, plan),
        random_tensors(axes, dims),
    )


@functools.cache
def einsum_of(name):
    """The same of the paper's einsum on a geometry."""
    return value_and_gradients(GEOMETRIES[name], "einsum")


def random_tensors(axes, dims):
    """Queries, values and table of two examples, always the same."""
    rng = np.random.default_rng(3)
    geometry = ops.Geometry.of(axes)
    h, k, v, u = dataclasses.astuple(dims)
    shapes = (
        (2, math.prod(geometry.queries), h, k),
        (2, *geometry.context, v, u),
        (*(axis.taps for axis in axes), k, u),
    )
    return [tf.constant(rng.normal(size=shape)) for shape in shapes]


def with_gradients(function, tensors):
    """Outputs of a function, and the gradients of a sum of them."""
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        outputs = function(*tensors)
        loss = tf.reduce_sum(outputs * tf.cos(outputs))
    return [outputs, *tape.gradient(loss, tensors)]


def assert_same(actual, expected):
    for ours, theirs in zip(actual, expected, strict=True):
        scale = np.max(np.abs(theirs)) + 1e-30
        assert np.max(np.abs(ours - theirs)) < 1e-11 * scale


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        (name, algorithm)
        for name, axes in GEOMETRIES.items()
        for algorithm in ops.implementations(len(axes))
    ],
)
def test_algorithms_are_the_same_function(name, algorithm):
    found = value_and_gradients(GEOMETRIES[name], algorithm)
    assert_same(found, einsum_of(name))


@pytest.mark.parametrize("algorithm", ops.implementations(2))
@pytest.mark.parametrize("traced", [False, True])
def test_no_examples_move_no_table(traced, algorithm):
    """Also where what is not written shows what memory held before."""
    axes = GEOMETRIES["same 7x9"]
    geometry = ops.Geometry.of(axes)

    def gradient(queries, values, table):
        with tf.GradientTape() as tape:
            tape.watch(table)
            outputs = checks.position_output(
                *(queries, values, table), geometry, algorithm
            )
        return tape.gradient(outputs, table)

    queries, values, table = random_tensors(axes, DIMS)
    tensors = queries[:0], values[:0], table
    if traced:
        specs = [
            tf.TensorSpec([None, *queries.shape[1:]], table.dtype),
            tf.TensorSpec([None, *values.shape[1:]], table.dtype),
            tf.TensorSpec(table.shape, table.dtype),
        ]
        gradient = tf.function(gradient, input_signature=specs)
    for _ in range(20):
        tf.fill(table.shape, tf.constant(1e30, table.dtype))
    assert not np.any(gradient(*tensors))


# Every size on one map; of other maps one that cuts both of their axes.
@pytest.mark.parametrize("algorithm", ["lambda_first", "query_first"])
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        *(("same 7x9", x) for x in ((1, 1), (2, 3), (4, 9), (7, 4), (5, 5))),
        ("strided", (2, 3)),
        ("dilated", (2, 3)),
    ],
)
def test_block_sizes_are_the_same_function(name, sizes, algorithm):
    plan = ops.Plan(algorithm, sizes)
    found = value_and_gradients(GEOMETRIES[name], plan)
    assert_same(found, einsum_of(name))


@pytest.mark.parametrize("algorithm", ["fourier", "fourier_tpu"])
@pytest.mark.parametrize(
    ("name", "columns"),
    [
        *(("same 7x9", columns) for columns in (1, 2, 4, 9)),
        *((name, 2) for name in ("strided", "dilated", "valid")),
    ],
)
def test_fourier_blocks_are_the_same_function(name, columns, algorithm):
    axes = GEOMETRIES[name]
    rows = ops.Geometry.of(axes).queries[0]
    found = value_and_gradients(axes, ops.Plan(algorithm, (rows, columns)))
    assert_same(found, einsum_of(name))


# A batch that fills the tiles of a TPU, one that does not, one unknown.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "algorithm", "batch"),
    [
        ("same 7x9", "fourier_tpu", 128),
        ("same 7x9", "fourier_tpu", 3),
        ("same 7x9", "fourier_tpu", None),
        ("strided", "fourier_tpu", None),
        ("volume", "fourier_tpu", 3),
        ("same 7x9", "lambda_first", None),
        ("causal", "lambda_first", 3),
    ],
)
def test_queries_read_the_sum_of_both_lambdas(name, algorithm, batch):
    rng = np.random.default_rng(5)
    geometry = ops.Geometry.of(GEOMETRIES[name])
    h, k, v, u = dataclasses.astuple(DIMS)
    shapes = (
        (batch or 4, math.prod(geometry.queries), h, k),
        (batch or 4, math.prod(geometry.context), v, u),
        (*(axis.taps for axis in geometry.axes), k, u),
        (batch or 4, math.prod(geometry.context), k, u),
    )
    tensors = [tf.constant(rng.normal(size=shape)) for shape in shapes]

    def ours(queries, values, table, keys):
        keys, values = keys[:, :, None], values[:, :, None]
        return ops.lambda_output(
            queries, keys, values, table, geometry, algorithm, None
        )

    def both(queries, values, table, keys):
        position = checks.position_output(
            queries, values, table, geometry, "einsum"
        )
        content = tf.einsum("bmku,bmvu->bkv", keys, values)
        return position + tf.einsum("bnhk,bkv->bnhv", queries, content)

    signature = [tf.TensorSpec(shape, tf.float64) for shape in shapes]
    if batch is None:
        for index in (0, 1, 3):
            shape = [None, *shapes[index][1:]]
            signature[index] = tf.TensorSpec(shape, tf.float64)
    traced = tf.function(
        lambda *tensors: with_gradients(ours, tensors),
        input_signature=signature,
    )
    assert_same(traced(*tensors), with_gradients(both, tensors))


@pytest.mark.parametrize("name", ["volume", "wider than the map"])
def test_fourier_has_second_gradients(name):
    dims = ops.Dims(num_heads=2, key_dim=2, value_dim=3, intra_depth=2)
    axes = GEOMETRIES[name]
    geometry = ops.Geometry.of(axes)

    def second(algorithm):
        def output(*tensors):
            return checks.position_output(*tensors, geometry, algorithm)

        def flat(*tensors):
            found = with_gradients(output, tensors)
            return tf.concat([tf.reshape(x, [-1]) for x in found], axis=0)

        # Small ones, for the cosines of large sums show their rounding.
        tensors = [0.1 * tensor for tensor in random_tensors(axes, dims)]
        return with_gradients(flat, tensors)

    assert_same(second("fourier"), second("einsum"))


@pytest.mark.parametrize("algorithm", ["fourier", "fourier_tpu"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(tf.bfloat16, 2e-2), (tf.float16, 2e-3)]
)
def test_half_precision_rounds_little_of_the_spectrum(
    algorithm, dtype, tolerance
):
    axes = GEOMETRIES["same 7x9"]
    geometry = ops.Geometry.of(axes)
    rng = np.random.default_rng(0)
    shapes = ((1, 63, 2, 3), (1, 7, 9, 5, 1), (5, 3, 3, 1))
    wide = [tf.constant(rng.normal(size=s), tf.float32) for s in shapes]
    half = [tf.cast(tensor, dtype) for tensor in wide]
    exact = checks.position_output(
        *[tf.cast(tensor, tf.float32) for tensor in half], geometry, "einsum"
    )
    ours = checks.position_output(*half, geometry, algorithm)
    assert ours.dtype == dtype
    error = np.max(np.abs(tf.cast(ours, tf.float32) - exact))
    assert error < tolerance * np.max(np.abs(exact))


def paper_layer_plan(size, scope, filters, **arguments):
    taps = scope or 2 * size - 1
    geometry = ops.Geometry.of([ops.same_axis(size, taps)] * 2)
    dims = ops.Dims(4, 16, filters // 4)
    return ops.plan_for(geometry, dims, **arguments)


@strategies.composite
def geometries(draw):
    """Static geometries, one to three axes; sequences up to 300 long."""
    rank = draw(strategies.sampled_from([1, 1, 2, 3]))
    longest = {1: 300, 2: 12, 3: 5}[rank]
    axes = []
    for _ in range(rank):
        size = draw(strategies.integers(1, longest))
        kernel = draw(strategies.sampled_from([1, 3, 7, 2 * size - 1]))
        dilation = draw(strategies.sampled_from([1, 1, 2]))
        make = draw(strategies.sampled_from([ops.same_axis, ops.causal_axis]))
        axes.append(make(size, kernel, 1, dilation))
    return ops.Geometry.of(axes)


@pytest.mark.slow
@pytest.mark.representatives(3)
@pytest.mark.parametrize("implementation", ops.implementations())
@hypothesis.settings(max_examples=30)
@hypothesis.given(geometry=geometries(), depth=strategies.sampled_from([1, 2]))
def test_plans_count_what_is_executed(implementation, geometry, depth):
    batch, dims = 3, ops.Dims(2, 3, 5, depth)
    plan = ops.plan_for(geometry, dims, implementation, device="cpu")
    positions = math.prod(geometry.context)
    shapes = (
        [batch, math.prod(geometry.queries), dims.num_heads, dims.key_dim],
        [batch, positions, dims.value_dim, depth],
        [*(a.first + a.taps for a in geometry.axes), dims.key_dim, depth],
    )
    with tf.Graph().as_default() as graph:
        tensors = [tf.compat.v1.placeholder(tf.float32, x) for x in shapes]
        checks.position_output(*tensors, geometry, plan)
    executed = sum(map(operation_flops, graph.get_operations()))
    assert executed == batch * plan.operations + plan.table_operations


def test_named_implementations_have_a_plan_too():
    for name in ops.implementations(2)[1:]:
        plan = paper_layer_plan(14, 7, 256, implementation=name, device="cpu")
        assert plan.algorithm == name
        assert plan.operations > 0
        assert plan.memory > 0
        others = [other.algorithm for other in plan.alternatives]
        assert name not in others
        assert "query_first" in [name, *others]


@pytest.mark.slow
def test_long_sequences_stay_small():
    """What a graph of a global sequence holds grows with the length alone."""

    def stored(length, **arguments):
        layer = layers.LambdaLayer(4, num_heads=2, key_dim=2, **arguments)
        inputs = tf.TensorSpec([1, length, 4])
        layer.build(inputs.shape)
        function = tf.function(layer, autograph=False)
        graph = function.get_concrete_function(inputs).graph
        return len(graph.as_graph_def().SerializeToString())

    for arguments in ({}, {"causal": True}, {"scope": 511}):
        assert stored(16384, **arguments) < stored(2048, **arguments) + 2**16


@pytest.mark.parametrize("implementation", ["auto", "lambda_first"])
@pytest.mark.parametrize("causal", [False, True])
def test_a_global_sequence_of_4096_positions(causal, implementation, rng):
    length, heads, keys, values = 4096, 2, 4, 3
    layer = layers.LambdaLayer(
        heads * values,
        num_heads=heads,
        key_dim=keys,
        causal=causal,
        use_batch_norm=False,
        implementation=implementation,
    )
    x = rng.normal(size=[1, length, 5]).astype(np.float32)
    output = layer(x).numpy()
    weights = {
        name: checks.raw(variable).numpy().astype(np.float64)
        for name, variable in checks.reference_weights(layer).items()
    }
    table, v = weights["embeddings"][..., 0], x[0] @ weights["value"]
    for now in (0, 63, 64, 2047, 2048, 3000, length - 1):
        seen = np.arange(now + 1 if causal else length)
        shares = oracle.softmax(x[0, seen] @ weights["key"])  # [m, k]
        content = shares.T @ v[seen]
        position = table[length - 1 - now + seen].T @ v[seen]
        query = (x[0, now] @ weights["query"]).reshape(heads, keys)
        expected = (query @ (content + position)).reshape(-1)
        checks.assert_close(output[0, now], expected, 1e-5)


def test_plans_name_what_they_passed_over():
    plan = paper_layer_plan(28, 23, 128, device="cpu")
    others = [other.algorithm for other in plan.alternatives]
    assert len({plan.algorithm, *others}) == 4
    seconds = [plan.seconds, *(other.seconds for other in plan.alternatives)]
    assert seconds == sorted(seconds)
    assert "28" in str(plan)


def test_the_choice_follows_the_geometry():
    """Small maps want scores, larger ones frequencies, on a CPU."""
    chosen = {
        size: paper_layer_plan(size, 23, 128, device="cpu").algorithm
        for size in (7, 56)
    }
    assert chosen == {7: "query_first", 56: "fourier"}
    lines = {
        size: ops.plan_for(
            ops.Geometry.of([ops.same_axis(size, 2 * size - 1)]),
            ops.Dims(4, 16, 64),
            device="cpu",
        ).algorithm
        for size in (64, 4096)
    }
    assert lines == {64: "query_first", 4096: "fft"}


@pytest.mark.parametrize("device", ["cpu", "gpu", "tpu"])
def test_the_batch_comes_last_where_arrays_are_stored_in_tiles(device):
    """Measured on no TPU: what docs/tpu_compile.md estimates."""
    plans = {
        size: paper_layer_plan(size, 23, filters, device=device)
        for size, filters in ((56, 64), (14, 256))
    }
    candidates = {
        size: [plan.algorithm, *(x.algorithm for x in plan.alternatives)]
        for size, plan in plans.items()
    }
    if device == "tpu":
        assert plans[56].algorithm == "fourier_tpu"
        assert plans[14].algorithm == "query_first"
    for names in candidates.values():
        assert ("fourier_tpu" in names) == (device == "tpu")


def test_the_choice_follows_the_batch():
    def chosen(device, size, filters, batch):
        plan = paper_layer_plan(size, 23, filters, device=device, batch=batch)
        return plan.algorithm

    # A batch that fills the lanes of a tile; the cost of a table shared.
    assert chosen("tpu", 28, 256, 128) == "fourier_tpu"
    assert chosen("tpu", 28, 256, 32) == "query_first"
    unknown = paper_layer_plan(28, 23, 256, device="tpu")
    assert unknown == paper_layer_plan(
        28, 23, 256, device="tpu", batch=ops.TYPICAL_BATCH
    )


@pytest.mark.parametrize("traced", [False, True])
def test_a_call_plans_for_its_own_batch(traced, rng, monkeypatch):
    planned = []

    def plan_for(*arguments, batch=None, **others):
        planned.append(batch)
        return choice.plan_for(*arguments, batch=batch, **others)

    x = tf.constant(rng.normal(size=[3, 5, 6, 8]), tf.float32)
    layer = layers.LambdaLayer(8, scope=3)
    layer.build((None, 5, 6, 8))
    monkeypatch.setattr(ops, "plan_for", plan_for)
    call = tf.function(layer, autograph=False) if traced else layer
    outputs = call(x)
    assert planned == [3]
    checks.assert_close(layer(x[:1])[0], outputs[0], 1e-5)
    assert planned[1:] == [1]
    tf.function(layer, autograph=False).get_concrete_function(
        tf.TensorSpec([None, 5, 6, 8])
    )
    assert planned[2:] == [None]


def test_plans_are_made_for_another_device():
    with ops.planning_for("tpu"):
        inside = paper_layer_plan(28, 23, 128)
    assert inside == paper_layer_plan(28, 23, 128, device="tpu")
    assert inside.algorithm != "fourier"


def devices_seen(run):
    """What `target_device` says where a function of no arguments is called."""
    seen = []

    def call(*_):
        seen.append(ops.devices.target_device())
        return tf.constant(0)

    run(call)
    return set(seen)


def in_replicas(call):
    tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).run(call)


def in_traced_replicas(call):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    tf.function(lambda: strategy.run(call))()


def in_replicas_that_trace(call):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    strategy.run(lambda: tf.function(call)())


def in_a_graph(call):
    with tf.Graph().as_default():
        call()


def in_a_loop(call):
    @tf.function
    def run():
        return tf.while_loop(lambda i: i < 2, lambda i: i + 1 + call(), [0])

    run()


PLACES = {
    "eager": lambda call: call(),
    "function": lambda call: tf.function(call)(),
    "loop": in_a_loop,
    "graph": in_a_graph,
    "data set": lambda call: next(iter(tf.data.Dataset.range(2).map(call))),
    "replicas": in_replicas,
    "traced replicas": in_traced_replicas,
    "replicas that trace": in_replicas_that_trace,
}


@pytest.mark.parametrize("place", PLACES)
def test_where_plans_for_another_device_are_made(place):
    assert devices_seen(PLACES[place]) == {"cpu"}
    with ops.planning_for("gpu"), ops.planning_for("tpu"):
        assert devices_seen(PLACES[place]) == {"tpu"}
    assert devices_seen(PLACES[place]) == {"cpu"}


def test_threads_and_their_replicas_keep_their_plans_apart():
    seen, together = {}, threading.Barrier(3, timeout=30)

    def run(device):
        plans = ops.planning_for(device) if device else contextlib.nullcontext()
        with plans:
            together.wait()
            seen[device] = devices_seen(in_traced_replicas)
            together.wait()

    threads = [
        threading.Thread(target=run, args=[device])
        for device in ("tpu", "gpu", None)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"tpu": {"tpu"}, "gpu": {"gpu"}, None: {"cpu"}}


def test_unknown_device_is_an_error():
    with (
        pytest.raises(
            ValueError, match=r"`device`.*cpu.*received.*abacus|abacus"
        ),
        ops.planning_for("abacus"),
    ):
        pass


def test_layers_plan_at_build():
    layer = layers.LambdaLayer(64, scope=23)
    layer.build((None, 28, 28, 64))
    assert layer.plan.operations > 0
    assert layer.inference_plan.operations > 0
    unknown = layers.LambdaConv(64, 5)
    unknown.build((None, None, None, 64))
    assert unknown.plan.algorithm == "conv2d"
    content = layers.LambdaLayer(64, use_position=False)
    content.build((None, 28, 28, 64))
    assert content.plan is None


MEMORY = """
import json, sys
import tensorflow as tf
from benchmarks.layers.speed import Line, steps
from benchmarks.timing import peak_megabytes
line = Line(tuple(json.loads(sys.argv[1])), *json.loads(sys.argv[2]))
print(peak_megabytes(steps(line, sys.argv[3])[2]))
"""


def peak(grid, rest, implementation):
    """Peak memory of a training step, in a process of its own, in MiB."""
    command = [sys.executable, "-c", MEMORY, json.dumps(grid)]
    command += [json.dumps(rest), implementation]
    output = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(output.stdout.split()[-1])


@pytest.fixture(scope="module")
def in_fork():
    """Calls a function in a process of its own that has TensorFlow already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([plan_memory.__name__])
    with context.Pool(1, maxtasksperchild=1) as pool:
        yield pool.apply


@pytest.mark.slow
@pytest.mark.parametrize("direction", plan_memory.PASSES)
@pytest.mark.parametrize(
    ("grid", "scope"), plan_memory.SHAPES[:5] + plan_memory.HELD_OUT
)
def test_plans_tell_their_memory(grid, scope, direction, in_fork):
    """A peak varies by a third from one process to the next."""
    row = in_fork(plan_memory.measure, (grid, scope, direction))
    factor = 1.5 if (grid, scope) in plan_memory.SHAPES else 2.0
    assert row["peak"] / 1.5 < row["planned"] < factor * row["peak"]


def test_auto_takes_a_plan_that_fits():
    """A global map of 256x256 needed 6 GB for a training step of one image."""
    geometry = ops.Geometry.of([ops.same_axis(256, 511)] * 2)
    dims, device = ops.Dims(4, 16, 16), ops.DEVICES["cpu"]
    plan = ops.plan_for(geometry, dims, device="cpu", batch=1)
    assert plan.memory + plan.table_memory <= device.memory
    roomy = dataclasses.replace(device, memory=math.inf)
    fastest = ops.best_plan(geometry, dims, "fourier", roomy, batch=1)
    assert fastest.memory + fastest.table_memory > device.memory


@pytest.mark.slow
def test_detection_sized_maps_train_within_two_gigabytes():
    """c4 at 1024 px: a 64x64 map, scope 23, batch 4."""
    assert peak([64, 64], [256, 23, 4], "auto") < 2048
