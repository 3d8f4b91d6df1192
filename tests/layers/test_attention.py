"""Attention against its reference, and properties that it must have.

Over randomly drawn layers and shapes, forward and with all gradients, in
float64; in float32 as used.
"""

import math

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from lambdanet_tf import layers
from lambdanet_tf import ops
from lambdanet_tf.layers import RelativeAttention
from tests.support import checks
from tests.support.random_layers import attention
from tests.support.random_layers import copy_weights
from tests.support.random_layers import normal

SIZES = {1: (2, 3, 5, 7, 11), 2: (2, 3, 5), 3: (1, 2, 3)}
_SIZE = {"filters": 10, "num_heads": 2, "key_dim": 3}


def odd(*numbers):
    return strategies.sampled_from(numbers)


@strategies.composite
def drawn_layers(draw, rank):
    """(arguments of a layer, inputs and masks of a call)."""
    num_heads, value_dim = draw(odd(1, 2, 3)), draw(odd(1, 2, 5))
    grid = draw(strategies.tuples(*[odd(*SIZES[rank])] * rank))
    rng = np.random.default_rng(draw(strategies.integers(0, 99)))
    batch, channels = draw(odd(1, 2, 3)), draw(odd(2, 5))
    axis = draw(strategies.none() | strategies.integers(1, rank))
    attended = rank if axis is None else 1
    scopes = strategies.tuples(*[odd(1, 3, 5, 7)] * attended)
    part = draw(odd("both", "both", "content", "position"))
    kinds = ("per_axis", "joint") if part != "content" else (None,)
    arguments = {
        "filters": num_heads * value_dim,
        "num_heads": num_heads,
        "key_dim": draw(odd(None, 1, 3, 7)),
        "scope": draw(strategies.none() | odd(3, 5) | scopes),
        "axis": axis,
        "use_content": part != "position",
        "position_embedding": draw(odd(*kinds)),
        "causal": attended == 1 and draw(strategies.booleans()),
    }
    call = {"inputs": rng.normal(size=[batch, *grid, channels])}
    free = part == "content" and arguments["scope"] is None and axis is None
    shape = grid
    context = draw(odd(None, None, "grid", "other"))
    if context == "other" and free and not arguments["causal"]:
        other = draw(odd(1, 2, 3))
        shape = draw(strategies.tuples(*[odd(*SIZES[other])] * other))
    if context is not None:
        channels = draw(odd(2, 3))
        call["context"] = rng.normal(size=[batch, *shape, channels])
    masked = draw(odd(None, None, "mask", "padding", "both"))
    if masked in ("mask", "both"):
        n, m = np.prod(grid), np.prod(shape)
        if axis is not None:
            n = m = grid[axis - 1]
        examples = [batch] * draw(strategies.booleans())
        call["attention_mask"] = rng.integers(0, 2, [*examples, n, m])
    if masked in ("padding", "both"):
        call["context_mask"] = rng.integers(0, 2, [batch, *shape]) > 0
    return arguments, call


few = hypothesis.settings(
    max_examples=60,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
    ],
)


@pytest.fixture(autouse=True, scope="module")
def _small_maps_take_the_form_of_large_ones():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops.position_scores, "_MAX_PAIRS", 0)
        yield


@pytest.mark.slow
@few
@hypothesis.given(
    drawn=strategies.sampled_from([1, 2, 3]).flatmap(drawn_layers)
)
def test_any_layer_equals_the_reference(drawn):
    arguments, call = drawn
    layer = RelativeAttention(**arguments, dtype="float64")
    layer(**{name: tf.constant(value) for name, value in call.items()})
    checks.randomize(layer, np.random.default_rng(7))
    rng = np.random.default_rng(8)
    checks.assert_equals_oracle(layer, call, rng, jointly=True)


def narrow(x, **arguments):
    """A layer of few channels with random weights in float64."""
    size = {"filters": 4, "num_heads": 2, "key_dim": 3, "dtype": "float64"}
    return attention(x, **size, **arguments)


# Sizes that are cut into several blocks, some of them in part.
BLOCKED = {
    "sequence": ({"scope": 3}, (37,)),
    "long_scope": ({"scope": 13}, (41,)),
    "causal": ({"scope": 5, "causal": True}, (31,)),
    "map": ({"scope": (3, 5)}, (9, 13)),
    "joint": ({"scope": 3, "position_embedding": "joint"}, (9, 8)),
    "lines": ({"scope": 5, "axis": 2}, (3, 17)),
    "volume": ({"scope": 3}, (5, 4, 5)),
}


@pytest.mark.parametrize("kind", BLOCKED)
def test_blocks_equal_the_reference(kind, rng):
    arguments, grid = BLOCKED[kind]
    call = {"inputs": rng.normal(size=[2, *grid, 3])}
    call["context_mask"] = rng.uniform(size=[2, *grid]) < 0.7
    layer = narrow(call["inputs"], **arguments)
    checks.assert_equals_oracle(layer, call, rng, jointly=True)


# The halves of Ramachandran et al. (2019), of rows beside of columns, are two
# tables with zeros in the other's half.
@pytest.mark.parametrize("scope", [None, 3])
def test_a_joint_table_holds_the_sum_of_two(scope, rng):
    x = normal(rng, 2, 5, 7, 6)
    layer = attention(x, **_SIZE, scope=scope)
    joint = attention(x, **_SIZE, scope=scope, position_embedding="joint")
    weights, _ = checks.split_point(layer, {})
    rows, columns = (weights[f"axis{i}_embedding"] for i in (1, 2))
    copy_weights(layer, joint, embeddings=rows[:, None] + columns)
    checks.assert_close(joint(x), layer(x), 1e-5)


def test_scores_start_with_unit_variance(rng):
    x = normal(rng, 4, 8, 8, 64)
    layer = RelativeAttention(256, num_heads=4, scope=7)
    layer(x)
    for name in ("query", "key", "value"):
        kernel = checks.raw(getattr(layer, name).kernel)
        assert np.std(kernel) == pytest.approx(64**-0.5, rel=0.05)
    for table in layer.tables():
        embeddings = checks.raw(table.embeddings)
        assert np.std(embeddings) == pytest.approx(64**-0.5, rel=0.15)


def test_a_table_can_be_shared(rng):
    x = normal(rng, 2, 5, 6, 8)
    table = layers.RelativePositionEmbedding(key_dim=4, scope=3)
    first, second = (
        RelativeAttention(8, num_heads=2, scope=3, position_embedding=table)
        for _ in range(2)
    )
    inputs = tf.keras.Input([5, 6, 8])
    model = tf.keras.Model(inputs, second(first(inputs)))
    assert len(model.trainable_weights) == 7
    checks.randomize(model, rng)
    middle = checks.oracle_output(first, {"inputs": x})
    expected = checks.oracle_output(second, {"inputs": middle})
    checks.assert_close(model(x), expected, 1e-5)


@pytest.mark.slow
def test_memory_of_a_local_scope_is_linear():
    local = RelativeAttention(8, num_heads=2, scope=5)
    local.build((1, 16, 16, 8))
    small, large = (
        checks.largest_tensor(local, [1, n, n, 8]) for n in (16, 64)
    )
    assert large <= 17 * small
    assert large < 64**4 / 8


PARTS = {
    "joint": ({"position_embedding": "joint"}, (5, 7), "by head"),
    "map": ({}, (5, 7), None),
    "causal": ({"causal": True}, (23,), "padding"),
    "position": ({"use_content": False, "axis": 2}, (3, 11), "pairs"),
    "volume": ({"scope": 3}, (5, 2, 4), "pairs"),
}


@pytest.mark.representatives(3)
@pytest.mark.parametrize("kind", PARTS)
def test_parts_of_the_queries_are_the_same_function(kind, rng, monkeypatch):
    arguments, grid, masked = PARTS[kind]
    x = tf.constant(rng.normal(size=[2, *grid, 3]))
    layer = narrow(x, **arguments)
    n = math.prod(grid) if layer.axis is None else grid[layer.axis - 1]
    call = {}
    if masked == "padding":
        call["context_mask"] = rng.uniform(size=[2, *grid]) < 0.7
    elif masked is not None:
        heads = [2, 2] if masked == "by head" else []
        call["attention_mask"] = rng.uniform(size=[*heads, n, n]) < 0.6

    def step(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                outputs = layer(x, **call)
                loss = tf.reduce_sum(outputs**3)
            weights = map(checks.raw, layer.trainable_weights)
            gradients = tape.gradient(loss, [x, *weights])
            norm = tf.add_n([tf.reduce_sum(d**2) for d in gradients])
        return [outputs, *gradients, outer.gradient(norm, x)]

    expected = step(x)
    monkeypatch.setattr(ops.attention, "_MAX_SCORES", 0)
    monkeypatch.setattr(ops.attention, "_SCORES_OF_PART", n**2 * 16 // 3)
    # What takes seconds to trace and compile: two that are no representatives.
    way = {
        "map": tf.function(step, jit_compile=True),
        "position": tf.function(step),
    }.get(kind, step)
    for part, whole in zip(way(x), expected, strict=True):
        checks.assert_close(part, whole, 1e-10)
