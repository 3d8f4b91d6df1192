"""The paper's listing: embeddings of all pairs, then two einsums."""

import tensorflow as tf

from lambdanet_tf.ops.pairs import gather_pairs
from lambdanet_tf.ops.pairs import relative_index


def einsum(queries, values, table, geometry):
    """Computes the position output as the paper writes it (Figure 3).

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
    index = relative_index(geometry)
    embeddings = gather_pairs(
        table, geometry.rank, index, values.dtype
    )  # [n, m, k, u]
    shape = [tf.shape(values)[0], embeddings.shape[1], *values.shape[-2:]]
    values = tf.reshape(values, shape)  # [b, m, v, u]
    lambdas = tf.einsum("nmku,bmvu->bnkv", embeddings, values)
    return tf.einsum("bnkv,bnhk->bnhv", lambdas, queries)
