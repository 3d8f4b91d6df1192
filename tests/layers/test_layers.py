"""Lambda layers and attention against the references.

Every implementation, over drawn layers and shapes, forward and all gradients.
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
from tests.support import cases
from tests.support import checks
from tests.support.checks import built

pytestmark = pytest.mark.every_lane

SIZES = {1: (2, 3, 5, 7, 11), 2: (2, 3, 5), 3: (1, 2, 3)}


def grids(rank):
    return strategies.tuples(*[strategies.sampled_from(SIZES[rank])] * rank)


def odd(*values):
    return strategies.sampled_from(values)


@strategies.composite
def common_arguments(draw):
    num_heads = draw(odd(1, 2, 3))
    return {
        "filters": num_heads * draw(odd(1, 2, 5)),
        "num_heads": num_heads,
        "key_dim": draw(odd(1, 3, 7)),
        "intra_depth": draw(odd(1, 1, 2)),
        "use_position_bias": draw(strategies.booleans()),
        "key_normalization": draw(odd("softmax", "softmax", "l2", None)),
        "query_normalization": draw(odd(None, "softmax")),
        "use_batch_norm": draw(strategies.booleans()),
        "norm_epsilon": draw(odd(1e-3, 0.1)),
    }


@strategies.composite
def drawn_layers(draw, rank):
    """(arguments of a LambdaLayer, shapes and masks of a call, training)."""
    arguments = draw(common_arguments())
    grid = draw(grids(rank))
    positions = int(np.prod(grid))
    rng = np.random.default_rng(draw(strategies.integers(0, 99)))
    batch, channels = draw(odd(1, 2, 3)), draw(odd(2, 5))
    part = draw(odd("both", "both", "content", "position"))
    arguments["use_content"] = part != "position"
    arguments["use_position"] = part != "content"
    arguments["use_position_bias"] &= part != "content"
    scopes = strategies.tuples(*[odd(1, 3, 5, 7)] * rank)
    arguments["scope"] = draw(strategies.none() | odd(3, 5) | scopes)
    call = {"inputs": rng.normal(size=[batch, *grid, channels])}

    shape = grid
    context = draw(odd(None, None, "grid", "other"))
    explicit = part != "content" and draw(odd(False, False, True))
    if context == "other" and (part == "content" or explicit):
        shape = draw(grids(draw(odd(1, 2, 3))))
    if context is not None:
        channels = draw(odd(2, 3))
        call["context"] = rng.normal(size=[batch, *shape, channels])
    num_context = int(np.prod(shape))
    if explicit:
        arguments |= {"position_embedding": "explicit", "scope": None}
        depth = arguments["intra_depth"]
        sizes = [batch] * draw(strategies.booleans())
        sizes += [positions, num_context, arguments["key_dim"]]
        sizes += [depth] * (depth > 1)
        call["embeddings"] = rng.normal(size=sizes)
    if rank == 1 and shape == grid:
        arguments["causal"] = draw(strategies.booleans())
    masked = draw(odd(None, None, "mask", "padding", "both"))
    if masked in ("mask", "both"):
        sizes = [*draw(odd((), (1,), (batch,))), draw(odd(1, positions))]
        sizes += [num_context]
        call["attention_mask"] = rng.integers(0, 2, sizes)
    training = draw(strategies.booleans())
    if masked in ("padding", "both"):
        real = rng.integers(0, 2, [batch, num_context]).astype(bool)
        if training:  # statistics of nothing are not defined
            real[0, 0] = True
        if draw(strategies.booleans()):
            real = real.reshape([batch, *shape])
        call["context_mask"] = real
    return arguments, call, training


@pytest.mark.once
@hypothesis.settings(
    max_examples=40, suppress_health_check=[*hypothesis.HealthCheck]
)
@hypothesis.given(
    drawn=odd(1, 2, 3).flatmap(drawn_layers),
    implementation=odd(*ops.implementations()),
)
def test_any_layer_equals_the_reference(implementation, drawn):
    arguments, call, training = drawn
    rng = np.random.default_rng(7)
    arguments |= {"implementation": implementation, "dtype": "float64"}
    layer = layers.LambdaLayer(**arguments)
    layer(**{name: tf.constant(value) for name, value in call.items()})
    checks.randomize(layer, rng)
    checks.assert_equals_oracle(layer, call, rng, training, jointly=True)


# Every row by the algorithm that is chosen; of each algorithm what rounds: its
# sums over a line and over a map. Every gradient by itself.
ROWS = {x.name: x for x in cases.CASES if "num_heads" in x.arguments}


@pytest.mark.parametrize(
    ("row", "given", "training"),
    [
        *((name, {}, True) for name in ROWS),
        ("global", {}, False),
        *(
            (name, {"implementation": algorithm}, True)
            for name, rank in (("intra_depth", 2), ("causal_global", 1))
            for algorithm in ops.implementations(rank)[1:]
        ),
    ],
    ids=str,
)
def test_single_precision(row, given, training, rng):
    case = ROWS[row]
    call = case.data(2)
    if case.attention_mask is not None:
        call["attention_mask"] = case.attention_mask
    layer = case.layer(**case.arguments | given)
    layer(**call)
    checks.randomize(layer, rng)
    checks.assert_equals_oracle(layer, call, rng, training)


_JOINT, _CONTENT = {"position_embedding": "joint"}, {"position_embedding": None}
_TABLE = layers.RelativePositionEmbedding(3, scope=3, dtype="float64")
# Grids that are cut into several blocks, some of them in part, and whole ones;
# of content alone a context on another grid.
KINDS = {
    "sequence": ({"scope": 3}, (37,)),
    "long_scope": ({"scope": 13}, (41,)),
    "causal": ({"scope": 5, "causal": True}, (31,)),
    "map": ({"scope": (3, 5)}, (9, 13)),
    "joint": ({"scope": 3, **_JOINT}, (9, 8)),
    "lines": ({"scope": 5, "axis": 2}, (3, 17)),
    "volume": ({"scope": 3}, (5, 4, 5)),
    "positions": ({"scope": 3, "use_content": False}, (5, 7)),
    "whole_joint": (_JOINT, (5, 7)),
    "whole_past": ({"axis": 1, "causal": True}, (7, 3)),
    "content_scope": ({"scope": 3, **_CONTENT}, (7, 5)),
    "content": (_CONTENT, (5, 7), (2, 3, 4)),
    "content_causal": ({"causal": True, **_CONTENT}, (9,)),
    "shared_table": ({"scope": 3, "position_embedding": _TABLE}, (5, 6)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_attention_equals_the_reference(kind, rng):
    arguments, grid, *other = KINDS[kind]
    [around] = other or [grid]
    pairs = math.prod(grid), math.prod(around)
    if "axis" in arguments:
        pairs = (grid[arguments["axis"] - 1],) * 2
    x = rng.normal(size=[2, *grid, 3])
    forms = (), (1,), (2,)
    form = [*forms[rng.integers(3)], rng.choice([1, pairs[0]]), pairs[1]]
    masked = {
        "context": rng.normal(size=[2, *around, 4]),
        "context_mask": rng.uniform(size=[2, *around]) < 0.7,
        "attention_mask": rng.uniform(size=form) < 0.7,
    }
    size = {"filters": 4, "num_heads": 2, "key_dim": 3, "dtype": "float64"}
    for call in ({}, masked):
        layer = built(x, RelativeAttention, call=call, **size, **arguments)
        call = {"inputs": x, **call}
        checks.assert_equals_oracle(layer, call, rng, jointly=True)
