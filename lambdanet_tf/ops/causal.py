"""The content lambda of sequences whose positions see only their past.

Letters beside those of the package: j chunks, c positions of a chunk (s where
they are summed over).
"""

import tensorflow as tf

from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.keys import MASKED_LOGIT
from lambdanet_tf.ops.keys import TINY
from lambdanet_tf.ops.keys import all_intra
from lambdanet_tf.ops.keys import sum_dtype
from lambdanet_tf.ops.keys import where
from lambdanet_tf.ops.nonfinite import finite
from lambdanet_tf.ops.nonfinite import nan_where

CHUNK = 16
# Enough for 2**20 chunks, where their number is known only at run time.
_MOST_ROUNDS = 20


def causal_content_output(
    queries, keys, values, normalization="softmax", context_mask=None
):
    """Computes the content output of queries that see only their past.

    Positions are cut into chunks. What the chunks before a query hold arrives
    as one running sum, rescaled to each query's own normalization with
    exponents that are never positive; only inside the query's own chunk are
    pairs of positions formed. Time and memory are linear in the length.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        keys: `(batch, n, key_dim, intra_depth)`, before normalization.
        values: `(batch, n, value_dim, intra_depth)`.
        normalization: see `normalize_keys`; runs, for each query, over the
            positions up to its own.
        context_mask: see `normalize_keys`.

    Returns:
        `(batch, n, heads, value_dim)`.

    Cost: about 2 b n k u (v + h v + c h) operations with chunks of c
    positions; largest intermediate b n c k u.
    """
    length = size(keys, 1)
    chunk = min(CHUNK, keys.shape[1] or CHUNK)
    dtype = sum_dtype(keys.dtype)
    wide = tf.cast(keys, dtype)
    fill = MASKED_LOGIT if normalization == "softmax" else 0.0
    if context_mask is not None:
        present = context_mask[..., None, None]  # [b, n, 1, 1]
        wide = where(present, wide, fill)
        values = where(present, values, 0.0)
    values, bad = finite(values)
    attend = _softmax if normalization == "softmax" else _linear
    earlier, sums, scores, values = attend(
        _chunks(tf.cast(queries, dtype), length, chunk),
        _chunks(wide, length, chunk, fill),
        _chunks(tf.cast(values, dtype), length, chunk),
        normalization,
    )
    sums = tf.pad(sums, [[0, 0], [1, 0]] + [[0, 0]] * 3)  # before each chunk
    outputs = tf.einsum("bjchku,bjkuv->bjchv", earlier, sums)
    outputs += tf.einsum("bjchsu,bjsvu->bjchv", scores, values)
    heads, value_dim = outputs.shape[-2:]
    shape = [tf.shape(keys)[0], _whole(length, chunk), heads, value_dim]
    outputs = tf.cast(tf.reshape(outputs, shape)[:, :length], keys.dtype)
    seen = tf.cumsum(tf.cast(bad, tf.int32), axis=1) > 0
    return nan_where(outputs, seen)


def _softmax(queries, keys, values, _):
    """Queries scaled for what is earlier, its sums, and scores of the rest.

    Maximum and sum of exponents are kept apart: their logarithm in one number
    would lose the digits of a small difference of large logits.
    """
    top = tf.stop_gradient(_running_maximum(keys))  # [b, j, c, k, u]
    ends = top[:, :-1, -1]
    own = tf.exp(keys[:, :-1] - ends[:, :, None])
    sums = tf.einsum("bjsku,bjsvu->bjkuv", own, values[:, :-1])
    totals = tf.reduce_sum(own, axis=2)[..., None]
    sums = _running_sum(tf.concat([sums, totals], axis=-1), ends)
    sums, totals = sums[..., :-1], sums[..., -1]
    # Nothing stands before the first chunk: any exponent <= 0 will do.
    before = tf.concat([top[:, :1, 0], ends], axis=1)[:, :, None]
    carry = tf.exp(before - top)  # [b, j, c, k, u]
    past = _past(keys.shape[2])[:, :, None, None]
    pairs = keys[:, :, None] - top[:, :, :, None]  # [b, j, c, s, k, u]
    pairs = tf.exp(tf.where(past, pairs, MASKED_LOGIT))
    totals = tf.pad(totals, [[0, 0], [1, 0], [0, 0], [0, 0]])
    totals = carry * totals[:, :, None] + tf.reduce_sum(pairs, axis=3)
    queries = queries[..., None] / totals[:, :, :, None]  # [b, j, c, h, k, u]
    scores = tf.einsum("bjchku,bjcsku->bjchsu", queries, pairs)
    return queries * carry[:, :, :, None], sums, scores, values


def _linear(queries, keys, values, normalization):
    """As `_softmax`, for keys that are summed as they are."""
    sums = tf.einsum("bjsku,bjsvu->bjkuv", keys[:, :-1], values[:, :-1])
    queries = queries[..., None]  # [b, j, c, h, k, 1]
    if normalization == "l2":
        energy = tf.cumsum(keys**2, axis=2)
        whole = tf.cumsum(energy[:, :, -1:], axis=1, exclusive=True)
        scale = tf.math.rsqrt(tf.maximum(energy + whole, TINY))
        queries *= scale[:, :, :, None]
    queries = all_intra(queries, keys)
    scores = tf.einsum("bjchku,bjsku->bjchsu", queries, keys)
    past = _past(keys.shape[2])[:, None, :, None]
    scores = where(past, scores, 0.0)
    return queries, tf.cumsum(sums, axis=1), scores, values


def _running_maximum(keys):
    """Maximum over all positions up to each, `(b, j, c, k, u)`."""
    inside = keys
    for shift in _shifts(keys.shape[2]):
        inside = tf.maximum(inside, _moved(inside, shift, 2, keys.dtype.min))
    ends = inside[:, :, -1]
    for shift in _shifts(ends.shape[1]):
        ends = tf.maximum(ends, _moved(ends, shift, 1, keys.dtype.min))
    before = _moved(ends, 1, 1, keys.dtype.min)
    return tf.maximum(inside, before[:, :, None])


def _running_sum(sums, ends):
    """Inclusive sums over chunks, each rescaled to its own chunk's end."""
    for shift in _shifts(sums.shape[1]):
        decay = tf.exp(ends[:, :-shift] - ends[:, shift:])[..., None]
        decay = tf.pad(decay, _pads(decay, _clipped(shift, sums, 1), 1))
        sums += _moved(sums, shift, 1) * decay
    return sums


def _shifts(count):
    """1, 2, 4 ...: every round doubles the reach (Hillis and Steele)."""
    rounds = _MOST_ROUNDS if count is None else max(count - 1, 0).bit_length()
    return [2**index for index in range(rounds)]


def _moved(x, shift, axis, fill=0.0):
    """Shifts an axis towards its end, filling the beginning."""
    shift = _clipped(shift, x, axis)
    cut = [slice(None)] * axis + [slice(size(x, axis) - shift)]
    moved = tf.pad(x[tuple(cut)], _pads(x, shift, axis), constant_values=fill)
    return tf.ensure_shape(moved, x.shape)


def _clipped(shift, x, axis):
    is_known = x.shape[axis] is not None
    return shift if is_known else tf.minimum(shift, tf.shape(x)[axis])


def _pads(x, before, axis):
    return [[before if i == axis else 0, 0] for i in range(len(x.shape))]


def _past(chunk):
    return tf.linalg.band_part(tf.ones([chunk, chunk], tf.bool), -1, 0)


def _whole(length, chunk):
    return -(-length // chunk) * chunk


def _chunks(x, length, chunk, fill=0.0):
    """`(batch, n, ...)` -> `(batch, chunks, chunk, ...)`, filled at the end."""
    whole = _whole(length, chunk)
    pads = [[0, 0], [0, whole - length]] + [[0, 0]] * (len(x.shape) - 2)
    x = tf.pad(x, pads, constant_values=tf.cast(fill, x.dtype))
    shape = [tf.shape(x)[0], whole // chunk, chunk, *x.shape[2:]]
    return tf.reshape(x, shape)
