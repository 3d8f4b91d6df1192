"""The content lambda.

    Lc[b, k, v] = sum over m, u of  norm(K)[b, m, k, u] V[b, m, v, u]

The normalization runs over m, the context positions. One lambda serves all
queries that see the same positions.
"""

import tensorflow as tf

from lambdanet_tf.ops.content_causal import causal_content_output
from lambdanet_tf.ops.content_masked import masked_content_output
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.keys import normalize_keys
from lambdanet_tf.ops.precision import factor_dtype


def content_output(
    queries, keys, values, normalization, masks, stride=1, state=None
):
    """Computes what the queries read from the content lambda of what they see.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        keys: `(batch, m, key_dim, intra_depth)`, before normalization.
        values: `(batch, m, value_dim, intra_depth)`.
        normalization: see `normalize_keys`.
        masks: `Masks`.
        stride: int. See `causal_content_output`, as for the state.
        state: None, or of the positions before.

    Returns:
        `(batch, n, heads, value_dim)`, and the next state; None unless causal.
    """
    if masks.attention:
        pairs = masks.pairs(size(queries, 1), size(keys, 1))
        if masks.permitted is not None:
            pairs &= tf.expand_dims(masks.permitted, 1)
        outputs = masked_content_output(
            queries, keys, values, pairs, normalization, masks.causal
        )
        return outputs, None
    rest = normalization, masks.permitted
    if masks.causal:
        return causal_content_output(
            queries, keys, values, *rest, stride, state
        )
    content = content_lambda(keys, values, *rest)  # [b, k, v]
    return apply_content_lambda(queries, content), None


def content_lambda(keys, values, normalization="softmax", context_mask=None):
    """Computes the content lambda, one matrix for all queries of an example.

    Args:
        keys: `(batch, m, key_dim, intra_depth)`, before normalization.
        values: `(batch, m, value_dim, intra_depth)`.
        normalization: see `normalize_keys`.
        context_mask: see `normalize_keys`; at padding values must be finite.

    Returns:
        `(batch, key_dim, value_dim)`, in float32 where half precisions would
        be added up in less.

    Cost: 2 b m k v u operations; parameters none.
    """
    dtype = factor_dtype(values.dtype, narrow=[tf.bfloat16])
    keys, values = tf.cast(keys, dtype), tf.cast(values, dtype)
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
    content = tf.cast(content, factor_dtype(dtype, narrow=[tf.bfloat16]))
    queries = tf.cast(queries, content.dtype)
    # Heads stay an axis of their own: see `query_first`.
    return tf.cast(tf.einsum("bnhk,bkv->bnhv", queries, content), dtype)
