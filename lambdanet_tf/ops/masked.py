"""The content output of queries that may each see other positions."""

import tensorflow as tf

from lambdanet_tf.ops.keys import MASKED_LOGIT
from lambdanet_tf.ops.keys import all_intra
from lambdanet_tf.ops.keys import inverse_length
from lambdanet_tf.ops.keys import sum_dtype
from lambdanet_tf.ops.keys import where
from lambdanet_tf.ops.nonfinite import finite
from lambdanet_tf.ops.nonfinite import poisoned
from lambdanet_tf.ops.precision import content_dtype


def masked_content_output(
    queries, keys, values, attention_mask, normalization="softmax"
):
    """Computes the content output of queries with permitted positions each.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        keys: `(batch, m, key_dim, intra_depth)`, before normalization.
        values: `(batch, m, value_dim, intra_depth)`.
        attention_mask: boolean `(n, m)` or `(batch, n, m)`; True = may
            interact.
        normalization: see `normalize_keys`; runs, for each query, over its
            own permitted positions.

    Returns:
        `(batch, n, heads, value_dim)`; zero where nothing is permitted.

    Cost: b n m k u exponentials and as much memory: the price of a softmax
    of its own for every query.
    """
    dtype, wide = values.dtype, sum_dtype(keys.dtype)
    queries = tf.cast(queries, content_dtype(dtype))
    keys, values = tf.cast(keys, wide), tf.cast(values, queries.dtype)
    values, bad = finite(values)
    keys, bad_keys = finite(keys)
    bad |= bad_keys
    mask = attention_mask
    if len(mask.shape) == 2:
        mask = mask[None]
    if normalization == "softmax":
        permitted = mask[..., None, None]  # [b, n, m, 1, 1]
        logits = where(permitted, keys[:, None], MASKED_LOGIT)
        weights = tf.nn.softmax(logits, axis=2)  # [b, n, m, k, u]
        weights = tf.cast(where(permitted, weights, 0.0), values.dtype)
        lambdas = tf.einsum("bnmku,bmvu->bnkv", weights, values)
        outputs = tf.einsum("bnkv,bnhk->bnhv", lambdas, queries)
        return poisoned(tf.cast(outputs, dtype), bad, mask)
    scaled = tf.cast(queries, wide)[..., None]  # [b, n, h, k, 1]
    if normalization == "l2":
        permitted = tf.cast(mask, wide)
        permitted += tf.zeros_like(keys[:, :1, :1, 0])  # [b, n, m]
        energy = tf.einsum("bnm,bmku->bnku", permitted, keys**2)
        scaled *= inverse_length(energy)[:, :, None]
    scores = tf.einsum(
        "bnhku,bmku->bhnmu", all_intra(scaled, keys), keys
    )  # [b, h, n, m, u]
    scores = where(mask[:, None, ..., None], scores, 0.0)
    scores = tf.cast(scores, values.dtype)
    outputs = tf.einsum("bhnmu,bmvu->bnhv", scores, values)
    return poisoned(tf.cast(outputs, dtype), bad, mask)
