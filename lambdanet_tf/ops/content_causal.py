"""The content lambda of sequences whose positions see only their past.

Letters beside those of the package: j chunks, c positions of a chunk (s where
they are summed over), p pieces of a chunk, y = b u. No tensor has more than
five axes, which is what the runtime of TFLite can slice and pad.
"""

import tensorflow as tf

from lambdanet_tf.ops.geometry import ceil_div
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.geometry import sliced
from lambdanet_tf.ops.keys import MASKED_LOGIT
from lambdanet_tf.ops.keys import inverse_length
from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.masks import propagate_nan
from lambdanet_tf.ops.masks import split_nonfinite
from lambdanet_tf.ops.precision import accumulation_dtype

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
    dtype = accumulation_dtype(tf.as_dtype(dtype))
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
    length, intra = size(keys, 1), keys.shape[3]
    chunk = _chunk_size(keys.shape[1])
    dtype = accumulation_dtype(keys.dtype)
    wide = tf.cast(keys, dtype)
    fill = MASKED_LOGIT if normalization == "softmax" else 0.0
    wide = masked_fill(wide, context_mask, fill)
    values = masked_fill(values, context_mask)
    # A zero in a product hides what comes later, but not NaN or infinity.
    values, nonfinite = split_nonfinite(values)
    wide, nonfinite_keys = split_nonfinite(wide)
    # Intra-depth goes first: what follows is products of matrices.
    wide = _chunks(_intra_first(wide), length, chunk, fill)
    values = _intra_first(tf.cast(values, dtype))
    values = _chunks(values, length, chunk)  # [y, j, c, v]
    heads, key_dim = queries.shape[2:]
    queries = tf.reshape(tf.cast(queries, dtype), [-1, length, heads * key_dim])
    queries = _chunks(queries, length, chunk)  # [b, j, c, h * k]
    queries = _for_each_intra(queries, intra)
    state = {name: _folded(_swapped(part)) for name, part in state.items()}
    attend = _softmax if normalization == "softmax" else _linear
    earlier, sums, scores, state = attend(
        tf.reshape(queries, [-1, chunk, heads, key_dim]),
        *(wide, values, normalization, state),
    )
    outputs = _read(earlier, sums, intra) + _read(scores, values, intra)
    value_dim = values.shape[-1]
    shape = [-1, ceil_div(length, chunk) * chunk, heads, value_dim]
    outputs = _first(tf.reshape(outputs, shape), length)
    outputs = tf.cast(outputs, keys.dtype)
    state = {
        name: _swapped(tf.reshape(part, [-1, intra, *part.shape[1:]]))
        for name, part in state.items()
    }
    nonfinite = tf.cast(nonfinite | nonfinite_keys, tf.int32)
    seen = tf.cumsum(nonfinite, axis=1) > 0
    # Whoever sees the sums sees the position that is not finite.
    state["content"] = propagate_nan(state["content"], seen[:, -1])
    return propagate_nan(outputs, seen), state


def _intra_first(x):
    """`(b, n, d, u)` -> `(b * u, n, d)`."""
    return _folded(tf.transpose(x, [0, 3, 1, 2]))


def _for_each_intra(x, intra):
    """`(b, j, c, d)` -> `(b * u, j, c, d)`."""
    if intra == 1:
        return x
    return _folded(tf.tile(tf.expand_dims(x, 1), [1, intra, 1, 1, 1]))


def _folded(x):
    """`(a, b, ...)` -> `(a * b, ...)`."""
    sizes = [size(x, axis) for axis in range(2, len(x.shape))]
    return tf.reshape(x, [-1, *sizes])


def _swapped(part):
    """Exchanges key channels and intra-depth of a part of a state."""
    orders = {3: [0, 2, 1], 4: [0, 2, 1, 3]}
    return tf.transpose(part, orders[len(part.shape)])


def _read(queries, lambdas, intra):
    """`(y * j, c, h, x)` by `(y, j, x, v)` -> `(b, j, c * h, v)`."""
    chunks, (depth, value_dim) = size(lambdas, 1), lambdas.shape[2:]
    _, chunk, heads, _ = queries.shape
    shape = [-1, chunks, chunk * heads, intra * depth]
    if intra > 1:
        # Added up over the intra-depth, too.
        queries = tf.reshape(queries, [-1, intra, chunks, chunk * heads, depth])
        queries = tf.transpose(queries, [0, 2, 3, 1, 4])
        lambdas = tf.reshape(lambdas, [-1, intra, chunks, depth, value_dim])
        lambdas = tf.transpose(lambdas, [0, 2, 1, 3, 4])
    lambdas = tf.reshape(lambdas, [-1, chunks, intra * depth, value_dim])
    return tf.matmul(tf.reshape(queries, shape), lambdas)


def _softmax(queries, keys, values, _, state):
    """Queries scaled for what is earlier, its sums, scores, the next state.

    Maximum and sum of exponents are kept apart: their logarithm in one number
    would lose the digits of a small difference of large logits.
    """
    chunks, value_dim = size(keys, 1), values.shape[-1]
    start = tf.stop_gradient(state["key_maximum"])
    start = tf.expand_dims(start, 1)  # [y, 1, k]
    top = tf.stop_gradient(_running_maximum(keys, start))  # [y, j, c, k]
    ends = tf.concat([start, top[:, :, -1]], axis=1)  # [y, j + 1, k]
    before = [state["content"], tf.expand_dims(state["key_sum"], -1)]
    before = tf.expand_dims(tf.concat(before, axis=-1), 1)
    first, last = (
        tf.reshape(part, [-1, 1, keys.shape[-1]])
        for part in (ends[:, :-1], ends[:, 1:])
    )  # [y * j, 1, k]
    values, keys, top = _folded(values), _folded(keys), _folded(top)
    own, halves = tf.exp(keys - top), _halves(keys, top)
    totals = _totals(own, halves)  # [y * j, c, k]
    sums = tf.matmul(tf.exp(keys - last), values, transpose_a=True)
    sums = tf.concat([sums, tf.expand_dims(totals[:, -1], -1)], axis=-1)
    sums = tf.reshape(sums, [-1, chunks, *sums.shape[1:]])
    sums = _running_sum(tf.concat([before, sums], axis=1), ends)
    state = {
        "content": sums[:, -1, :, :-1],
        "key_sum": sums[:, -1, :, -1],
        "key_maximum": ends[:, -1],
    }
    sums = sums[:, :-1]
    before = tf.reshape(sums[..., -1], [-1, 1, keys.shape[-1]])
    sums = sums[..., :value_dim]
    carry = tf.exp(first - top)  # [y * j, c, k]
    queries = queries / tf.expand_dims(totals + carry * before, 2)
    scores = _scores(queries, own, halves)
    return queries * tf.expand_dims(carry, 2), sums, scores, state


def _halves(keys, top):
    """Factors of the pairs whose key is in the half before the query's.

    The exponent of such a pair, relative to the maximum that the query sees,
    is the key's relative to the maximum at the end of its half, and that one's
    relative to the query's: neither is ever positive.

    Returns:
        For pieces of 2, 4, 8 ... positions a tuple, `(y * j, p, half, k)`:
        factors of the keys of the first half, and of the queries of the second.
    """
    factors = []
    for half in _shifts(keys.shape[1]):
        first, _ = _cut(keys, half)
        tops, second = _cut(top, half)
        middle = tops[:, :, -1:]
        factors.append((tf.exp(first - middle), tf.exp(middle - second)))
    return factors


def _totals(own, halves):
    """Sums of the exponents that a query sees in its chunk, `(y * j, c, k)`.

    Args:
        own: of its own position, `(y * j, c, k)`.
        halves: see `_halves`.
    """
    totals = own
    for _, decay in halves:
        first, second = _cut(totals, decay.shape[2])
        totals = _joined(first, second + decay * first[:, :, -1:])
    return totals


def _scores(queries, own, halves):
    """How queries weigh positions of their chunk, `(y * j, c, h, s)`."""
    _, chunk, heads, key_dim = queries.shape
    scores = tf.reduce_sum(
        queries * tf.expand_dims(own, 2), -1
    )  # [y * j, c, h]: of the position itself
    queries = tf.reshape(queries, [-1, chunk, heads * key_dim])
    for weights, decay in halves:
        half = weights.shape[2]
        _, second = _cut(queries, half)
        second = tf.reshape(second, [-1, half, heads, key_dim])
        decay = tf.reshape(decay, [-1, half, 1, key_dim])
        second = tf.reshape(second * decay, [-1, half * heads, key_dim])
        weights = tf.reshape(weights, [-1, half, key_dim])
        across = tf.matmul(second, weights, transpose_b=True)
        across = tf.reshape(across, [-1, half, heads, half])
        first, second = (
            tf.reshape(part, [-1, half, heads, half])
            for part in _cut(scores, half)
        )
        first = tf.pad(first, [[0, 0]] * 3 + [[0, half]])
        second = tf.concat([across, second], -1)
        # [pieces, half, h * 2 half] of every piece, and then of the chunk
        first, second = (
            tf.reshape(part, [-1, chunk // (2 * half), half, 2 * half * heads])
            for part in (first, second)
        )
        scores = _joined(first, second)
    return tf.reshape(scores, [-1, chunk, heads, chunk])


def _cut(x, half):
    """`(y * j, c, d)` -> two times `(y * j, p, half, d)`."""
    _, chunk, depth = x.shape
    x = tf.reshape(x, [-1, chunk // (2 * half), 2, half, depth])
    return tf.unstack(x, axis=2)


def _joined(first, second):
    """Undoes `_cut`."""
    _, pieces, half, depth = first.shape
    x = tf.concat([first, second], axis=2)
    return tf.reshape(x, [-1, pieces * 2 * half, depth])


def _linear(queries, keys, values, normalization, state):
    """As `_softmax`, for keys that are summed as they are."""
    chunk, key_dim = keys.shape[2:]
    sums = tf.matmul(keys, values, transpose_a=True)
    sums = tf.concat([tf.expand_dims(state["content"], 1), sums], axis=1)
    sums = tf.cumsum(sums, axis=1)  # [y, j + 1, k, v]
    next_state = {"content": sums[:, -1]}
    if normalization == "l2":
        energy = tf.cumsum(keys**2, axis=2)
        whole = [tf.expand_dims(state["key_sum"], 1), energy[:, :, -1]]
        whole = tf.cumsum(tf.concat(whole, 1), axis=1)  # [y, j + 1, k]
        next_state["key_sum"] = whole[:, -1]
        energy += tf.expand_dims(whole[:, :-1], 2)
        scale = inverse_length(energy)
        queries *= tf.reshape(scale, [-1, chunk, 1, key_dim])
    heads = queries.shape[2]
    scores = tf.matmul(
        tf.reshape(queries, [-1, chunk * heads, key_dim]),
        tf.reshape(keys, [-1, chunk, key_dim]),
        transpose_b=True,
    )
    scores = tf.reshape(scores, [-1, chunk, heads, chunk])
    past = tf.expand_dims(_past(chunk), 1)  # [c, 1, s]
    scores = masked_fill(scores, past[None])
    return queries, sums[:, :-1], scores, next_state


def _running_maximum(keys, start):
    """Maximum over `start` and all positions up to each, `(y, j, c, k)`."""
    inside = keys
    for shift in _shifts(keys.shape[2]):
        inside = tf.maximum(inside, _moved(inside, shift, 2))
    ends = inside[:, :, -1]
    for shift in _shifts(ends.shape[1]):
        ends = tf.maximum(ends, _moved(ends, shift, 1))
    before = tf.maximum(_moved(ends, 1, 1), start)
    return tf.maximum(inside, tf.expand_dims(before, 2))


def _running_sum(sums, ends, rounds=_MOST_ROUNDS):
    """Inclusive sums over chunks, each rescaled to its own chunk's end.

    Args:
        sums: `(y, j, k, w)`, each relative to the maximum at its end.
        ends: `(y, j, k)`, the maxima, which never fall.
        rounds: int. How often groups of chunks are formed, where the number
            of chunks is known only at run time.
    """
    count = sums.shape[1]
    if (count or GROUP + 1) <= GROUP or rounds == 0:
        return _group_sums(sums, ends)
    chunks, (key_dim, width) = size(sums, 1), sums.shape[2:]
    sums = _chunks(sums, chunks, GROUP)  # [y, j, c, k, w]
    ends = _chunks(ends, chunks, GROUP, ends.dtype.max)
    groups = size(sums, 1)
    inside = _group_sums(_folded(sums), _folded(ends))
    inside = tf.reshape(inside, [-1, groups, GROUP, key_dim, width])
    tops = ends[:, :, -1]
    before = _running_sum(inside[:, :, -1], tops, rounds - 1)
    decay = tf.exp(tf.expand_dims(_moved(tops, 1, 1), 2) - ends)
    before = tf.expand_dims(_moved(before, 1, 1, 0.0), 2)
    sums = inside + tf.expand_dims(decay, -1) * before
    sums = tf.reshape(sums, [-1, groups * GROUP, key_dim, width])
    return _first(sums, chunks)


def _group_sums(sums, ends):
    """As `_running_sum`, over all of `(y, j, k, w)` and `(y, j, k)` at once."""
    ends = tf.transpose(ends, [0, 2, 1])  # [y, k, j]
    decay = tf.expand_dims(ends, 2) - tf.expand_dims(ends, 3)
    past = _past(size(ends, 2))[None, None]
    decay = tf.exp(masked_fill(decay, past, MASKED_LOGIT))
    order = [0, 2, 1, 3]
    return tf.transpose(tf.matmul(decay, tf.transpose(sums, order)), order)


def _shifts(count):
    """1, 2, 4 ...: every round doubles the reach (Hillis and Steele)."""
    rounds = _MOST_SHIFTS if count is None else max(count - 1, 0).bit_length()
    return [2**index for index in range(rounds)]


def _first(x, count):
    """The first `count` entries of axis 1."""
    if x.shape[1] is not None and x.shape[1] == count:
        return x
    rest = x.shape[2:]
    # The gradient of `tf.slice` pads, at a third of the time of a subscript's.
    sizes = [-1, count, *(-1 for _ in rest)]
    x = sliced(x, [0] * len(sizes), sizes)
    # With the sizes that a slice of unknown size forgets.
    return tf.reshape(x, [-1, count, *rest])


def _moved(x, shift, axis, fill=None):
    """Shifts an axis towards its end, filling the beginning."""
    if x.shape[axis] is None:
        shift = tf.minimum(shift, tf.shape(x)[axis])
    cut = [slice(None)] * axis + [slice(size(x, axis) - shift)]
    pads = [[shift if i == axis else 0, 0] for i in range(len(x.shape))]
    fill = x.dtype.min if fill is None else fill
    return tf.pad(x[tuple(cut)], pads, constant_values=fill)


def _past(count):
    positions = tf.range(count)
    return tf.expand_dims(positions, 1) >= positions


def _chunk_size(length):
    """`CHUNK`, or the power of two that holds a short sequence."""
    if length is None:
        return CHUNK
    return min(CHUNK, 2 ** max(length - 1, 0).bit_length())


def _chunks(x, length, chunk, fill=0.0):
    """`(y, n, ...)` -> `(y, chunks, chunk, ...)`, filled at the end."""
    chunks, rest = ceil_div(length, chunk), x.shape[2:]
    pads = [[0, 0], [0, chunks * chunk - length]] + [[0, 0]] * len(rest)
    x = tf.pad(x, pads, constant_values=tf.cast(fill, x.dtype))
    return tf.reshape(x, [-1, chunks, chunk, *rest])
