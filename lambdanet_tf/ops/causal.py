"""The content lambda of sequences whose positions see only their past.

Letters beside those of the package: j chunks, c positions of a chunk (s where
they are summed over), p pieces of a chunk.
"""

import tensorflow as tf

from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.keys import MASKED_LOGIT
from lambdanet_tf.ops.keys import TINY
from lambdanet_tf.ops.keys import sum_dtype
from lambdanet_tf.ops.keys import where
from lambdanet_tf.ops.nonfinite import finite
from lambdanet_tf.ops.nonfinite import nan_where

CHUNK = 16  # positions
GROUP = 32  # chunks whose running sums are one product
# Where the number of chunks is known only at run time.
_MOST_ROUNDS = 3
_MOST_SHIFTS = 20  # enough for 2**20 chunks


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

    Cost: about 2 b n u (k v + h k v + h c k + h c v) operations with chunks
    of c positions; largest intermediates b n h k u, b n h c u and
    b n k v u / c.
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
    chunk = _chunk_size(keys.shape[1])
    dtype = sum_dtype(keys.dtype)
    wide = tf.cast(keys, dtype)
    fill = MASKED_LOGIT if normalization == "softmax" else 0.0
    if context_mask is not None:
        present = context_mask[..., None, None]  # [b, n, 1, 1]
        wide = where(present, wide, fill)
        values = where(present, values, 0.0)
    values, bad = finite(values)
    wide, bad_keys = finite(wide)
    # A zero in a product hides what comes later, but not NaN or infinity.
    bad |= bad_keys
    # Intra-depth goes first: what follows is products of matrices.
    wide = _chunks(tf.transpose(wide, [0, 3, 1, 2]), length, chunk, fill)
    values = tf.transpose(tf.cast(values, dtype), [0, 3, 1, 2])
    values = _chunks(values, length, chunk)  # [b, u, j, c, v]
    queries = _chunks(tf.cast(queries, dtype)[:, None], length, chunk)
    state = _swapped(state)  # [b, u, k, ...]
    attend = _softmax if normalization == "softmax" else _linear
    earlier, sums, scores, state = attend(
        queries, wide, values, normalization, state
    )
    outputs = _read(earlier, sums) + _read(scores, values)
    heads, value_dim = queries.shape[-2], values.shape[-1]
    shape = [tf.shape(keys)[0], _whole(length, chunk), heads, value_dim]
    outputs = _first(tf.reshape(outputs, shape), length, 1)
    outputs = tf.cast(outputs, keys.dtype)
    state = _swapped(state)
    seen = tf.cumsum(tf.cast(bad, tf.int32), axis=1) > 0
    # Whoever sees the sums sees the position that is not finite.
    state["content"] = nan_where(state["content"], seen[:, -1:])
    return nan_where(outputs, seen), state


def _swapped(state):
    """Exchanges key channels and intra-depth of every part of a state."""
    orders = {3: [0, 2, 1], 4: [0, 2, 1, 3]}
    return {
        name: tf.transpose(part, orders[len(part.shape)])
        for name, part in state.items()
    }


def _read(queries, lambdas):
    """`(b, u, j, c, h, x)` by `(b, u, j, x, v)` -> `(b, j, c * h, v)`."""
    batch, chunks = size(lambdas, 0), size(lambdas, 2)
    _, intra, _, chunk, heads, depth = queries.shape
    queries = tf.transpose(queries, [0, 2, 3, 4, 1, 5])
    shape = [batch, chunks, chunk * heads, intra * depth]
    queries = tf.reshape(queries, shape)
    lambdas = tf.transpose(lambdas, [0, 2, 1, 3, 4])
    shape = [batch, chunks, intra * depth, lambdas.shape[-1]]
    return tf.matmul(queries, tf.reshape(lambdas, shape))


def _softmax(queries, keys, values, _, state):
    """Queries scaled for what is earlier, its sums, scores, the next state.

    Maximum and sum of exponents are kept apart: their logarithm in one number
    would lose the digits of a small difference of large logits.
    """
    start = tf.stop_gradient(state["key_maximum"])[:, :, None]  # [b, u, 1, k]
    top = tf.stop_gradient(_running_maximum(keys, start))  # [b, u, j, c, k]
    ends = tf.concat([start, top[..., -1, :]], axis=2)  # [b, u, j + 1, k]
    own, halves = tf.exp(keys - top), _halves(keys, top)
    totals = _totals(own, halves)  # [b, u, j, c, k]
    weights = tf.exp(keys - ends[:, :, 1:, None])
    sums = tf.matmul(weights, values, transpose_a=True)
    sums = tf.concat([sums, totals[..., -1, :, None]], axis=-1)
    before = [state["content"], state["key_sum"][..., None]]
    before = tf.concat(before, axis=-1)[:, :, None]
    sums = _running_sum(tf.concat([before, sums], axis=2), ends)
    sums, last = tf.split(sums, [size(keys, 2), 1], axis=2)
    state = {
        "content": last[:, :, 0, :, :-1],
        "key_sum": last[:, :, 0, :, -1],
        "key_maximum": ends[:, :, -1],
    }
    sums, before = tf.split(sums, [values.shape[-1], 1], axis=-1)
    carry = tf.exp(ends[:, :, :-1, None] - top)  # [b, u, j, c, k]
    totals += carry * before[:, :, :, None, :, 0]
    queries = queries / totals[..., None, :]  # [b, u, j, c, h, k]
    scores = _scores(queries, own, halves)
    return queries * carry[..., None, :], sums, scores, state


def _halves(keys, top):
    """Factors of the pairs whose key is in the half before the query's.

    The exponent of such a pair, relative to the maximum that the query sees,
    is the key's relative to the maximum at the end of its half, and that one's
    relative to the query's: neither is ever positive.

    Returns:
        For pieces of 2, 4, 8 ... positions a tuple, `(b, u, j, p, half, k)`:
        factors of the keys of the first half, and of the queries of the second.
    """
    factors = []
    for half in _shifts(keys.shape[3]):
        first, _ = _cut(keys, half)
        tops, second = _cut(top, half)
        middle = tops[..., -1:, :]
        factors.append((tf.exp(first - middle), tf.exp(middle - second)))
    return factors


def _totals(own, halves):
    """Sums of the exponents that a query sees in its chunk, `(b, u, j, c, k)`.

    Args:
        own: of its own position, `(b, u, j, c, k)`.
        halves: see `_halves`.
    """
    totals = own
    for _, decay in halves:
        first, second = _cut(totals, decay.shape[4])
        totals = _joined(first, second + decay * first[..., -1:, :])
    return totals


def _scores(queries, own, halves):
    """How queries weigh positions of their chunk, `(b, u, j, c, h, s)`."""
    scores = tf.reduce_sum(queries * own[..., None, :], -1, keepdims=True)
    for weights, decay in halves:
        half = weights.shape[4]
        _, second = _cut(queries, half)  # [b, u, j, p, half, h, k]
        sizes = [size(second, axis) for axis in range(6)]
        flat = [*sizes[:4], -1, queries.shape[-1]]
        second = tf.reshape(second * decay[..., None, :], flat)
        across = tf.matmul(second, weights, transpose_b=True)
        across = tf.reshape(across, [*sizes, half])
        first, second = _cut(scores, half)
        first = tf.pad(first, [[0, 0]] * 6 + [[0, half]])
        scores = _joined(first, tf.concat([across, second], -1))
    return scores


def _cut(x, half):
    """`(b, u, j, c, ...)` -> two times `(b, u, j, p, half, ...)`."""
    chunk = x.shape[3]
    shape = [size(x, 0), x.shape[1], size(x, 2), chunk // (2 * half), 2, half]
    return tf.unstack(tf.reshape(x, [*shape, *x.shape[4:]]), axis=4)


def _joined(first, second):
    """Undoes `_cut`."""
    x = tf.concat([first, second], axis=4)
    shape = [size(x, 0), x.shape[1], size(x, 2), x.shape[3] * x.shape[4]]
    return tf.reshape(x, [*shape, *x.shape[5:]])


def _linear(queries, keys, values, normalization, state):
    """As `_softmax`, for keys that are summed as they are."""
    chunks = size(keys, 2)
    sums = tf.matmul(keys, values, transpose_a=True)
    sums = tf.concat([state["content"][:, :, None], sums], axis=2)
    sums = tf.cumsum(sums, axis=2)  # [b, u, j + 1, k, v]
    sums, last = tf.split(sums, [chunks, 1], axis=2)
    next_state = {"content": last[:, :, 0]}
    if normalization == "l2":
        energy = tf.cumsum(keys**2, axis=3)
        whole = [state["key_sum"][:, :, None], energy[..., -1, :]]
        whole = tf.cumsum(tf.concat(whole, 2), axis=2)  # [b, u, j + 1, k]
        next_state["key_sum"] = whole[:, :, -1]
        energy += whole[:, :, :-1, None]
        scale = tf.math.rsqrt(tf.maximum(energy, TINY))
        queries *= scale[..., None, :]
    else:
        queries = tf.tile(queries, [1, keys.shape[1], 1, 1, 1, 1])
    _, intra, _, chunk, heads, key_dim = queries.shape
    batch = size(keys, 0)
    flat = [batch, intra, chunks, chunk * heads, key_dim]
    scores = tf.matmul(tf.reshape(queries, flat), keys, transpose_b=True)
    shape = [batch, intra, chunks, chunk, heads, chunk]
    past = _past(chunk)[:, None]
    scores = where(past, tf.reshape(scores, shape), 0.0)
    return queries, sums, scores, next_state


def _running_maximum(keys, start):
    """Maximum over `start` and all positions up to each, `(b, u, j, c, k)`."""
    inside = keys
    for shift in _shifts(keys.shape[3]):
        inside = tf.maximum(inside, _moved(inside, shift, 3))
    ends = inside[..., -1, :]
    for shift in _shifts(ends.shape[2]):
        ends = tf.maximum(ends, _moved(ends, shift, 2))
    before = tf.maximum(_moved(ends, 1, 2), start)
    return tf.maximum(inside, before[:, :, :, None])


def _running_sum(sums, ends, rounds=_MOST_ROUNDS):
    """Inclusive sums over chunks, each rescaled to its own chunk's end.

    Args:
        sums: `(b, u, j, k, w)`, each relative to the maximum at its end.
        ends: `(b, u, j, k)`, the maxima, which never fall.
        rounds: int. How often groups of chunks are formed, where the number
            of chunks is known only at run time.
    """
    count = sums.shape[2]
    if (count or GROUP + 1) <= GROUP or rounds == 0:
        return _group_sums(sums, ends)
    chunks = size(sums, 2)
    sums = _chunks(sums, chunks, GROUP)  # [b, u, j, c, k, w]
    ends = _chunks(ends, chunks, GROUP, ends.dtype.max)
    inside = _group_sums(sums, ends)
    groups = ends[..., -1, :]
    before = _running_sum(inside[..., -1, :, :], groups, rounds - 1)
    decay = tf.exp(_moved(groups, 1, 2)[..., None, :] - ends)
    sums = inside + decay[..., None] * _moved(before, 1, 2, 0.0)[:, :, :, None]
    shape = [size(sums, 0), sums.shape[1], _whole(chunks, GROUP)]
    sums = tf.reshape(sums, [*shape, *sums.shape[-2:]])
    return _first(sums, chunks, 2)


def _group_sums(sums, ends):
    """As `_running_sum`, over `(..., j, k, w)` and `(..., j, k)` at once."""
    last = len(sums.shape) - 1
    order = [*range(last - 2), last - 1, last - 2, last]
    ends = tf.linalg.matrix_transpose(ends)  # [..., k, j]
    decay = ends[..., None, :] - ends[..., None]
    past = _past(size(ends, last - 1))
    decay = tf.exp(where(past, decay, MASKED_LOGIT))
    return tf.transpose(tf.matmul(decay, tf.transpose(sums, order)), order)


def _shifts(count):
    """1, 2, 4 ...: every round doubles the reach (Hillis and Steele)."""
    rounds = _MOST_SHIFTS if count is None else max(count - 1, 0).bit_length()
    return [2**index for index in range(rounds)]


def _first(x, count, axis):
    """The first `count` entries along an axis."""
    if x.shape[axis] is not None and x.shape[axis] == count:
        return x
    # The gradient of `tf.slice` pads, at a third of the time of a subscript's.
    sizes = [count if i == axis else -1 for i in range(len(x.shape))]
    shape = [None if i == axis else n for i, n in enumerate(x.shape)]
    return tf.ensure_shape(tf.slice(x, [0] * len(sizes), sizes), shape)


def _moved(x, shift, axis, fill=None):
    """Shifts an axis towards its end, filling the beginning."""
    if x.shape[axis] is None:
        shift = tf.minimum(shift, tf.shape(x)[axis])
    cut = [slice(None)] * axis + [slice(size(x, axis) - shift)]
    pads = [[shift if i == axis else 0, 0] for i in range(len(x.shape))]
    fill = x.dtype.min if fill is None else fill
    moved = tf.pad(x[tuple(cut)], pads, constant_values=fill)
    return tf.ensure_shape(moved, x.shape)


def _past(chunk):
    return tf.linalg.band_part(tf.ones([chunk, chunk], tf.bool), -1, 0)


def _chunk_size(length):
    """`CHUNK`, or the power of two that holds a short sequence."""
    if length is None:
        return CHUNK
    return min(CHUNK, 2 ** max(length - 1, 0).bit_length())


def _whole(length, chunk):
    return -(-length // chunk) * chunk


def _chunks(x, length, chunk, fill=0.0):
    """`(b, u, n, ...)` -> `(b, u, chunks, chunk, ...)`, filled at the end."""
    whole = _whole(length, chunk)
    pads = [[0, 0], [0, 0], [0, whole - length]]
    pads += [[0, 0]] * (len(x.shape) - 3)
    x = tf.pad(x, pads, constant_values=tf.cast(fill, x.dtype))
    shape = [tf.shape(x)[0], x.shape[1], whole // chunk, chunk, *x.shape[3:]]
    return tf.reshape(x, shape)
