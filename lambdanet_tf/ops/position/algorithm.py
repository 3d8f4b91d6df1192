"""What the table of algorithms says of each."""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A way to compute position outputs, and what it costs.

    Attributes:
        run: function of queries `(batch, n, heads, key_dim)`, values `(batch,
            *context, value_dim, intra_depth)`, the table `(*taps, key_dim,
            intra_depth)`, already cropped, and the `Geometry` or its
            `Blocks`. Returns `(batch, n, heads, value_dim)`.
        costs: function of a static geometry, `Dims`, and a function that
            makes a `CostModel`; yields a `Plan` for each way to cut it.
        blocked: whether `run` takes the `Blocks` of a plan for the geometry.
        reads_content: whether `run` takes a content lambda, `(batch, key_dim,
            value_dim)` or None, as one more argument.
        needs_static: whether it needs sizes that are known when it is traced.
        mixes_positions: whether rounding errors of a position reach positions
            outside its scope, also where the geometry is not causal itself.
        ranks: axes of the geometries that it serves.
        devices: names of the `DEVICES` on which `"auto"` considers it.
        widened: those on which it computes half precisions in float32 though
            their matrix units add up in it.
    """

    run: Callable[..., Any]
    costs: Callable[..., Any]
    blocked: bool = False
    reads_content: bool = False
    needs_static: bool = True
    mixes_positions: bool = False
    ranks: tuple[int, ...] = (1, 2, 3)
    devices: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
