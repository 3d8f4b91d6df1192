"""The embedding of every (query, context) pair, and what queries read of them.

The form for embeddings that are given pair by pair, and for masks that differ
from query to query. Rows of a table need static sizes.
"""

import math

import tensorflow as tf

from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.masks import propagate_nan
from lambdanet_tf.ops.masks import seen_through
from lambdanet_tf.ops.masks import split_nonfinite
from lambdanet_tf.ops.precision import accumulation_dtype
from lambdanet_tf.ops.precision import factor_dtype

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
    rows = tf.cast(table, accumulation_dtype(table.dtype))
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


def explicit_output(queries, values, embeddings, masks):
    """Computes the position output of embeddings that a call brings.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: `(batch, m, value_dim, intra_depth)`.
        embeddings: `([batch,] n, m, key_dim, intra_depth)`. NaN and infinity
            at padding and forbidden pairs are not read.
        masks: `Masks`.

    Returns:
        `(batch, n, heads, value_dim)`.
    """
    pairs = masks.pairs(size(queries, 1), size(values, 1))
    factors = []
    if pairs is not None:
        factors += [pairs if len(pairs.shape) == 3 else pairs[None]]
    if masks.query is not None:
        factors += [tf.expand_dims(masks.query, 2)]
    if masks.permitted is not None:
        factors += [tf.expand_dims(masks.permitted, 1)]
    if not factors:
        return pair_output(queries, values, embeddings)
    embeddings, nonfinite = split_nonfinite(embeddings, depths=2)
    for mask in factors:
        nonfinite &= mask  # [b or 1, n, m]
    outputs = pair_output(queries, values, embeddings, pairs)
    return propagate_nan(outputs, tf.reduce_any(nonfinite, axis=-1))


def masked_table_output(queries, values, table, geometry, attention_mask):
    """Computes the position output of a table, with an attention mask.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: `(batch, m, value_dim, intra_depth)`.
        table: `(*entries, key_dim, intra_depth)`.
        geometry: a static `Geometry`.
        attention_mask: boolean `([batch,] n, m)`.

    Returns:
        `(batch, n, heads, value_dim)`.

    Raises:
        ValueError: if the geometry is not static.
    """
    if not geometry.is_static:
        raise ValueError(
            "`attention_mask` needs a `geometry` of static sizes. Received: "
            "sizes that are known at run time only."
        )
    pairs = attention_mask & (relative_index(geometry) >= 0)
    dtype = factor_dtype(values.dtype)
    embeddings = pair_embeddings(table, geometry, dtype)  # [n, m, k, u]
    return pair_output(queries, values, embeddings, pairs)


def pair_output(queries, values, embeddings, pairs=None):
    """Computes the position output from the embedding of every pair.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: `(batch, m, value_dim, intra_depth)`.
        embeddings: `([batch,] n, m, key_dim, intra_depth)`, finite.
        pairs: None or boolean `([batch,] n, m)`; True = may interact.

    Returns:
        `(batch, n, heads, value_dim)`.

    Cost: scores of all pairs first, 2 b n m h u (k + v) operations and an
    intermediate b n h m u, or lambdas first, as `einsum`: what is less.
    """
    dtype, seen = values.dtype, None
    queries, values, embeddings = (
        tf.cast(x, factor_dtype(dtype)) for x in (queries, values, embeddings)
    )
    if pairs is not None:
        values, nonfinite = split_nonfinite(values)
        seen = seen_through(pairs, nonfinite)
    letters = "bnmku" if len(embeddings.shape) == 5 else "nmku"
    (heads, key_dim), value_dim = queries.shape[-2:], values.shape[-2]
    by_example = pairs is not None and len(pairs.shape) == 3
    if by_example or heads * (key_dim + value_dim) < key_dim * value_dim:
        scores = tf.einsum(f"bnhk,{letters}->bhnmu", queries, embeddings)
        if pairs is not None:
            pairs = pairs if by_example else pairs[None]
            scores = masked_fill(scores, tf.expand_dims(pairs, 1))
        outputs = tf.einsum("bhnmu,bmvu->bnhv", scores, values)
    else:
        if pairs is not None and len(embeddings.shape) == 5:
            pairs = pairs[None]
        embeddings = masked_fill(embeddings, pairs)
        lambdas = tf.einsum(f"{letters},bmvu->bnkv", embeddings, values)
        outputs = tf.einsum("bnkv,bnhk->bnhv", lambdas, queries)
    return propagate_nan(tf.cast(outputs, dtype), seen)
