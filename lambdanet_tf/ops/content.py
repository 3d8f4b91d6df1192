"""The content lambda: what the context holds, wherever it stands.

    Lc[b, k, v] = sum over m, u of  norm(K)[b, m, k, u] V[b, m, v, u]

(spec section 1). The normalisation runs over m, the context positions. A mask
that differs from query to query makes the sum, and its normalisation, differ
too; those functions return what the queries read from it instead.
"""

import tensorflow as tf

KEY_NORMALIZATIONS = ("softmax", "l2", None)
CAUSAL_CHUNK = 32
# Finite, so that a difference of two is zero and not NaN.
_MASKED_LOGIT = -1e30
_TINY = 1e-12
# Enough for 2**20 chunks, where their number is known only at run time.
_MOST_ROUNDS = 20


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
    wide = tf.cast(wide, _sum_dtype(keys.dtype))
    if context_mask is not None:
        present = tf.cast(context_mask, wide.dtype)[:, None, None]
    if normalization == "softmax":
        if context_mask is not None:
            wide += (1.0 - present) * _MASKED_LOGIT
        wide = tf.nn.softmax(wide)
    if context_mask is not None:
        wide *= present
    if normalization == "l2":
        wide = tf.math.l2_normalize(wide, axis=-1, epsilon=_TINY)
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
    dtype = _sum_dtype(keys.dtype)
    keys = tf.cast(keys, dtype)
    mask = mask if len(mask.shape) == 3 else mask[None]
    permitted = tf.cast(mask, dtype)
    if normalization == "softmax":
        permitted = permitted[..., None, None]  # [b, n, m, 1, 1]
        logits = keys[:, None] + (1.0 - permitted) * _MASKED_LOGIT
        weights = tf.nn.softmax(logits, axis=2) * permitted  # [b, n, m, k, u]
        weights = tf.cast(weights, values.dtype)
        lambdas = tf.einsum("bnmku,bmvu->bnkv", weights, values)
        return tf.einsum("bnkv,bnhk->bnhv", lambdas, queries)
    scaled = tf.cast(queries, dtype)[..., None]  # [b, n, h, k, 1]
    if normalization == "l2":
        energy = tf.einsum("bnm,bmku->bnku", _batched(permitted, keys), keys**2)
        scaled *= tf.math.rsqrt(tf.maximum(energy, _TINY))[:, :, None]
    scores = tf.einsum(
        "bnhku,bmku->bhnmu", _all_intra(scaled, keys), keys
    )  # [b, h, n, m, u]
    scores = tf.cast(scores * permitted[:, None, ..., None], values.dtype)
    return tf.einsum("bhnmu,bmvu->bnhv", scores, values)


def causal_content_output(
    queries, keys, values, normalization="softmax", context_mask=None
):
    """The content output when a query sees itself and what lies before it.

    Positions are cut into chunks. What the chunks before a query hold arrives
    as one running sum, rescaled to each query's own normalisation with
    exponents that are never positive; only inside the query's own chunk are
    pairs of positions formed. Time and memory are linear in the length.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        keys: `(batch, n, key_dim, intra_depth)`, before normalisation.
        values: `(batch, n, value_dim, intra_depth)`.
        normalization: see `normalize_keys`; runs, for each query, over the
            positions up to its own.
        context_mask: see `normalize_keys`.

    Returns:
        `(batch, n, heads, value_dim)`.

    Cost: about 2 b n k u (v + h v + c h) operations with chunks of c
    positions; largest intermediate b n c k u.
    """
    dtype = _sum_dtype(keys.dtype)
    length = _length(keys)
    chunk = min(CAUSAL_CHUNK, keys.shape[1] or CAUSAL_CHUNK)
    wide = tf.cast(keys, dtype)
    present = _present(context_mask, wide)
    if normalization == "softmax":
        if context_mask is not None:
            wide += (1.0 - present) * _MASKED_LOGIT
        totals = tf.math.cumulative_logsumexp(wide, axis=1)  # [b, n, k, u]
    else:
        if context_mask is not None:
            wide *= present
        totals = tf.cumsum(wide**2, axis=1)
    if context_mask is not None:
        values *= tf.cast(present[..., 0], values.dtype)[..., None]
    outputs = _chunked_causal(
        _chunks(tf.cast(queries, dtype), chunk),
        _chunks(wide, chunk),
        _chunks(tf.cast(values, dtype), chunk),
        # A large total gives the filled positions no weight.
        _chunks(totals, chunk, fill=-_MASKED_LOGIT),
        normalization,
    )  # [b, j, c, h, v]
    heads, value_dim = outputs.shape[-2:]
    outputs = tf.reshape(outputs, [-1, _whole(length, chunk), heads, value_dim])
    return tf.cast(outputs[:, :length], values.dtype)


def _chunked_causal(queries, keys, values, totals, normalization):
    """Letters: j chunks, c positions of a chunk (s where summed over)."""
    chunk = keys.shape[2]
    past = _past(chunk)[None, None, :, :, None, None]
    if normalization == "softmax":
        ends = totals[:, :-1, -1]  # [b, j-1, k, u]
        own = tf.exp(keys[:, :-1] - ends[:, :, None])
        sums = tf.einsum("bjsku,bjsvu->bjkuv", own, values[:, :-1])
        sums = _running_sum(sums, ends)
        # Nothing stands before the first chunk: any exponent <= 0 will do.
        before = tf.concat([totals[:, :1, 0], ends], axis=1)[:, :, None]
        carry = tf.exp(before - totals)  # [b, j, c, k, u]
        pairs = keys[:, :, None] - totals[:, :, :, None]  # [b, j, c, s, k, u]
        pairs = tf.exp(tf.where(past, pairs, _MASKED_LOGIT))
        scores = tf.einsum("bjchk,bjcsku->bjchsu", queries, pairs)
        scaled = queries[..., None] * carry[:, :, :, None]
    else:
        sums = tf.einsum("bjsku,bjsvu->bjkuv", keys[:, :-1], values[:, :-1])
        sums = tf.cumsum(sums, axis=1)
        scaled = queries[..., None]  # [b, j, c, h, k, 1]
        if normalization == "l2":
            scale = tf.math.rsqrt(tf.maximum(totals, _TINY))
            scaled *= scale[:, :, :, None]
        scaled = _all_intra(scaled, keys)
        scores = tf.einsum("bjchku,bjsku->bjchsu", scaled, keys)
        scores *= tf.cast(past[..., 0], scores.dtype)[:, :, :, None]
    earlier = tf.pad(sums, [[0, 0], [1, 0]] + [[0, 0]] * 3)
    return tf.einsum("bjchku,bjkuv->bjchv", scaled, earlier) + tf.einsum(
        "bjchsu,bjsvu->bjchv", scores, values
    )


def _running_sum(sums, ends):
    """Inclusive sums over chunks, each rescaled to its own chunk's end.

    Doubles the number of chunks covered in every round (Hillis and Steele).
    """
    count = sums.shape[1]
    rounds = _MOST_ROUNDS if count is None else max(count - 1, 0).bit_length()
    for shift in (2**index for index in range(rounds)):
        decay = tf.exp(ends[:, :-shift] - ends[:, shift:])[..., None]
        moved = tf.pad(
            sums[:, :-shift] * decay,
            [[0, 0], [tf.minimum(shift, tf.shape(sums)[1]), 0]] + [[0, 0]] * 3,
        )
        sums = tf.ensure_shape(sums + moved, sums.shape)
    return sums


def _past(chunk):
    return tf.linalg.band_part(tf.ones([chunk, chunk], tf.bool), -1, 0)


def _length(x):
    return x.shape[1] or tf.shape(x)[1]


def _whole(length, chunk):
    return -(-length // chunk) * chunk


def _chunks(x, chunk, fill=0.0):
    """`(batch, n, ...)` -> `(batch, chunks, chunk, ...)`, filled at the end."""
    length = _length(x)
    whole = _whole(length, chunk)
    pads = [[0, 0], [0, whole - length]] + [[0, 0]] * (len(x.shape) - 2)
    x = tf.pad(x, pads, constant_values=tf.cast(fill, x.dtype))
    shape = [tf.shape(x)[0], whole // chunk, chunk, *x.shape[2:]]
    return tf.reshape(x, shape)


def _sum_dtype(dtype):
    return tf.float64 if dtype == tf.float64 else tf.float32


def _present(context_mask, like):
    if context_mask is None:
        return None
    return tf.cast(context_mask, like.dtype)[..., None, None]  # [b, m, 1, 1]


def _batched(permitted, like):
    return permitted + tf.zeros_like(like[:, :1, :1, 0])


def _all_intra(scaled, keys):
    """Broadcasts the last axis of `scaled` to the intra-depth of `keys`."""
    return scaled + tf.zeros([keys.shape[-1]], scaled.dtype)
