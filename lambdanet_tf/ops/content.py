"""The content lambda.

    Lc[b, k, v] = sum over m, u of  norm(K)[b, m, k, u] V[b, m, v, u]

The normalization runs over m. All queries that see the same positions share one
lambda. If a mask differs by query, each query has its own lambda, and we avoid
forming it where matrix products give the same output.
"""

import tensorflow as tf

from lambdanet_tf.ops.content_causal import causal_content_output
from lambdanet_tf.ops.devices import accumulation_dtype
from lambdanet_tf.ops.devices import factor_dtype
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.keys import MASKED_LOGIT
from lambdanet_tf.ops.keys import SUMS
from lambdanet_tf.ops.keys import exact_where
from lambdanet_tf.ops.masks import masked_fill

# Below this sum of exponentials some terms may have underflowed. The square of
# its inverse still fits in float32.
_SMALLEST_SUM = 1e-17


def content_output(
    queries, keys, values, normalization, masks, stride=1, state=None
):
    """Returns outputs `(b, n, h, v)` and the next state, {} unless causal.

    Queries are `(batch, n, heads, key_dim)`, keys `(batch, m, key_dim,
    intra_depth)` before normalization, values `(batch, m, value_dim,
    intra_depth)`. See `causal_content_output` for `stride` and `state`.
    """
    if masks.seen is not None:
        outputs = masked_content_output(
            queries, keys, values, masks.seen, normalization, masks.causal
        )
        return outputs, {}
    rest = normalization, masks.permitted
    if masks.causal:
        return causal_content_output(
            queries, keys, values, *rest, stride, state
        )
    content = content_lambda(keys, values, *rest)  # [b, k, v]
    # We keep the axis of heads: see `query_first`.
    outputs = tf.einsum(
        "bnhk,bkv->bnhv", tf.cast(queries, content.dtype), content
    )
    return tf.cast(outputs, queries.dtype), {}


def content_lambda(keys, values, normalization="softmax", permitted=None):
    """Computes `(batch, key_dim, value_dim)`, one lambda for all queries.

    The result is float32 where the device would not sum half precisions in
    float32. Arguments as in `content_output`. Cost: 2 b m k v u operations.
    """
    dtype = factor_dtype(values.dtype, narrow=[tf.bfloat16])
    keys, values = tf.cast(keys, dtype), tf.cast(values, dtype)
    batch, (value_dim, intra) = tf.shape(keys)[0], values.shape[2:]
    depth = size(keys, 1) * intra
    # A softmax over another axis costs two more transpositions.
    keys = tf.transpose(keys, [0, 2, 3, 1])  # [b, k, u, m]
    keys = tf.cast(keys, accumulation_dtype(dtype))
    if permitted is not None:
        permitted = tf.expand_dims(tf.expand_dims(permitted, 1), 1)
    if normalization == "softmax":
        keys = tf.nn.softmax(masked_fill(keys, permitted, MASKED_LOGIT))
    keys = masked_fill(keys, permitted)
    if normalization in SUMS:
        part, factor = SUMS[normalization]
        keys *= factor(tf.reduce_sum(part(keys), axis=-1, keepdims=True))
    keys = tf.reshape(tf.cast(keys, dtype), [batch, keys.shape[1], depth])
    if intra > 1:
        values = tf.transpose(values, [0, 3, 1, 2])
    values = tf.reshape(values, [batch, depth, value_dim])
    return tf.matmul(keys, values)


def masked_content_output(
    queries, keys, values, pairs, normalization="softmax", causal=False
):
    """Computes the content output for a mask that differs by query.

    The mask `pairs`, `(batch or 1, n, m)`, alone says what a query may see. If
    `causal`, later positions do not change a single bit of an output.

    Cost: 2 b n m u (k + h k + h v) operations; largest intermediate b n m u h.
    A softmax also needs b n m k u exponentials if `causal`, or if, for some
    query, the exponentials of all visible keys are 1e17 times smaller than
    those of other keys.
    """
    dtype, wide = values.dtype, accumulation_dtype(keys.dtype)
    values = tf.cast(values, factor_dtype(dtype, narrow=[tf.bfloat16]))
    keys, intra = tf.cast(keys, wide), keys.shape[3]
    keys = tf.transpose(keys, [0, 3, 1, 2])  # [b, u, m, k]
    queries = tf.expand_dims(tf.cast(queries, wide), 1)
    queries = tf.tile(queries, [1, intra, 1, 1, 1])  # [b, u, n, h, k]
    pairs = tf.expand_dims(pairs, 1)  # [b, 1, n, m]
    if normalization == "softmax":
        scores = _softmax_scores(queries, keys, pairs, causal)
    else:
        if normalization in SUMS:
            part, factor = SUMS[normalization]
            total = tf.matmul(tf.cast(pairs, wide), part(keys))
            queries *= tf.expand_dims(factor(total), 3)
        scores = _scores(queries, keys, pairs)
    scores = tf.cast(scores, values.dtype)
    outputs = tf.einsum("bunhm,bmvu->bnhv", scores, values)
    return tf.cast(outputs, dtype)


def _softmax_scores(queries, keys, pairs, causal):
    """Computes scores by matrix products; exactly where numbers underflow."""
    # Outside the branch, whose gradient XLA could not transpose.
    columns = tf.transpose(keys, [0, 1, 3, 2])
    if causal:
        return _exact_scores(queries, columns, pairs)
    seen = tf.reduce_any(pairs, axis=2)[..., None]  # [b, 1, m, 1]
    some = tf.reduce_any(pairs, axis=3)[..., None]  # [b, 1, n, 1]
    keys = masked_fill(keys, seen, MASKED_LOGIT)
    largest = tf.reduce_max(keys, axis=2, keepdims=True)
    weights = tf.exp(keys - tf.stop_gradient(largest))  # [b, u, m, k]
    totals = tf.matmul(tf.cast(pairs, keys.dtype), weights)  # [b, u, n, k]
    is_large = totals >= _SMALLEST_SUM
    read = queries / tf.expand_dims(masked_fill(totals, is_large, 1.0), 3)
    (scores,) = exact_where(
        tf.reduce_any(some & ~is_large, axis=3),  # [b, u, n]
        lambda: [_exact_scores(queries, columns, pairs)],
        [_scores(read, weights, pairs)],
    )
    return scores


def _scores(queries, keys, pairs):
    """Multiplies `(b, u, n, h, k)` by `(b, u, m, k)`: `(b, u, n, h, m)`."""
    scores = tf.einsum("bunhk,bumk->bunhm", queries, keys)
    return masked_fill(scores, tf.expand_dims(pairs, 3))


def _exact_scores(queries, columns, pairs):
    """Computes the scores of a softmax for each query: `(b, u, n, h, m)`."""
    pairs = tf.expand_dims(pairs, 3)  # [b, 1, n, 1, m]
    # The sum with zeros broadcasts it.
    columns = tf.expand_dims(columns, 2) + tf.zeros_like(pairs, columns.dtype)
    weights = tf.nn.softmax(masked_fill(columns, pairs, MASKED_LOGIT))
    weights = masked_fill(weights, pairs)  # [b, u, n, k, m]
    return tf.matmul(queries, weights)
