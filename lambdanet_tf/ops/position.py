"""The position output by any algorithm.

Every algorithm computes the same function; this file is the only place that
knows their names.
"""

from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.convolution import depthwise_convolution
from lambdanet_tf.ops.convolution import folded_convolution
from lambdanet_tf.ops.convolution import unfolded_convolution
from lambdanet_tf.ops.pairs import paper_position_output
from lambdanet_tf.ops.plan import Depths
from lambdanet_tf.ops.plan import Plan
from lambdanet_tf.ops.plan import block_sizes
from lambdanet_tf.ops.plan import choose
from lambdanet_tf.ops.products import lambda_first
from lambdanet_tf.ops.products import query_first
from lambdanet_tf.ops.spectral import spectral_lambdas

_CONVOLUTIONS = {
    "conv2d": folded_convolution,
    "depthwise": depthwise_convolution,
    "unfolded": unfolded_convolution,
}
_BLOCKED = {
    "lambda_first": lambda_first,
    "query_first": query_first,
    "spectral": spectral_lambdas,
}
IMPLEMENTATIONS = ("auto", "einsum", *_CONVOLUTIONS, *_BLOCKED)


def position_output(queries, values, table, geometry, implementation="auto"):
    """What the queries read from their position lambdas.

    Args:
        queries: `(batch, n, heads, key_dim)`, query positions flattened
            row-major.
        values: `(batch, *context, value_dim, intra_depth)`.
        table: `(*entries, key_dim, intra_depth)`; entry `center + (m - n)`
            per axis.
        geometry: a `Geometry` of the same rank.
        implementation: one of `IMPLEMENTATIONS`, or a `Plan`.

    Returns:
        `(batch, n, heads, value_dim)`.

    Raises:
        ValueError: if `implementation` is unknown or needs static sizes that
            `geometry` does not have.
    """
    plan = implementation
    if not isinstance(plan, Plan):
        depths = Depths(*queries.shape[-2:], *values.shape[-2:])
        plan = plan_for(geometry, depths, implementation)
    table = geometry.crop(table)
    if plan.algorithm in _CONVOLUTIONS:
        convolution = _CONVOLUTIONS[plan.algorithm]
        return convolution(queries, values, table, geometry)
    if plan.algorithm == "einsum":
        return paper_position_output(queries, values, table, geometry)
    blocks = Blocks.of(geometry, plan.sizes)
    return _BLOCKED[plan.algorithm](queries, values, table, blocks)


def plan_for(
    geometry, depths, implementation="auto", device=None, training=True
):
    """The plan behind a name.

    Args:
        geometry: a `Geometry`, or None where sizes are not static.
        depths: `Depths`.
        implementation: one of `IMPLEMENTATIONS`.
        device: key of `DEVICES`, or None for `target_device()`.
        training: bool. Whether gradients count.

    Returns:
        A `Plan`.

    Raises:
        ValueError: if the name is unknown, or needs static sizes that
            `geometry` does not have.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(
            f"`implementation` must be one of {IMPLEMENTATIONS}. Received: "
            f"implementation={implementation!r}."
        )
    if implementation == "auto":
        return choose(geometry, depths, device, training)
    if implementation in _CONVOLUTIONS:
        return Plan(implementation)
    if geometry is None or not geometry.is_static:
        raise ValueError(
            f"`implementation={implementation!r}` needs static spatial "
            "sizes. Received inputs of unknown size: fix it, or use one of "
            f"{tuple(_CONVOLUTIONS)} or 'auto'."
        )
    if implementation == "einsum":
        return Plan("einsum", geometry.queries)
    if implementation == "spectral" and geometry.rank == 1:
        # With no second axis the transforms cost more than the product.
        implementation = "lambda_first"
    sizes = block_sizes(implementation, geometry, depths, device, training)
    return Plan(implementation, sizes)
