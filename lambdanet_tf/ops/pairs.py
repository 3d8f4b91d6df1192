"""Position outputs from the embedding of every (query, context) pair.

The paper's own form, and the only one for embeddings that are given pair by
pair or masked. It needs static sizes.
"""

import math

import numpy as np
import tensorflow as tf

from lambdanet_tf.ops.geometry import relative_index


def gather_pairs(table, rank, index):
    """Rows of a table by `relative_index`; zero where the index is -1.

    Args:
        table: `(*taps, ...)`, `rank` axes of entries.
        rank: int.
        index: int array `(n, m)`.

    Returns:
        `(n, m, ...)`.
    """
    depths = table.shape[rank:]
    rows = tf.reshape(table, [math.prod(table.shape[:rank]), *depths])
    if rank == 1:
        return _select(rows, index)
    if np.any(index < 0):
        rows = tf.pad(rows, [[0, 1]] + [[0, 0]] * len(depths))
        index = np.where(index < 0, rows.shape[0] - 1, index)
    return tf.gather(rows, index)


def _select(rows, index):
    """`tf.gather` as a product, whose gradient is a product as well."""
    choice = index[..., None] == np.arange(rows.shape[0])  # [n, m, rows]
    return tf.tensordot(tf.constant(choice, rows.dtype), rows, 1)


def pair_embeddings(table, geometry):
    """The embedding of every (query, context) pair, zero out of scope.

    Args:
        table: `(*taps, key_dim, intra_depth)`, already cropped.
        geometry: a static `Geometry`.

    Returns:
        `(n, m, key_dim, intra_depth)`.
    """
    return gather_pairs(table, geometry.rank, relative_index(geometry))


def paper_position_output(queries, values, table, geometry):
    """The paper's listing: embeddings of all pairs, then two einsums.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: `(batch, *context, value_dim, intra_depth)`.
        table: `(*taps, key_dim, intra_depth)`, already cropped.
        geometry: a static `Geometry`.

    Returns:
        `(batch, n, heads, value_dim)`.

    Cost: 2 b n m k u v + 2 b n h k v operations; intermediates n m k u and
    b n k v.
    """
    embeddings = pair_embeddings(table, geometry)
    shape = [tf.shape(values)[0], embeddings.shape[1], *values.shape[-2:]]
    values = tf.reshape(values, shape)
    lambdas = tf.einsum("nmku,bmvu->bnkv", embeddings, values)
    return tf.einsum("bnkv,bnhk->bnhv", lambdas, queries)


def pairwise_position_output(queries, values, embeddings, mask=None):
    """The position output for embeddings given pair by pair.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: `(batch, m, value_dim, intra_depth)`.
        embeddings: `(n, m, key_dim, intra_depth)`, or with a leading batch
            axis.
        mask: None or boolean `(n, m)`; True = may interact.

    Returns:
        `(batch, n, heads, value_dim)`.

    Cost: queries first, 2 b n m h u (k + v) operations and an intermediate
    b n h m u, or lambdas first, as `paper_position_output`: what is less.
    """
    if mask is not None:
        embeddings *= tf.cast(mask, embeddings.dtype)[..., None, None]
    pairs = "bnmku" if len(embeddings.shape) == 5 else "nmku"
    (heads, key_dim), value_dim = queries.shape[-2:], values.shape[-2]
    if heads * (key_dim + value_dim) < key_dim * value_dim:
        scores = tf.einsum(f"bnhk,{pairs}->bhnmu", queries, embeddings)
        return tf.einsum("bhnmu,bmvu->bnhv", scores, values)
    lambdas = tf.einsum(f"{pairs},bmvu->bnkv", embeddings, values)
    return tf.einsum("bnkv,bnhk->bnhv", lambdas, queries)
