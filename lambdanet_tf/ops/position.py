"""The position output by any algorithm, and the choice among them.

Every algorithm computes the same function; this file is the only place that
knows their names.
"""

import tensorflow as tf

from lambdanet_tf.ops.convolution import depthwise_convolution
from lambdanet_tf.ops.convolution import folded_convolution
from lambdanet_tf.ops.dense import lambda_first
from lambdanet_tf.ops.dense import pair_embeddings
from lambdanet_tf.ops.dense import query_first


def _einsum(queries, values, table, geometry):
    embeddings = pair_embeddings(table, geometry)
    shape = [tf.shape(values)[0], embeddings.shape[1], *values.shape[-2:]]
    values = tf.reshape(values, shape)
    return dense_position_output(queries, values, embeddings)


_ALGORITHMS = {
    "einsum": _einsum,
    "conv2d": folded_convolution,
    "depthwise": depthwise_convolution,
}
IMPLEMENTATIONS = ("auto", *_ALGORITHMS)


def position_output(queries, values, table, geometry, implementation="auto"):
    """What the queries read from their position lambdas.

    Args:
        queries: `(batch, n, heads, key_dim)`, query positions flattened
            row-major.
        values: `(batch, *context, value_dim, intra_depth)`.
        table: `(*entries, key_dim, intra_depth)`; entry `center + (m - n)`
            per axis.
        geometry: a `Geometry` of the same rank.
        implementation: one of `IMPLEMENTATIONS`.

    Returns:
        `(batch, n, heads, value_dim)`.

    Raises:
        ValueError: if `implementation` is unknown or needs static sizes that
            `geometry` does not have.
    """
    if implementation == "auto":
        implementation = choose(geometry)
    if implementation not in _ALGORITHMS:
        raise ValueError(
            f"`implementation` must be one of {IMPLEMENTATIONS}. Received: "
            f"implementation={implementation!r}."
        )
    if implementation == "einsum" and not geometry.is_static:
        raise ValueError(
            "`implementation='einsum'` needs static spatial sizes. Received "
            f"a context of {geometry.context}: give the input a fixed size, "
            "or use 'conv2d', 'depthwise' or 'auto' with a local scope."
        )
    algorithm = _ALGORITHMS[implementation]
    return algorithm(queries, values, geometry.crop(table), geometry)


def dense_position_output(queries, values, embeddings, mask=None):
    """The position output for embeddings given pair by pair.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: `(batch, m, value_dim, intra_depth)`.
        embeddings: `(n, m, key_dim, intra_depth)`, or with a leading batch
            axis.
        mask: None or boolean `(n, m)` or `(batch, n, m)`; True = may
            interact.

    Returns:
        `(batch, n, heads, value_dim)`.
    """
    if mask is not None:
        embeddings *= tf.cast(mask, embeddings.dtype)[..., None, None]
    (heads, key_dim), value_dim = queries.shape[-2:], values.shape[-2]
    if heads * (key_dim + value_dim) < key_dim * value_dim:
        return query_first(queries, values, embeddings)
    return lambda_first(queries, values, embeddings)


def choose(geometry):
    """The algorithm of `implementation="auto"`, from static shapes alone.

    Dense products win while they do not compute many pairs for nothing:
    the share of pairs in scope decides.
    """
    if not geometry.is_static:
        return "conv2d"
    inside = 1.0
    for axis in geometry.axes:
        entries = axis.entries()
        inside *= (entries >= 0).sum() / entries.size
    return "einsum" if inside > _DENSE_SHARE else "conv2d"


# Measured on a CPU: below this share a convolution is cheaper.
_DENSE_SHARE = 0.25
