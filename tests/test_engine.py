"""Every algorithm and every block size against the paper's einsum.

The einsum itself is held against the loops of `oracle.py` in `test_layers.py`;
here float64 shows that the orders of summation are the same function, for
geometries and block sizes that small layers never reach.
"""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import ops

DEPTHS = ops.Depths(num_heads=2, key_dim=3, value_dim=5, intra_depth=2)
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


def value_and_gradients(axes, plan, intra_depth=DEPTHS.intra_depth):
    """Output and gradients of one algorithm on fixed random tensors."""
    rng = np.random.default_rng(3)
    geometry = ops.Geometry.of(axes)
    h, k, v, _ = (getattr(DEPTHS, f) for f in DEPTHS.__dataclass_fields__)
    shapes = (
        (2, math.prod(geometry.queries), h, k),
        (2, *geometry.context, v, intra_depth),
        (*(axis.taps for axis in axes), k, intra_depth),
    )
    tensors = [tf.constant(rng.normal(size=shape)) for shape in shapes]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        outputs = ops.position_output(*tensors, geometry, plan)
        loss = tf.reduce_sum(outputs * tf.cos(outputs))
    return [outputs, *tape.gradient(loss, tensors)]


def assert_same(actual, expected):
    for ours, theirs in zip(actual, expected, strict=True):
        scale = np.max(np.abs(theirs)) + 1e-30
        assert np.max(np.abs(ours - theirs)) < 1e-11 * scale


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("algorithm", ops.IMPLEMENTATIONS)
def test_algorithms_are_the_same_function(name, algorithm):
    axes = GEOMETRIES[name]
    assert_same(
        value_and_gradients(axes, algorithm),
        value_and_gradients(axes, "einsum"),
    )


@pytest.mark.parametrize("algorithm", ["lambda_first", "query_first"])
@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (4, 9), (7, 4), (5, 5)])
@pytest.mark.parametrize("name", ["same 7x9", "strided", "dilated"])
def test_block_sizes_are_the_same_function(name, sizes, algorithm):
    axes = GEOMETRIES[name]
    assert_same(
        value_and_gradients(axes, ops.Plan(algorithm, sizes)),
        value_and_gradients(axes, "einsum"),
    )


@pytest.mark.parametrize("columns", [1, 2, 4, 9])
@pytest.mark.parametrize("name", ["same 7x9", "strided", "dilated", "valid"])
def test_spectral_blocks_are_the_same_function(name, columns):
    axes = GEOMETRIES[name]
    rows = ops.Geometry.of(axes).queries[0]
    assert_same(
        value_and_gradients(axes, ops.Plan("spectral", (rows, columns))),
        value_and_gradients(axes, "einsum"),
    )


def test_half_precision_keeps_the_spectrum_in_float32():
    axes = GEOMETRIES["same 7x9"]
    geometry = ops.Geometry.of(axes)
    rng = np.random.default_rng(0)
    shapes = ((1, 63, 2, 3), (1, 7, 9, 5, 1), (5, 3, 3, 1))
    wide = [tf.constant(rng.normal(size=s), tf.float32) for s in shapes]
    half = [tf.cast(tensor, tf.bfloat16) for tensor in wide]
    exact = ops.position_output(
        *[tf.cast(tensor, tf.float32) for tensor in half], geometry, "einsum"
    )
    ours = ops.position_output(*half, geometry, "spectral")
    assert ours.dtype == tf.bfloat16
    error = np.max(np.abs(tf.cast(ours, tf.float32) - exact))
    assert error < 2e-2 * np.max(np.abs(exact))


def paper_layer_plan(size, scope, filters, **arguments):
    taps = scope or 2 * size - 1
    geometry = ops.Geometry.of([ops.same_axis(size, taps)] * 2)
    depths = ops.Depths(4, 16, filters // 4)
    return ops.plan_for(geometry, depths, **arguments)


def test_operations_are_those_of_the_docs():
    """The formulas of docs/engine.md, for one block and one geometry."""
    n = m = s = 14 * 14
    k, h, v = 16, 4, 64
    plans = {
        plan.algorithm: plan
        for first in [paper_layer_plan(14, None, 256, device="cpu")]
        for plan in (first, *first.alternatives)
    }
    assert plans["query_first"].operations == 2 * n * s * h * (k + v)
    assert plans["query_first"].memory == 4 * n * h * s
    assert plans["lambda_first"].operations == (
        2 * n * m * k * v + 2 * n * h * k * v
    )
    taps = 27 * 27
    assert plans["conv2d"].operations == (
        2 * n * taps * k * v + 2 * n * h * k * v
    )
    frequencies = (13 + 13 + 1) // 2 + 1
    w = s = 14
    assert plans["spectral"].sizes == (14, 14)
    assert plans["spectral"].operations == (
        8 * frequencies * w * s * k * v
        + 4 * n * frequencies * k * v
        + 2 * n * h * k * v
    )


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
    assert chosen == {7: "query_first", 56: "spectral"}


def test_sequences_never_take_the_spectrum():
    for scope in (3, 63, 255):
        axis = ops.causal_axis(1024, scope)
        plan = ops.plan_for(ops.Geometry.of([axis]), DEPTHS)
        names = [plan.algorithm, *(p.algorithm for p in plan.alternatives)]
        assert "spectral" not in names


def test_plans_are_made_for_another_device():
    with ops.planning_for("tpu"):
        inside = paper_layer_plan(28, 23, 128)
    assert inside == paper_layer_plan(28, 23, 128, device="tpu")
    assert inside.algorithm != "spectral"


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
from benchmarks.engine import Line, steps
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


@pytest.mark.slow
def test_detection_sized_maps_train_within_two_gigabytes():
    """c4 at 1024 px: a 64x64 map, scope 23, batch 4."""
    assert peak([64, 64], [256, 23, 4], "auto") < 2048
