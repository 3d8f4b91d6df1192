"""Every algorithm and every block size against the paper's einsum, in float64.

The einsum itself is compared with the loops of `oracle.py` in `test_layers.py`.
"""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from benchmarks.layers import speed
from lambdanet_tf import layers
from lambdanet_tf import ops
from lambdanet_tf.analysis.traced_flops import operation_flops
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
    "causal, halved": [ops.causal_axis(300, 290)],
    "causal, strided, halved": [ops.causal_axis(600, 550, 2)],
    "volume": [ops.same_axis(5, 3), ops.same_axis(6, 5), ops.same_axis(7, 3)],
}


def position(axes, plan="einsum"):
    """What queries, values and a table give by one algorithm: a function."""
    geometry = ops.Geometry.of(axes)
    return lambda *tensors: checks.position_output(*tensors, geometry, plan)


def value_and_gradients(axes, plan):
    """Output and gradients of one algorithm on fixed random tensors."""
    return with_gradients(position(axes, plan), random_tensors(axes))


def random_tensors(axes, dims=DIMS):
    """Queries, values and table, always the same."""
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
    return checks.with_gradients(
        function, tensors, lambda y: tf.reduce_sum(y * tf.cos(y))
    )


def assert_same(actual, expected):
    checks.assert_each_close(actual, expected, 1e-11)


def cut(*sizes):
    algorithms = ("lambda_first", "query_first")
    return [ops.Plan(x, size) for x in algorithms for size in sizes]


def fourier(*sizes):
    return [ops.Plan("fourier", size) for size in sizes]


# Every block size on one map; of other maps one that cuts both of their axes.
# What transforms keeps the rows of a map together.
BLOCKS = {
    "same 7x9": [
        *cut((1, 1), (2, 3), (4, 9), (7, 4), (5, 5)),
        *fourier((7, 1), (7, 2), (7, 4), (7, 9)),
    ],
    "strided": [*cut((2, 3)), *fourier((8, 2))],
    "dilated": [*cut((2, 3)), *fourier((16, 2))],
    "valid": fourier((6, 2)),
}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_all_orders_of_summation_are_the_same_function(name):
    axes = GEOMETRIES[name]
    expected = value_and_gradients(axes, "einsum")
    for plan in (*ops.implementations(len(axes)), *BLOCKS.get(name, ())):
        assert_same(value_and_gradients(axes, plan), expected)


def paper_layer_plan(size, scope, filters, rank=2, **arguments):
    taps = scope or 2 * size - 1
    geometry = ops.Geometry.of([ops.same_axis(size, taps)] * rank)
    dims = ops.Dims(4, 16, filters // 4)
    return ops.plan_for(geometry, dims, **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ops.implementations())
def test_plans_count_what_is_executed(implementation):
    for (name, axes), depth in itertools.product(GEOMETRIES.items(), (1, 2)):
        dims = ops.Dims(2, 3, 5, depth)
        if implementation == "depthwise" and axes[0].stride > 1:
            continue  # TensorFlow knows equal strides alone, and drops others.
        geometry = ops.Geometry.of(axes)
        given = {"device": "cpu", "batch": 2}
        plan = ops.plan_for(geometry, dims, implementation, **given)
        shapes = [x.shape for x in random_tensors(axes, dims)]
        with tf.Graph().as_default() as graph:
            tensors = [tf.compat.v1.placeholder(tf.float32, x) for x in shapes]
            position(axes, plan)(*tensors)
        executed = sum(map(operation_flops, graph.get_operations()))
        assert executed == plan.operations, name


@pytest.mark.parametrize("implementation", ["auto", "lambda_first"])
@pytest.mark.parametrize("causal", [False, True])
def test_a_global_sequence_of_4096_positions(causal, implementation, rng):
    length, heads, keys, values = 4096, 2, 4, 3
    size = {"num_heads": heads, "key_dim": keys, "use_batch_norm": False}
    settings = {"causal": causal, "implementation": implementation}
    layer = layers.LambdaLayer(heads * values, **size, **settings)
    x = rng.normal(size=[1, length, 5]).astype(np.float32)
    output = layer(x).numpy()
    weights, _ = checks.split_point(layer, {})
    table, v = weights["embeddings"][..., 0], x[0] @ weights["value"]
    for now in (0, 63, 64, 2047, 2048, 3000, length - 1):
        seen = np.arange(now + 1 if causal else length)
        shares = oracle.softmax(x[0, seen] @ weights["key"])  # [m, k]
        content = shares.T @ v[seen]
        position = table[length - 1 - now + seen].T @ v[seen]
        query = (x[0, now] @ weights["query"]).reshape(heads, keys)
        expected = (query @ (content + position)).reshape(-1)
        checks.assert_close(output[0, now], expected, 1e-5)


# Small maps want scores, larger ones frequencies, on a CPU.
@pytest.mark.parametrize(
    ("line", "arguments", "chosen"),
    [
        ((7, 23, 128), {"device": "cpu"}, "query_first"),
        ((56, 23, 128), {"device": "cpu"}, "fourier"),
        ((64, None, 256), {"device": "cpu", "rank": 1}, "query_first"),
        ((4096, None, 256), {"device": "cpu", "rank": 1}, "fft"),
        ((16384, None, 64), {"device": "gpu", "rank": 1}, "fft"),
        ((14, 23, 256), {"device": "tpu"}, "query_first"),
        ((28, 23, 256), {"device": "tpu", "batch": 32}, "query_first"),
    ],
)
def test_the_choice_follows_geometry_batch_and_device(line, arguments, chosen):
    assert paper_layer_plan(*line, **arguments).algorithm == chosen


def test_unknown_names_are_an_error():
    with pytest.raises(ValueError, match="'fast'"):
        value_and_gradients(GEOMETRIES["sequence"], "fast")
    with pytest.raises(ValueError, match="needs static spatial sizes"):
        ops.plan_for(None, None, "fourier")
    with pytest.raises(ValueError, match=r"`device`.*cpu.*abacus"):
        ops.planning_for("abacus").__enter__()


def test_auto_takes_a_plan_that_fits():
    """All pairs of a global map of 256x256 would be 4 billion."""
    geometry = ops.Geometry.of([ops.same_axis(256, 511)] * 2)
    dims = ops.Dims(4, 16, 16)
    plan = ops.plan_for(geometry, dims, device="cpu", batch=1)
    algorithm = ops.ALGORITHMS[plan.algorithm]
    place = dict(algorithm.plans(geometry))[plan.sizes]
    assert algorithm.work(place, dims, 1).largest <= 2**28


def regret(row):
    """The time of the choice over that of the fastest algorithm."""
    line = speed.Line(**row["layer"])
    taps = [line.scope or 2 * size - 1 for size in line.grid]
    axes = map(ops.same_axis, line.grid, taps)
    if line.causal:
        axes = [ops.causal_axis(line.grid[0], taps[0] // 2 + 1)]
    value_dim = line.filters // line.num_heads
    plan = ops.plan_for(
        ops.Geometry.of(axes),
        ops.Dims(line.num_heads, line.key_dim, value_dim, line.intra_depth),
        device="cpu",
        training=row["case"]["phase"] == "training",
        batch=line.batch,
    )
    seconds = {x: timing.median(y) for x, y in row["seconds"].items()}
    return seconds[plan.algorithm] / min(seconds.values())


def test_the_planner_chooses_well():
    """On layers drawn at random, to which nothing was fitted."""
    for phase in ("forward", "training"):
        found = [
            regret(row)
            for row in records.latest("regret")
            if row["case"]["draw"] > 10 and row["case"]["phase"] == phase
        ]
        assert len(found) == 72
        assert np.mean(found) <= 1.04
        assert max(found) <= 1.6
