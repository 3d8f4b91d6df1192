"""The content lambda: what the context holds, wherever it stands.

    Lc[b, k, v] = sum over m, u of  norm(K)[b, m, k, u] V[b, m, v, u]

(spec section 1). The normalisation runs over m, the context positions. A mask
that differs from query to query makes the sum, and its normalisation, differ
too; those functions return what the queries read from it instead.
"""

import tensorflow as tf

KEY_NORMALIZATIONS = ("softmax", "l2", None)
# Finite, so that a difference of two is zero and not NaN.
MASKED_LOGIT = -1e30
TINY = 1e-12


def normalize_keys(keys, normalization, context_mask=None):
    """Normalises keys over the context positions, in float32 or wider.

    Args:
        keys: `(batch, m, key_dim, intra_depth)`.
        normalization: "softmax", "l2" (unit length of every key channel) or
            None.
        context_mask: None or boolean `(batch, m)`; False = padding.

    Returns:
        `(batch, key_dim, intra_depth, m)`, in the dtype of the keys; zero at
        padded positions. (Positions last: a softmax over another axis is two
        transpositions more.)
    """
    wide = tf.transpose(keys, [0, 2, 3, 1])
    wide = tf.cast(wide, sum_dtype(keys.dtype))
    if context_mask is not None:
        present = tf.cast(context_mask, wide.dtype)[:, None, None]
    if normalization == "softmax":
        if context_mask is not None:
            wide += (1.0 - present) * MASKED_LOGIT
        wide = tf.nn.softmax(wide)
    if context_mask is not None:
        wide *= present
    if normalization == "l2":
        wide = tf.math.l2_normalize(wide, axis=-1, epsilon=TINY)
    return tf.cast(wide, keys.dtype)


def content_lambda(keys, values, normalization="softmax", context_mask=None):
    """The content lambda, one matrix for all queries of an example.

    Args:
        keys: `(batch, m, key_dim, intra_depth)`, before normalisation.
        values: `(batch, m, value_dim, intra_depth)`.
        normalization: see `normalize_keys`.
        context_mask: see `normalize_keys`.

    Returns:
        `(batch, key_dim, value_dim)`.

    Cost: 2 b m k v u operations; parameters none.
    """
    batch, (value_dim, intra) = tf.shape(keys)[0], values.shape[2:]
    depth = _length(keys) * intra
    keys = normalize_keys(keys, normalization, context_mask)
    keys = tf.reshape(keys, [batch, keys.shape[1], depth])
    if intra > 1:
        values = tf.transpose(values, [0, 3, 1, 2])
    values = tf.reshape(values, [batch, depth, value_dim])
    return tf.matmul(keys, values)


def apply_content_lambda(queries, content):
    """`(batch, n, heads, k)`, `(batch, k, v)` -> `(batch, n, heads, v)`."""
    (heads, key_dim), value_dim = queries.shape[2:], content.shape[-1]
    batch, positions = tf.shape(queries)[0], _length(queries)
    rows = tf.reshape(queries, [batch, positions * heads, key_dim])
    outputs = tf.matmul(rows, content)
    return tf.reshape(outputs, [batch, positions, heads, value_dim])


def masked_content_output(queries, keys, values, mask, normalization="softmax"):
    """The content output when every query has its own permitted positions.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        keys: `(batch, m, key_dim, intra_depth)`, before normalisation.
        values: `(batch, m, value_dim, intra_depth)`.
        mask: boolean `(n, m)` or `(batch, n, m)`; True = may interact.
        normalization: see `normalize_keys`; runs, for each query, over its
            own permitted positions.

    Returns:
        `(batch, n, heads, value_dim)`; zero where nothing is permitted.

    Cost: b n m k u exponentials and as much memory: the price of a softmax
    of its own for every query.
    """
    dtype = sum_dtype(keys.dtype)
    keys = tf.cast(keys, dtype)
    mask = mask if len(mask.shape) == 3 else mask[None]
    permitted = tf.cast(mask, dtype)
    if normalization == "softmax":
        permitted = permitted[..., None, None]  # [b, n, m, 1, 1]
        logits = keys[:, None] + (1.0 - permitted) * MASKED_LOGIT
        weights = tf.nn.softmax(logits, axis=2) * permitted  # [b, n, m, k, u]
        weights = tf.cast(weights, values.dtype)
        lambdas = tf.einsum("bnmku,bmvu->bnkv", weights, values)
        return tf.einsum("bnkv,bnhk->bnhv", lambdas, queries)
    scaled = tf.cast(queries, dtype)[..., None]  # [b, n, h, k, 1]
    if normalization == "l2":
        energy = tf.einsum("bnm,bmku->bnku", _batched(permitted, keys), keys**2)
        scaled *= tf.math.rsqrt(tf.maximum(energy, TINY))[:, :, None]
    scores = tf.einsum(
        "bnhku,bmku->bhnmu", all_intra(scaled, keys), keys
    )  # [b, h, n, m, u]
    scores = tf.cast(scores * permitted[:, None, ..., None], values.dtype)
    return tf.einsum("bhnmu,bmvu->bnhv", scores, values)


def _length(x):
    return x.shape[1] or tf.shape(x)[1]


def sum_dtype(dtype):
    """What sums over positions are kept in: float32, or float64."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def _batched(permitted, like):
    return permitted + tf.zeros_like(like[:, :1, :1, 0])


def all_intra(scaled, keys):
    """Broadcasts the last axis of `scaled` to the intra-depth of `keys`."""
    return scaled + tf.zeros([keys.shape[-1]], scaled.dtype)
