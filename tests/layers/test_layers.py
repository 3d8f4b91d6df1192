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
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from tests.support import cases
from tests.support import checks
from tests.support.checks import built
from tests.support.checks import normal

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


def agree(layer_type, drawn, implementation, dtype, jointly):
    arguments, call, training = drawn
    rng = np.random.default_rng(7)
    layer = layer_type(**arguments, implementation=implementation, dtype=dtype)
    layer(**{name: tf.constant(value) for name, value in call.items()})
    checks.randomize(layer, rng)
    checks.assert_equals_oracle(layer, call, rng, training, jointly)


few = hypothesis.settings(
    max_examples=15, suppress_health_check=[*hypothesis.HealthCheck]
)


@pytest.mark.once
@cases.every_implementation
@few
@hypothesis.given(drawn=odd(1, 2, 3).flatmap(drawn_layers))
def test_any_layer_equals_the_reference(implementation, drawn):
    agree(layers.LambdaLayer, drawn, implementation, "float64", jointly=True)


_SMALL = {"filters": 22, "num_heads": 2, "key_dim": 3}
_VALID = {"kernel_size": 3, "padding": "valid"}
_PAST = {"kernel_size": 5, "padding": "causal"}
_LINE, _MAP, _VOLUME = (13,), (5, 7), (2, 3, 5)
# (layer, arguments, grid): one of each kind, in float32, every gradient by
# itself.
SINGLE_PRECISION = {
    "global": (LambdaLayer, {}, _MAP),
    "scope": (LambdaLayer, {"scope": (3, 5), "intra_depth": 2}, _MAP),
    "l2": (LambdaLayer, {"key_normalization": "l2"}, _LINE),
    "causal": (LambdaLayer, {"causal": True}, _LINE),
    "volume": (LambdaLayer, {"scope": 3}, _VOLUME),
    "strided": (LambdaConv, {"kernel_size": (3, 5), "strides": 2}, _MAP),
    "dilated": (LambdaConv, {**_VALID, "dilation_rate": (1, 2)}, _MAP),
    "conv_causal": (LambdaConv, {**_PAST, "dilation_rate": 2}, _LINE),
    "attention": (RelativeAttention, {}, _MAP),
    "attention_scope": (RelativeAttention, {"scope": (3, 5)}, _MAP),
    "attention_causal": (RelativeAttention, {"causal": True}, _LINE),
}


# Every kind by the algorithm that is chosen; of each algorithm what rounds:
# its sums over a line and over a map.
@pytest.mark.parametrize(
    ("kind", "given", "training"),
    [
        *((kind, {}, True) for kind in SINGLE_PRECISION),
        ("global", {}, False),
        *(
            (kind, {"implementation": name}, True)
            for kind, rank in (("scope", 2), ("causal", 1))
            for name in ops.implementations(rank)[1:]
        ),
    ],
    ids=str,
)
def test_single_precision(kind, given, training, rng):
    layer_type, arguments, grid = SINGLE_PRECISION[kind]
    x = normal(rng, 2, *grid, 11)
    layer = built(x, layer_type, seed=3, **_SMALL, **arguments, **given)
    checks.assert_equals_oracle(layer, {"inputs": x}, rng, training)


def narrow(x, **arguments):
    """A layer of few channels with random weights in float64."""
    size = {"filters": 4, "num_heads": 2, "key_dim": 3, "dtype": "float64"}
    return built(x, RelativeAttention, **size, **arguments)


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
    masked = {
        "context": rng.normal(size=[2, *around, 4]),
        "context_mask": rng.uniform(size=[2, *around]) < 0.7,
        "attention_mask": rng.uniform(size=[2, *pairs]) < 0.7,
    }
    for call in ({}, masked):
        layer, call = narrow(x, call=call, **arguments), {"inputs": x, **call}
        checks.assert_equals_oracle(layer, call, rng, jointly=True)


@pytest.mark.slow
def test_memory_of_a_local_scope_is_linear():
    local = built(
        np.zeros([1, 16, 16, 8]), RelativeAttention, num_heads=2, scope=5
    )
    sizes = [16, 16, 8], [64, 64, 8]
    small, large = (checks.largest_tensor(local, [1, *size]) for size in sizes)
    assert large <= 17 * small
    assert large < 64**4 / 8
