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

    Examples:
        >>> geometry = ops.Geometry.of([ops.same_axis(3, 3)])
        >>> relative_index(geometry).numpy().shape
        (3, 3)
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


def pair_embeddings(table, geometry, dtype=None, context_first=False):
    """Returns the embedding of every pair of positions, zero out of scope.

    The gradient of an entry, a sum over all of its pairs, is added up in
    float32 or wider.

    Args:
        table: `(*taps, ...)`, already cropped.
        geometry: a static `Geometry`.
        dtype: of the result; None for that of the table.
        context_first: bool. Whether m comes before n.

    Returns:
        `(n, m, ...)`.

    Examples:
        >>> geometry = ops.Geometry.of([ops.same_axis(4, 3)])
        >>> pair_embeddings(tf.ones([3, 16, 1]), geometry).shape
        TensorShape([4, 4, 16, 1])
    """
    index, rank = relative_index(geometry), geometry.rank
    index = tf.transpose(index) if context_first else index
    depths = table.shape[rank:]
    rows = tf.cast(table, accumulation_dtype(table.dtype))
    rows = tf.reshape(rows, [math.prod(table.shape[:rank]), *depths])
    rows = tf.pad(rows, [[0, 1]] + [[0, 0]] * len(depths))
    pairs = tf.gather(rows, tf.where(index < 0, rows.shape[0] - 1, index))
    return tf.cast(pairs, dtype or table.dtype)


def pair_output(queries, values, embeddings, geometry, masks):
    """Computes the position output from the embedding of every pair.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: `(batch, m, value_dim, intra_depth)`.
        embeddings: `([batch,] n, m, key_dim, intra_depth)`, whose NaN and
            infinity at padding and forbidden pairs are not read; with a
            geometry the table `(*entries, key_dim, intra_depth)`.
        geometry: None, or a static `Geometry`.
        masks: `Masks`.

    Returns:
        `(batch, n, heads, value_dim)`.

    Raises:
        ValueError: if the geometry is not static.

    Cost: scores of all pairs first, 2 b n m h u (k + v) operations and an
    intermediate b n h m u, or lambdas first, as `einsum`: what is less.
    """
    dtype, unseen = values.dtype, []
    pairs = masks.pairs(size(queries, 1), size(values, 1))
    if geometry is None:
        embeddings, nonfinite = _permitted_embeddings(embeddings, pairs, masks)
        unseen += [nonfinite]
    elif geometry.is_static:
        inside = relative_index(geometry) >= 0
        pairs = inside if pairs is None else pairs & inside
        table = geometry.crop(embeddings)
        embeddings = pair_embeddings(table, geometry, factor_dtype(dtype))
    else:
        raise ValueError(
            "`attention_mask` needs a `geometry` of static sizes. Received: "
            "sizes that are known at run time only."
        )
    queries, values, embeddings = (
        tf.cast(x, factor_dtype(dtype)) for x in (queries, values, embeddings)
    )
    if pairs is not None:
        values, nonfinite = split_nonfinite(values)
        unseen += [seen_through(pairs, nonfinite)]
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
    outputs = tf.cast(outputs, dtype)
    for nonfinite in unseen:
        outputs = propagate_nan(outputs, nonfinite)
    return outputs


def _permitted_embeddings(embeddings, pairs, masks):
    """Embeddings of a call with zeros for what is not finite.

    Args:
        embeddings: `([batch,] n, m, key_dim, intra_depth)`.
        pairs: None or boolean `([batch,] n, m)`; True = may interact.
        masks: `Masks`.

    Returns:
        The embeddings; boolean `(batch or 1, n)`, whether a permitted one of
        a query is not finite, or None where all are permitted.
    """
    factors = []
    if pairs is not None:
        factors += [pairs if len(pairs.shape) == 3 else pairs[None]]
    if masks.query is not None:
        factors += [tf.expand_dims(masks.query, 2)]
    if masks.permitted is not None:
        factors += [tf.expand_dims(masks.permitted, 1)]
    if not factors:
        return embeddings, None
    embeddings, nonfinite = split_nonfinite(embeddings, depths=2)
    for mask in factors:
        nonfinite &= mask  # [b or 1, n, m]
    return embeddings, tf.reduce_any(nonfinite, axis=-1)
