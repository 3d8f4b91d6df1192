"""The embedding of every (query, context) pair. Sizes must be static."""

import math

import tensorflow as tf

from lambdanet_tf.ops.keys import sum_dtype

# Added up for three axes it still is an int32, and below every row.
_OUTSIDE = -(2**29)


def relative_index(geometry):
    """Returns the row of the flattened table for every pair of positions.

    Computed in the graph, so that no constant of the size of the pairs is
    saved with a model.

    Args:
        geometry: a static `Geometry`.

    Returns:
        int32 tensor `(n, m)`, positions flattened row-major; -1 where the
        context position lies outside the query's scope.
    """
    strides = [math.prod(geometry.taps[i + 1 :]) for i in range(geometry.rank)]
    index = tf.zeros([1, 1], tf.int32)
    for axis, stride in zip(geometry.axes, strides, strict=True):
        entries = axis.entries()  # [queries, context]
        rows = tf.where(entries < 0, _OUTSIDE, entries * stride)
        shape = (index.shape[0] * axis.queries, index.shape[1] * axis.context)
        index = tf.reshape(
            index[:, None, :, None] + rows[None, :, None, :], shape
        )
    return tf.maximum(index, -1)


def gather_pairs(table, rank, index, dtype=None):
    """Returns rows of a table by `relative_index`; zero where it is -1.

    The gradient of a row, a sum over all of its pairs, is added up in float32
    or wider.

    Args:
        table: `(*taps, ...)`, `rank` axes of entries.
        rank: int.
        index: int tensor `(n, m)`.
        dtype: of the result; None for that of the table.

    Returns:
        `(n, m, ...)`.
    """
    depths = table.shape[rank:]
    rows = tf.cast(table, sum_dtype(table.dtype))
    rows = tf.reshape(rows, [math.prod(table.shape[:rank]), *depths])
    rows = tf.pad(rows, [[0, 1]] + [[0, 0]] * len(depths))
    pairs = tf.gather(rows, tf.where(index < 0, rows.shape[0] - 1, index))
    return tf.cast(pairs, dtype or table.dtype)


def pair_embeddings(table, geometry, dtype=None):
    """Returns the embedding of every pair of positions, zero out of scope.

    Args:
        table: `(*entries, ...)`.
        geometry: a static `Geometry`.
        dtype: see `gather_pairs`.

    Returns:
        `(n, m, ...)`.
    """
    table = geometry.crop(table)
    return gather_pairs(table, geometry.rank, relative_index(geometry), dtype)
