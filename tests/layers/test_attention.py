"""Attention against its reference, and properties that it must have.

Forward and with all gradients, in float64.
"""

import math

import numpy as np
import pytest

from lambdanet_tf import layers
from tests.support import checks
from tests.support.random_layers import attention


def narrow(x, **arguments):
    """A layer of few channels with random weights in float64."""
    size = {"filters": 4, "num_heads": 2, "key_dim": 3, "dtype": "float64"}
    return attention(x, **size, **arguments)


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
def test_it_equals_the_reference(kind, rng):
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
    local = attention(np.zeros([1, 16, 16, 8]), num_heads=2, scope=5)
    sizes = [16, 16, 8], [64, 64, 8]
    small, large = (checks.largest_tensor(local, [1, *size]) for size in sizes)
    assert large <= 17 * small
    assert large < 64**4 / 8
