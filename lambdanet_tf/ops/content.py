"""The content lambda.

    Lc[b, k, v] = sum over m, u of  norm(K)[b, m, k, u] V[b, m, v, u]

The normalization runs over m, the context positions. One lambda serves all
queries that see the same positions; queries that may each see others have one
each, which is not formed where products of matrices do.
"""

import tensorflow as tf

from lambdanet_tf.ops.content_causal import causal_content_output
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.keys import MASKED_LOGIT
from lambdanet_tf.ops.keys import inverse_length
from lambdanet_tf.ops.keys import normalize_keys
from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.masks import propagate_nan
from lambdanet_tf.ops.masks import seen_through
from lambdanet_tf.ops.masks import split_nonfinite
from lambdanet_tf.ops.precision import accumulation_dtype
from lambdanet_tf.ops.precision import factor_dtype

# Sums of exponentials below this are of terms that may have underflowed; the
# square of its inverse is still a float32.
_SMALLEST_SUM = 1e-17


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
    # Heads stay an axis of their own: see `query_first`.
    outputs = tf.einsum(
        "bnhk,bkv->bnhv", tf.cast(queries, content.dtype), content
    )
    return tf.cast(outputs, queries.dtype), None


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

    Examples:
        >>> keys, values = tf.zeros([2, 9, 16, 1]), tf.ones([2, 9, 8, 1])
        >>> content_lambda(keys, values).shape
        TensorShape([2, 16, 8])
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


def masked_content_output(
    queries, keys, values, pairs, normalization="softmax", causal=False
):
    """Computes the content output of queries with permitted positions each.

    Args:
        queries: as of `content_output`, like keys and values.
        keys: see there.
        values: see there.
        pairs: boolean `([batch,] n, m)`; True = may interact.
        normalization: of a query's own permitted positions.
        causal: bool. Whether what comes later may change no bit of an output;
            `pairs` alone says what a query may see.

    Returns:
        `(batch, n, heads, value_dim)`; zero where nothing is permitted.

    Cost: 2 b n m u (k + h k + h v) operations; largest intermediate
    b n m u h. With a softmax b n m k u exponentials and as much memory, the
    price of a softmax of its own for every query, where `causal`, or where
    all that some query may see is smaller than other keys by a factor of
    1e17 after their exponential.
    """
    dtype, wide = values.dtype, accumulation_dtype(keys.dtype)
    pairs = pairs[None] if len(pairs.shape) == 2 else pairs
    values = tf.cast(values, factor_dtype(dtype, narrow=[tf.bfloat16]))
    values, nonfinite = split_nonfinite(values)
    keys, nonfinite_keys = split_nonfinite(tf.cast(keys, wide))
    queries = tf.cast(queries, wide)
    keys = tf.transpose(keys, [0, 3, 1, 2])  # [b, u, m, k]
    values = tf.transpose(values, [0, 3, 1, 2])  # [b, u, m, v]
    if normalization == "softmax":
        outputs = _softmax_output(queries, keys, values, pairs, causal)
    else:
        scale = tf.ones_like(keys[:, :, :1])
        if normalization == "l2":
            permitted = tf.cast(pairs[:, None], wide)
            scale = inverse_length(tf.matmul(permitted, keys**2))
        outputs = _linear_output(queries, keys, values, pairs, scale)
    seen = seen_through(pairs, nonfinite | nonfinite_keys)
    return propagate_nan(tf.cast(outputs, dtype), seen)


def _softmax_output(queries, keys, values, pairs, causal):
    """Products of matrices, unless they would be of underflown numbers."""
    if causal:
        return _exact_output(queries, keys, values, pairs)
    seen = tf.reduce_any(pairs, axis=1)[:, None, :, None]  # [b, 1, m, 1]
    some = tf.reduce_any(pairs, axis=2)[:, None, :, None]  # [b, 1, n, 1]
    keys = masked_fill(keys, seen, MASKED_LOGIT)
    largest = tf.reduce_max(keys, axis=2, keepdims=True)
    weights = tf.exp(keys - tf.stop_gradient(largest))  # [b, u, m, k]
    totals = tf.matmul(tf.cast(pairs[:, None], keys.dtype), weights)
    is_exact = tf.reduce_all((totals >= _SMALLEST_SUM) | ~some)
    scale = 1.0 / masked_fill(totals, is_exact & some, 1.0)  # [b, u, n, k]
    outputs = _linear_output(queries, weights, values, pairs, scale)

    def exact(queries, keys, values):
        return _exact_output(queries, keys, values, pairs)

    zeros = tf.zeros_like(outputs)
    others = _unless(is_exact, exact, zeros, queries, keys, values)
    return tf.where(is_exact, outputs, others)


def _unless(condition, function, otherwise, *inputs):
    """A function of tensors, which is not computed where it is not needed.

    Its gradient computes it again: that of a bare `tf.cond` keeps what both
    branches form, and TensorFlow warns of types that it cannot infer.
    """

    @tf.custom_gradient
    def compute(*inputs):
        def gradient(upstream):
            def differentiate():
                with tf.GradientTape() as tape:
                    tape.watch(inputs)
                    outputs = function(*inputs)
                return list(tape.gradient(outputs, inputs, upstream))

            zeros = [tf.zeros_like(x) for x in inputs]
            return tf.cond(condition, lambda: zeros, differentiate)

        outputs = tf.cond(
            condition, lambda: otherwise, lambda: function(*inputs)
        )
        return outputs, gradient

    return compute(*inputs)


def _linear_output(queries, keys, values, pairs, scale):
    """Sums keys as they are, for queries with a scale, `(b, u, n or 1, k)`."""
    queries = queries[:, None] * scale[:, :, :, None]  # [b, u, n, h, k]
    scores = tf.einsum("bunhk,bumk->bunhm", queries, keys)
    scores = masked_fill(scores, pairs[:, None, :, None])
    scores = tf.cast(scores, values.dtype)
    outputs = tf.einsum("bunhm,bumv->bunhv", scores, values)
    return tf.reduce_sum(outputs, axis=1)


def _exact_output(queries, keys, values, pairs):
    """A softmax for each query."""
    permitted = pairs[:, None, :, :, None]  # [b, 1, n, m, 1]
    logits = masked_fill(keys[:, :, None], permitted, MASKED_LOGIT)
    weights = tf.nn.softmax(logits, axis=3)  # [b, u, n, m, k]
    weights = masked_fill(weights, permitted)
    weights = tf.cast(weights, values.dtype)
    lambdas = tf.einsum("bunmk,bumv->bnkv", weights, values)
    queries = tf.cast(queries, values.dtype)
    return tf.einsum("bnkv,bnhk->bnhv", lambdas, queries)
