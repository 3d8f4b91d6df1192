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
    (key_dim, intra_depth), value_dim = keys.shape[2:], values.shape[2]
    spec = content_state_spec(
        key_dim, value_dim, intra_depth, normalization, keys.dtype
    )
    state = initial_state(spec, tf.shape(keys)[0])
    outputs, _ = causal_content_step(
        queries, keys, values, state, normalization, context_mask
    )
    return outputs


def content_state_spec(
    key_dim: int,
    value_dim: int,
    intra_depth: int = 1,
    normalization: str | None = "softmax",
    dtype: str | tf.DType = tf.float32,
) -> dict[str, tf.TensorSpec]:
    """Returns what must be kept of a sequence to go on with its content output.

    Args:
        key_dim: int. As of the layer.
        value_dim: int. As of the layer.
        intra_depth: int. As of the layer.
        normalization: see `normalize_keys`.
        dtype: of the keys; the sums are kept in float32 or wider.

    Returns:
        Specifications of a state, whose size does not depend on the number of
        positions. "content", `(batch, key_dim, intra_depth, value_dim)`: the
        sum of keys times values. "key_sum", `(batch, key_dim, intra_depth)`:
        of exponentials (softmax) or of squares (l2). "key_maximum", likewise,
        with softmax: exponents in the sums are relative to it.
    """
    dtype = sum_dtype(tf.as_dtype(dtype))
    channels = [None, key_dim, intra_depth]
    shapes = {"content": [*channels, value_dim]}
    if normalization is not None:
        shapes["key_sum"] = channels
    if normalization == "softmax":
        shapes["key_maximum"] = channels
    return {
        name: tf.TensorSpec(shape, dtype, name)
        for name, shape in shapes.items()
    }


def initial_state(
    spec: dict[str, tf.TensorSpec], batch_size: int | tf.Tensor
) -> dict[str, tf.Tensor]:
    """Creates the state of sequences of which nothing was seen yet.

    Args:
        spec: from name to specification, see `content_state_spec`; states of
            other names begin at zero.
        batch_size: int or scalar tensor. Number of sequences.

    Returns:
        Tensors of these names.
    """
    state = {}
    for name, part in spec.items():
        start = MASKED_LOGIT if name == "key_maximum" else 0.0
        shape = [batch_size, *part.shape[1:]]
        state[name] = tf.fill(shape, tf.cast(start, part.dtype))
    return state


def causal_content_step(
    queries: tf.Tensor,
    keys: tf.Tensor,
    values: tf.Tensor,
    state: dict[str, tf.Tensor],
    normalization: str | None = "softmax",
    context_mask: tf.Tensor | None = None,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Computes the causal content output of the next positions of a sequence.

    The algorithm of `causal_content_output`, with the positions before the
    first given one replaced by their running sums.

    Args:
        queries: `(batch, n, heads, key_dim)`, of the n new positions.
        keys: `(batch, n, key_dim, intra_depth)`, before normalization.
        values: `(batch, n, value_dim, intra_depth)`.
        state: of the positions before, see `content_state_spec`.
        normalization: see `normalize_keys`.
        context_mask: None or boolean `(batch, n)`; False = padding.

    Returns:
        `(batch, n, heads, value_dim)`, and the state after these positions.
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
    earlier, sums, scores, values, state = attend(
        _chunks(tf.cast(queries, dtype), length, chunk),
        _chunks(wide, length, chunk, fill),
        _chunks(tf.cast(values, dtype), length, chunk),
        normalization,
        state,
    )
    outputs = tf.einsum("bjchku,bjkuv->bjchv", earlier, sums)
    outputs += tf.einsum("bjchsu,bjsvu->bjchv", scores, values)
    heads, value_dim = outputs.shape[-2:]
    shape = [tf.shape(keys)[0], _whole(length, chunk), heads, value_dim]
    outputs = tf.cast(tf.reshape(outputs, shape)[:, :length], keys.dtype)
    seen = tf.cumsum(tf.cast(bad, tf.int32), axis=1) > 0
    # Whoever sees the sums sees the position that is not finite.
    state["content"] = nan_where(state["content"], seen[:, -1:])
    return nan_where(outputs, seen), state


def _softmax(queries, keys, values, _, state):
    """Queries scaled for what is earlier, its sums, scores, the next state.

    Maximum and sum of exponents are kept apart: their logarithm in one number
    would lose the digits of a small difference of large logits.
    """
    start = tf.stop_gradient(state["key_maximum"])[:, None]  # [b, 1, k, u]
    top = tf.stop_gradient(_running_maximum(keys, start))  # [b, j, c, k, u]
    ends = tf.concat([start, top[:, :, -1]], axis=1)  # [b, j + 1, k, u]
    own = tf.exp(keys - ends[:, 1:, None])
    sums = tf.einsum("bjsku,bjsvu->bjkuv", own, values)
    totals = tf.reduce_sum(own, axis=2)[..., None]
    sums = tf.concat([sums, totals], axis=-1)  # [b, j, k, u, v + 1]
    before = [state["content"], state["key_sum"][..., None]]
    before = tf.concat(before, axis=-1)[:, None]
    sums = _running_sum(tf.concat([before, sums], axis=1), ends)
    state = {
        "content": sums[:, -1, ..., :-1],
        "key_sum": sums[:, -1, ..., -1],
        "key_maximum": ends[:, -1],
    }
    sums, totals = sums[:, :-1, ..., :-1], sums[:, :-1, ..., -1]
    carry = tf.exp(ends[:, :-1, None] - top)  # [b, j, c, k, u]
    past = _past(keys.shape[2])[:, :, None, None]
    pairs = keys[:, :, None] - top[:, :, :, None]  # [b, j, c, s, k, u]
    pairs = tf.exp(tf.where(past, pairs, MASKED_LOGIT))
    totals = carry * totals[:, :, None] + tf.reduce_sum(pairs, axis=3)
    queries = queries[..., None] / totals[:, :, :, None]  # [b, j, c, h, k, u]
    scores = tf.einsum("bjchku,bjcsku->bjchsu", queries, pairs)
    return queries * carry[:, :, :, None], sums, scores, values, state


def _linear(queries, keys, values, normalization, state):
    """As `_softmax`, for keys that are summed as they are."""
    sums = tf.einsum("bjsku,bjsvu->bjkuv", keys, values)
    sums = tf.concat([state["content"][:, None], sums], axis=1)
    sums = tf.cumsum(sums, axis=1)  # [b, j + 1, k, u, v]
    next_state = {"content": sums[:, -1]}
    queries = queries[..., None]  # [b, j, c, h, k, 1]
    if normalization == "l2":
        energy = tf.cumsum(keys**2, axis=2)
        whole = tf.concat([state["key_sum"][:, None], energy[:, :, -1]], 1)
        whole = tf.cumsum(whole, axis=1)  # [b, j + 1, k, u]
        next_state["key_sum"] = whole[:, -1]
        energy += whole[:, :-1, None]
        scale = tf.math.rsqrt(tf.maximum(energy, TINY))
        queries *= scale[:, :, :, None]
    queries = all_intra(queries, keys)
    scores = tf.einsum("bjchku,bjsku->bjchsu", queries, keys)
    past = _past(keys.shape[2])[:, None, :, None]
    scores = where(past, scores, 0.0)
    return queries, sums[:, :-1], scores, values, next_state


def _running_maximum(keys, start):
    """Maximum over `start` and all positions up to each, `(b, j, c, k, u)`."""
    inside = keys
    for shift in _shifts(keys.shape[2]):
        inside = tf.maximum(inside, _moved(inside, shift, 2, keys.dtype.min))
    ends = inside[:, :, -1]
    for shift in _shifts(ends.shape[1]):
        ends = tf.maximum(ends, _moved(ends, shift, 1, keys.dtype.min))
    before = _moved(ends, 1, 1, keys.dtype.min)
    return tf.maximum(inside, tf.maximum(before, start)[:, :, None])


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
