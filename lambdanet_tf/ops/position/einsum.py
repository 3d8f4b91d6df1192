"""The paper's listing: embeddings of all pairs, then two einsums."""

import tensorflow as tf

from lambdanet_tf.ops.pairs import pair_embeddings


def einsum(queries, values, table, geometry):
    """Computes the position output as the paper writes it (Figure 3).

    Cost: 2 b n m k u v + 2 b n h k v operations; intermediate n m k u.
    """
    embeddings = pair_embeddings(table, geometry, values.dtype)  # [n, m, k, u]
    shape = [tf.shape(values)[0], embeddings.shape[1], *values.shape[-2:]]
    values = tf.reshape(values, shape)  # [b, m, v, u]
    lambdas = tf.einsum("nmku,bmvu->bnkv", embeddings, values)
    return tf.einsum("bnkv,bnhk->bnhv", lambdas, queries)
