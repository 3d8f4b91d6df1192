"""The content lambda, one for all queries.

    Lc[b, k, v] = sum over m, u of  norm(K)[b, m, k, u] V[b, m, v, u]

The normalization runs over m, the context positions.
"""

import tensorflow as tf

from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.keys import normalize_keys
from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.precision import content_dtype


def content_lambda(keys, values, normalization="softmax", context_mask=None):
    """Computes the content lambda, one matrix for all queries of an example.

    Args:
        keys: `(batch, m, key_dim, intra_depth)`, before normalization.
        values: `(batch, m, value_dim, intra_depth)`.
        normalization: see `normalize_keys`.
        context_mask: see `normalize_keys`.

    Returns:
        `(batch, key_dim, value_dim)`, in float32 where half precisions would
        be added up in less.

    Cost: 2 b m k v u operations; parameters none.
    """
    dtype = content_dtype(values.dtype)
    keys, values = tf.cast(keys, dtype), tf.cast(values, dtype)
    values = masked_fill(values, context_mask)
    batch, (value_dim, intra) = tf.shape(keys)[0], values.shape[2:]
    depth = size(keys, 1) * intra
    keys = normalize_keys(keys, normalization, context_mask)
    keys = tf.reshape(keys, [batch, keys.shape[1], depth])
    if intra > 1:
        values = tf.transpose(values, [0, 3, 1, 2])
    values = tf.reshape(values, [batch, depth, value_dim])
    return tf.matmul(keys, values)


def apply_content_lambda(queries, content):
    """Applies `(batch, k, v)` to queries: -> `(batch, n, heads, v)`."""
    dtype = queries.dtype
    content = tf.cast(content, content_dtype(dtype))
    queries = tf.cast(queries, content.dtype)
    # Heads stay an axis of their own: see `query_first`.
    return tf.cast(tf.einsum("bnhk,bkv->bnhv", queries, content), dtype)
