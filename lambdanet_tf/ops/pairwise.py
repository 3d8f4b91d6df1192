"""Position outputs from the embedding of every (query, context) pair.

The form for embeddings that are given pair by pair, and for masks that differ
from query to query. It needs static sizes.
"""

import tensorflow as tf

from lambdanet_tf.ops.keys import where
from lambdanet_tf.ops.nonfinite import finite
from lambdanet_tf.ops.nonfinite import nan_where
from lambdanet_tf.ops.nonfinite import poisoned
from lambdanet_tf.ops.precision import factor_dtype


def pairwise_position_output(
    queries,
    values,
    embeddings,
    attention_mask=None,
    query_mask=None,
    context_mask=None,
):
    """Computes the position output from the embedding of every pair.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: `(batch, m, value_dim, intra_depth)`.
        embeddings: `(n, m, key_dim, intra_depth)`, or with a leading batch
            axis.
        attention_mask: None or boolean `(n, m)` or `(batch, n, m)`; True =
            may interact. NaN and infinity at forbidden pairs are not read.
        query_mask: None or boolean `(batch, n)`; False = padding, at whose
            pairs NaN and infinity are not read either.
        context_mask: None or boolean `(batch, m)`, likewise.

    Returns:
        `(batch, n, heads, value_dim)`.

    Cost: scores of all pairs first, 2 b n m h u (k + v) operations and an
    intermediate b n h m u, or lambdas first, as `einsum`: what is less.
    """
    masks = []
    if attention_mask is not None:
        by_example = len(attention_mask.shape) == 3
        masks += [attention_mask if by_example else attention_mask[None]]
    if query_mask is not None:
        masks += [tf.expand_dims(query_mask, 2)]
    if context_mask is not None:
        masks += [tf.expand_dims(context_mask, 1)]
    if not masks:
        return masked_pairs(queries, values, embeddings, None)
    is_finite = tf.math.is_finite(embeddings)
    embeddings = where(is_finite, embeddings, 0.0)
    read = ~tf.reduce_all(is_finite, axis=[-2, -1])  # [(b,) n, m]
    for mask in masks:
        read = read & mask  # [b or 1, n, m]
    outputs = masked_pairs(queries, values, embeddings, attention_mask)
    return nan_where(outputs, tf.reduce_any(read, axis=-1))


def masked_pairs(queries, values, embeddings, attention_mask):
    """As `pairwise_position_output`, for embeddings that are finite."""
    dtype, bad = values.dtype, None
    queries, values, embeddings = (
        tf.cast(x, factor_dtype(dtype)) for x in (queries, values, embeddings)
    )
    if attention_mask is not None:
        values, bad = finite(values)
    pairs = "bnmku" if len(embeddings.shape) == 5 else "nmku"
    (heads, key_dim), value_dim = queries.shape[-2:], values.shape[-2]
    by_example = attention_mask is not None and len(attention_mask.shape) == 3
    if by_example or heads * (key_dim + value_dim) < key_dim * value_dim:
        scores = tf.einsum(f"bnhk,{pairs}->bhnmu", queries, embeddings)
        if attention_mask is not None:
            mask = attention_mask[:, None] if by_example else attention_mask
            scores = where(mask[..., None], scores, 0.0)
        outputs = tf.einsum("bhnmu,bmvu->bnhv", scores, values)
    else:
        if attention_mask is not None:
            mask = attention_mask[..., None, None]
            embeddings = where(mask, embeddings, 0.0)
        lambdas = tf.einsum(f"{pairs},bmvu->bnkv", embeddings, values)
        outputs = tf.einsum("bnkv,bnhk->bnhv", lambdas, queries)
    outputs = tf.cast(outputs, dtype)
    return outputs if bad is None else poisoned(outputs, bad, attention_mask)
