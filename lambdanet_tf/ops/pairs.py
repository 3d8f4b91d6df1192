"""Position outputs from the embedding of every (query, context) pair.

The form for embeddings that are given pair by pair, and for masks that differ
from query to query. It needs static sizes.
"""

import math

import tensorflow as tf

from lambdanet_tf.ops.nonfinite import finite
from lambdanet_tf.ops.nonfinite import poisoned

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


def gather_pairs(table, rank, index):
    """Returns rows of a table by `relative_index`; zero where it is -1.

    Args:
        table: `(*taps, ...)`, `rank` axes of entries.
        rank: int.
        index: int tensor `(n, m)`.

    Returns:
        `(n, m, ...)`.
    """
    depths = table.shape[rank:]
    rows = tf.reshape(table, [math.prod(table.shape[:rank]), *depths])
    rows = tf.pad(rows, [[0, 1]] + [[0, 0]] * len(depths))
    return tf.gather(rows, tf.where(index < 0, rows.shape[0] - 1, index))


def pair_embeddings(table, geometry):
    """Returns the embedding of every pair of positions, zero out of scope.

    Args:
        table: `(*entries, ...)`.
        geometry: a static `Geometry`.

    Returns:
        `(n, m, ...)`.
    """
    table = geometry.crop(table)
    return gather_pairs(table, geometry.rank, relative_index(geometry))


def pairwise_position_output(queries, values, embeddings, attention_mask=None):
    """Computes the position output from the embedding of every pair.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: `(batch, m, value_dim, intra_depth)`.
        embeddings: `(n, m, key_dim, intra_depth)`, or with a leading batch
            axis.
        attention_mask: None or boolean `(n, m)` or `(batch, n, m)`; True =
            may interact. What stands at forbidden pairs is never read.

    Returns:
        `(batch, n, heads, value_dim)`.

    Cost: scores of all pairs first, 2 b n m h u (k + v) operations and an
    intermediate b n h m u, or lambdas first, as `einsum`: what is less.
    """
    bad = None
    if attention_mask is not None:
        values, bad = finite(values)
    pairs = "bnmku" if len(embeddings.shape) == 5 else "nmku"
    (heads, key_dim), value_dim = queries.shape[-2:], values.shape[-2]
    by_example = attention_mask is not None and len(attention_mask.shape) == 3
    if by_example or heads * (key_dim + value_dim) < key_dim * value_dim:
        scores = tf.einsum(f"bnhk,{pairs}->bhnmu", queries, embeddings)
        if attention_mask is not None:
            mask = attention_mask[:, None] if by_example else attention_mask
            zero = tf.zeros([], scores.dtype)
            scores = tf.where(mask[..., None], scores, zero)
        outputs = tf.einsum("bhnmu,bmvu->bnhv", scores, values)
    else:
        if attention_mask is not None:
            embeddings = tf.where(
                attention_mask[..., None, None],
                embeddings,
                tf.zeros([], embeddings.dtype),
            )
        lambdas = tf.einsum(f"{pairs},bmvu->bnkv", embeddings, values)
        outputs = tf.einsum("bnkv,bnhk->bnhv", lambdas, queries)
    return outputs if bad is None else poisoned(outputs, bad, attention_mask)
