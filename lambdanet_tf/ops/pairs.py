"""Embeddings of all (query, context) pairs, and outputs computed from them."""

import math

import tensorflow as tf

from lambdanet_tf.ops.devices import accumulation_dtype
from lambdanet_tf.ops.devices import factor_dtype
from lambdanet_tf.ops.masks import masked_fill

# The sum over three axes still fits an int32, and is below every row.
_OUTSIDE = -(2**29)


def relative_index(geometry):
    """Returns the row of the flattened table for every pair, int32 `(n, m)`.

    It is -1 out of scope. The graph computes it, so that no large constant is
    saved with a model.
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
    """Returns embeddings `(n, m, ...)` of all pairs, zero out of scope.

    The table, `(*taps, ...)`, is cropped to a static geometry. The gradient of
    an entry is summed in float32 or wider.
    """
    index, rank = relative_index(geometry), geometry.rank
    index = tf.transpose(index) if context_first else index
    depths = table.shape[rank:]
    rows = tf.cast(table, accumulation_dtype(table.dtype))
    rows = tf.reshape(rows, [math.prod(table.shape[:rank]), *depths])
    rows = tf.pad(rows, [[0, 1]] + [[0, 0]] * len(depths))
    pairs = tf.gather(rows, tf.where(index < 0, rows.shape[0] - 1, index))
    return tf.cast(pairs, dtype or table.dtype)


def pair_output(queries, values, embeddings, geometry, seen):
    """Computes the position output `(b, n, h, v)` from embeddings of pairs.

    Embeddings are `([batch,] n, m, key_dim, intra_depth)` or, with a static
    geometry, the table; `seen` is None or `(batch or 1, n or 1, m)`.

    Cost: 2 b n m h u (k + v) operations and an intermediate b n h m u if it
    computes the scores of all pairs first, or that of `einsum`, if less.
    """
    dtype, inner = values.dtype, factor_dtype(values.dtype)
    if geometry is not None:
        if not geometry.is_static:
            raise ValueError(
                "`attention_mask` needs a fixed input size, because the layer "
                "has position embeddings. Received: an unknown size."
            )
        table = geometry.crop(embeddings)
        embeddings = pair_embeddings(table, geometry, inner)
    queries, values, embeddings = (
        tf.cast(x, inner) for x in (queries, values, embeddings)
    )
    letters = "bnmku" if len(embeddings.shape) == 5 else "nmku"
    (heads, key_dim), value_dim = queries.shape[-2:], values.shape[-2]
    by_example = seen is not None and seen.shape[0] != 1
    if by_example or heads * (key_dim + value_dim) < key_dim * value_dim:
        scores = tf.einsum(f"bnhk,{letters}->bhnmu", queries, embeddings)
        if seen is not None:
            scores = masked_fill(scores, tf.expand_dims(seen, 1))
        outputs = tf.einsum("bhnmu,bmvu->bnhv", scores, values)
    else:
        if seen is not None and letters == "nmku":
            seen = tf.squeeze(seen, 0)
        embeddings = masked_fill(embeddings, seen)
        lambdas = tf.einsum(f"{letters},bmvu->bnkv", embeddings, values)
        outputs = tf.einsum("bnkv,bnhk->bnhv", lambdas, queries)
    return tf.cast(outputs, dtype)
