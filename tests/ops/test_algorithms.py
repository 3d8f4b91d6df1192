"""The table of algorithms: adding one is an entry, and so is deleting one."""

import dataclasses
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import ops
from lambdanet_tf.ops.position import choice
from lambdanet_tf.ops.position.cost import Plan
from lambdanet_tf.serving import ExportOptions
from tests.support import checks

pytestmark = pytest.mark.once

PAGE = pathlib.Path(__file__).parents[2] / "docs/engine.md"
SIZES = {"filters": 4, "num_heads": 2, "key_dim": 3}


def documented():
    """The algorithms that have a row in the page of the engine."""
    section = PAGE.read_text().split("## The algorithms\n")[1]
    table = section.strip().split("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def free(geometry, dims, new_cost):
    """A cost that no other algorithm reaches."""
    yield dataclasses.replace(new_cost().plan((), 0), seconds=0.0)


@pytest.fixture
def table():
    """The table of algorithms, put back in its order."""
    kept = dict(ops.ALGORITHMS)
    choice._best.cache_clear()
    yield ops.ALGORITHMS
    ops.ALGORITHMS.clear()
    ops.ALGORITHMS.update(kept)
    choice._best.cache_clear()


@pytest.mark.slow
def test_an_entry_is_an_algorithm(table, rng):
    """The fastest on every device."""
    toy = "toy"
    table[toy] = dataclasses.replace(
        table["einsum"], costs=free, devices=tuple(ops.DEVICES)
    )
    geometry = ops.Geometry.of([ops.same_axis(5, 3)] * 2)
    # The planner.
    plan = ops.plan_for(geometry, ops.Dims(2, 3, 2))
    assert plan.algorithm == toy
    assert toy not in [other.algorithm for other in plan.alternatives]
    # The layers, the networks and the exports.
    layer = layers.LambdaLayer(**SIZES, scope=3, implementation=toy)
    x = tf.constant(rng.normal(size=[2, 5, 5, 4]), tf.float32)
    checks.assert_close(
        layer(x), checks.oracle_output(layer, {"inputs": x}), 1e-5
    )
    assert layer.plan.algorithm == toy
    assert models.LambdaResNetSmall(
        input_shape=(8, 8, 1), implementation=toy
    ).count_params()
    assert ExportOptions(implementation=toy).implementation == toy
    # What the tests of all algorithms are made of.
    assert toy in ops.implementations()
    assert toy in ops.implementations(3)
    # Its row, which is still missing.
    assert set(ops.ALGORITHMS) - set(documented()) == {toy}


def test_every_algorithm_has_a_row_in_the_docs():
    assert documented() == list(ops.ALGORITHMS)


def test_what_deletes_an_algorithm_leaves_the_others(table):
    geometry = ops.Geometry.of([ops.same_axis(56, 23)] * 2)
    dims = ops.Dims(4, 16, 16)
    chosen = ops.plan_for(geometry, dims, device="cpu")
    del table[chosen.algorithm]
    choice._best.cache_clear()
    left = ops.plan_for(geometry, dims, device="cpu")
    assert left.algorithm == chosen.alternatives[0].algorithm
    assert chosen.algorithm not in ops.implementations()


# What they are now, by rank, where that is not what is chosen.
FORMER = {
    "spectral": {2: "fourier", 3: "fourier"},
    "spectral_batch_last": {2: "fourier_tpu", 3: "fourier_tpu"},
    "batch_last": {},
    "unfolded": {},
    "depthwise": {1: "depthwise", 2: "depthwise"},
}


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("name", FORMER)
def test_layers_of_an_earlier_version_are_loaded(name, rank, rng):
    """The names of the algorithms that there were, on every rank."""
    x = tf.constant(rng.normal(size=[2, *(4, 3, 5)[:rank], 6]), tf.float32)
    layer = layers.LambdaLayer(**SIZES, scope=3)
    layer(x)
    config = {**layer.get_config(), "implementation": name}
    loaded = layers.LambdaLayer.from_config(config)
    loaded(x)
    loaded.set_weights(layer.get_weights())
    np.testing.assert_allclose(loaded(x), layer(x), rtol=1e-5, atol=1e-5)
    expected = FORMER[name].get(rank, layer.plan.algorithm)
    assert loaded.plan.algorithm == expected
    known = loaded.implementation
    assert ops.implementation_name(known) == known


@pytest.mark.parametrize("name", ["quick", "Spectral", "toy", None, 3])
def test_a_name_that_never_was_one_is_an_error(name):
    with pytest.raises(ValueError, match="`implementation` must be one of"):
        layers.LambdaLayer(**SIZES, implementation=name)


def test_unknown_sizes_leave_what_needs_none():
    for name, algorithm in ops.ALGORITHMS.items():
        if algorithm.needs_static:
            with pytest.raises(ValueError, match="needs static spatial sizes"):
                ops.plan_for(None, None, name)
        else:
            assert ops.plan_for(None, None, name) == Plan(name)
    assert ops.plan_for(None, None, "unfolded") == Plan("conv2d")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("device", ["cpu", "gpu", "tpu", "portable"])
def test_long_sequences_take_transforms_where_there_are_any(device, causal):
    length = 16384
    axis = ops.same_axis(length, 2 * length - 1)
    if causal:
        axis = ops.causal_axis(length, length)
    geometry = ops.Geometry.of([axis])
    plan = ops.plan_for(geometry, ops.Dims(4, 16, 16), device=device)
    others = {other.algorithm: other for other in plan.alternatives}
    if device == "portable":
        assert "fft" not in [plan.algorithm, *others]
    elif device == "tpu" and causal:
        # The transforms of the halves wait for memory.
        assert "fft" in others
    else:
        assert plan.algorithm == "fft"
        # Its work grows as n log n, that of all others as n^2.
        least = min(other.operations for other in others.values())
        assert plan.operations < least / 40
