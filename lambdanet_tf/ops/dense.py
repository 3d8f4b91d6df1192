"""Position outputs as dense products over all (query, context) pairs.

    Y[b, n, h, v] =
        sum over m, k, u of  Q[b, n, h, k] E[n, m, k, u] V[b, m, v, u]

is one trilinear form: every order of summation is exact (spec section 2).
Both orders need the embedding of every pair, so they need static sizes.
"""

import numpy as np
import tensorflow as tf

from lambdanet_tf.ops.geometry import relative_index


def pair_embeddings(table, geometry):
    """The embedding of every (query, context) pair, zero out of scope.

    Args:
        table: `(*taps, key_dim, intra_depth)`, already cropped.
        geometry: a static `Geometry`.

    Returns:
        `(n, m, key_dim, intra_depth)`.
    """
    index = relative_index(geometry)
    depths = table.shape[geometry.rank :]
    rows = tf.reshape(table, [int(np.prod(geometry.taps)), *depths])
    if np.any(index < 0):
        rows = tf.pad(rows, [[0, 1]] + [[0, 0]] * (len(rows.shape) - 1))
        index = np.where(index < 0, rows.shape[0] - 1, index)
    return tf.gather(rows, index)


def lambda_first(queries, values, embeddings):
    """The paper's order: position lambdas, then queries.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: `(batch, m, value_dim, intra_depth)`.
        embeddings: `(n, m, key_dim, intra_depth)`, or with a leading batch
            axis.

    Returns:
        `(batch, n, heads, value_dim)`.

    Cost: 2 b n m k u v + 2 b n h k v operations; intermediate b n k v.
    """
    pairs = "bnmku" if len(embeddings.shape) == 5 else "nmku"
    lambdas = tf.einsum(f"{pairs},bmvu->bnkv", embeddings, values)
    return tf.einsum("bnkv,bnhk->bnhv", lambdas, queries)


def query_first(queries, values, embeddings):
    """Queries first: a score for every pair, then a sum of values.

    Args and returns as in `lambda_first`.

    Cost: 2 b n m h u (k + v) operations; intermediate b h n m u.
    """
    pairs = "bnmku" if len(embeddings.shape) == 5 else "nmku"
    scores = tf.einsum(f"bnhk,{pairs}->bhnmu", queries, embeddings)
    return tf.einsum("bhnmu,bmvu->bnhv", scores, values)
