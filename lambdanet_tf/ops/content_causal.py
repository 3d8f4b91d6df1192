"""The content lambda of sequences whose positions see only their past.

Positions are cut into chunks. What the chunks before a query hold arrives as
one running sum, rescaled to each query's own normalization with exponents that
are never positive; only inside the query's own chunk are pairs of positions
formed. Time and memory are linear in the length.

Letters beside those of the package: j chunks, c positions of a chunk (s where
they are summed over), p windows of a chunk, y = b u. No tensor has more than
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

_CHUNK = 16  # positions
_GROUP = 32  # chunks whose running sums are one product
# Where the number of chunks is known only at run time.
_MAX_ROUNDS = 3
_MAX_SHIFTS = 20  # enough for 2**20 chunks


def content_state_spec(
    key_dim: int,
    value_dim: int,
    intra_depth: int = 1,
    normalization: str | None = "softmax",
    dtype: str | tf.DType = tf.float32,
) -> dict[str, tf.TensorSpec]:
    """Returns what must be kept of a sequence to go on with its content output.

    Args:
        key_dim: int.
        value_dim: int.
        intra_depth: int.
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
            other names begin at zero, and an axis that grows with what is
            seen without entries.
        batch_size: int or scalar tensor. Number of sequences.

    Returns:
        Tensors of these names.
    """
    state = {}
    for name, part in spec.items():
        first = MASKED_LOGIT if name == "key_maximum" else 0.0
        sizes = [0 if size is None else size for size in part.shape[1:]]
        first = tf.cast(first, part.dtype)
        state[name] = tf.fill([batch_size, *sizes], first)
    return state


def causal_content_output(
    queries,
    keys,
    values,
    normalization="softmax",
    context_mask=None,
    stride=1,
    state=None,
):
    """Computes the content output of queries that see only their past.

    Args:
        queries: `(batch, n / stride, heads, key_dim)`, rounded up.
        keys: `(batch, n, key_dim, intra_depth)`, before normalization.
        values: `(batch, n, value_dim, intra_depth)`.
        normalization: see `normalize_keys`; runs, for each query, over the
            positions up to its own.
        context_mask: None or boolean `(batch, n)`; False = padding, whose
            values must be finite.
        stride: int. Positions from a query to the next.
        state: of the positions before, see `content_state_spec`; None where
            the sequence begins.

    Returns:
        `(batch, n / stride, heads, value_dim)`, and the state after these
        positions.

    Cost: about 2 b n u (k v + h k v + h c k + h c v) operations with chunks
    of c positions; largest intermediates b n h k u, b n h c u and
    b n k v u / c.
    """
    if stride > 1:
        queries = tf.repeat(queries, stride, axis=1)[:, : size(keys, 1)]
    dtype, out_dtype = accumulation_dtype(keys.dtype), keys.dtype
    if state is None:
        key_dim, (value_dim, intra) = keys.shape[2], values.shape[2:]
        spec = content_state_spec(
            key_dim, value_dim, intra, normalization, dtype
        )
        state = initial_state(spec, tf.shape(keys)[0])
    fill = MASKED_LOGIT if normalization == "softmax" else 0.0
    keys = masked_fill(tf.cast(keys, dtype), context_mask, fill)
    # A zero in a product hides what comes later, but not NaN or infinity.
    keys, nonfinite_keys = split_nonfinite(keys)
    values, nonfinite = split_nonfinite(values)
    nonfinite = tf.cast(nonfinite | nonfinite_keys, tf.int32)
    seen = tf.cumsum(nonfinite, axis=1) > 0  # [b, n]
    outputs, state = _finite_output(
        tf.cast(queries, dtype),
        *(keys, tf.cast(values, dtype), normalization, state),
    )
    # Whoever sees the sums sees the position that is not finite.
    state["content"] = propagate_nan(state["content"], seen[:, -1])
    outputs = propagate_nan(tf.cast(outputs, out_dtype), seen)
    return outputs[:, ::stride] if stride > 1 else outputs, state


def _finite_output(queries, keys, values, normalization, state):
    """As `causal_content_output`, of finite numbers without padding."""
    length, intra = size(keys, 1), keys.shape[3]
    heads, key_dim = queries.shape[2:]
    # A power of two that holds a short sequence.
    chunk = min(_CHUNK, 2 ** max((keys.shape[1] or _CHUNK) - 1, 0).bit_length())
    fill = MASKED_LOGIT if normalization == "softmax" else 0.0
    # Intra-depth goes first: what follows is products of matrices.
    keys = _chunks(_intra_first(keys, 3), length, chunk, fill)  # [y, j, c, k]
    values = _chunks(_intra_first(values, 3), length, chunk)  # [y, j, c, v]
    state = {name: _intra_first(part, 2) for name, part in state.items()}
    queries = tf.reshape(queries, [-1, length, heads * key_dim])
    queries = _chunks(queries, length, chunk)  # [b, j, c, h * k]
    queries = tf.tile(tf.expand_dims(queries, 1), [1, intra, 1, 1, 1])
    queries = tf.reshape(queries, [-1, chunk, heads, key_dim])  # [y j, c, h, k]
    if normalization == "softmax":
        parts = _softmax(queries, keys, values, state)
    else:
        parts = _linear(queries, keys, values, state, normalization)
    queries, sums, scores, state = parts
    outputs = _read(queries, sums, intra) + _read(scores, values, intra)
    shape = [-1, ceil_div(length, chunk) * chunk, heads, values.shape[-1]]
    outputs = _first(tf.reshape(outputs, shape), length)
    for name, part in state.items():
        part = tf.reshape(part, [-1, intra, *part.shape[1:]])
        state[name] = tf.transpose(part, [0, 2, 1, 3][: len(part.shape)])
    return outputs, state


def _intra_first(x, axis):
    """Moves the intra-depth to the batch, `(b * u, ...)`."""
    others = [i for i in range(1, len(x.shape)) if i != axis]
    return _folded(tf.transpose(x, [0, axis, *others]))


def _folded(x):
    """`(a, b, ...)` -> `(a * b, ...)`."""
    sizes = [size(x, axis) for axis in range(2, len(x.shape))]
    return tf.reshape(x, [-1, *sizes])


def _read(queries, lambdas, intra):
    """`(y * j, c, h, x)` by `(y, j, x, v)` -> `(b, j, c * h, v)`.

    Added up over the intra-depth, too.
    """
    chunks, (depth, value_dim) = size(lambdas, 1), lambdas.shape[2:]
    rows = queries.shape[1] * queries.shape[2]
    queries = tf.reshape(queries, [-1, intra, chunks, rows, depth])
    queries = tf.transpose(queries, [0, 2, 3, 1, 4])
    queries = tf.reshape(queries, [-1, chunks, rows, intra * depth])
    lambdas = tf.reshape(lambdas, [-1, intra, chunks, depth, value_dim])
    lambdas = tf.transpose(lambdas, [0, 2, 1, 3, 4])
    lambdas = tf.reshape(lambdas, [-1, chunks, intra * depth, value_dim])
    return tf.matmul(queries, lambdas)


def _softmax(queries, keys, values, state):
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
    first = tf.reshape(ends[:, :-1], [-1, 1, keys.shape[-1]])  # [y j, 1, k]
    last = tf.reshape(ends[:, 1:], [-1, 1, keys.shape[-1]])
    values, keys, top = _folded(values), _folded(keys), _folded(top)
    own = tf.exp(keys - top)
    totals, factors = _halves(keys, top, own)  # [y * j, c, k]
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
    scores = _scores(queries, own, factors)
    return queries * tf.expand_dims(carry, 2), sums, scores, state


def _halves(keys, top, own):
    """Sums of the exponentials that a query sees in its chunk, and factors.

    Those of a pair whose key is in the half before the query's: its exponent,
    relative to the maximum that the query sees, is the key's relative to the
    maximum at the end of its half, and that one's relative to the query's.
    Neither is ever positive.

    Returns:
        `(y * j, c, k)`; and for windows of 2, 4, 8 ... positions the factors
        of the keys of the first half and of the queries of the second, both
        `(y * j, p, half, k)`.
    """
    totals, factors = own, []
    for half in _shifts(keys.shape[1]):
        first, _ = _cut(keys, half)
        tops, second = _cut(top, half)
        middle = tops[:, :, -1:]
        decay = tf.exp(middle - second)
        factors.append((tf.exp(first - middle), decay))
        first, second = _cut(totals, half)
        totals = _join_halves(first, second + decay * first[:, :, -1:])
    return totals, factors


def _scores(queries, own, factors):
    """How queries weigh positions of their chunk, `(y * j, c, h, s)`."""
    _, chunk, heads, key_dim = queries.shape
    # Of the position itself.
    scores = tf.reduce_sum(queries * tf.expand_dims(own, 2), -1)  # [y j, c, h]
    queries = tf.reshape(queries, [-1, chunk, heads * key_dim])
    for weights, decay in factors:
        half = weights.shape[2]
        _, second = _cut(queries, half)
        second = tf.reshape(second, [-1, half, heads, key_dim])
        decay = tf.reshape(decay, [-1, half, 1, key_dim])
        second = tf.reshape(second * decay, [-1, half * heads, key_dim])
        weights = tf.reshape(weights, [-1, half, key_dim])
        across = tf.matmul(second, weights, transpose_b=True)
        across = tf.reshape(across, [-1, half, heads, half])
        first, second = _cut(scores, half)
        shape = [-1, half, heads, half]
        first = tf.pad(tf.reshape(first, shape), [[0, 0]] * 3 + [[0, half]])
        second = tf.concat([across, tf.reshape(second, shape)], -1)
        shape = [-1, chunk // (2 * half), half, 2 * half * heads]
        halves = (tf.reshape(part, shape) for part in (first, second))
        scores = _join_halves(*halves)
    return tf.reshape(scores, [-1, chunk, heads, chunk])


def _cut(x, half):
    """`(y * j, c, d)` -> two times `(y * j, p, half, d)`."""
    _, chunk, depth = x.shape
    x = tf.reshape(x, [-1, chunk // (2 * half), 2, half, depth])
    return tf.unstack(x, axis=2)


def _join_halves(first, second):
    """Undoes `_cut`."""
    _, windows, half, depth = first.shape
    x = tf.concat([first, second], axis=2)
    return tf.reshape(x, [-1, windows * 2 * half, depth])


def _linear(queries, keys, values, state, normalization):
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


def _running_sum(sums, ends, rounds=_MAX_ROUNDS):
    """Inclusive sums over chunks, each rescaled to its own chunk's end.

    Of sums `(y, j, k, w)`, each relative to the maximum at its end, of `(y, j,
    k)`, which never falls. An unknown number of chunks is grouped in `rounds`.
    """
    count = sums.shape[1]
    if (count or _GROUP + 1) <= _GROUP or rounds == 0:
        return _group_sums(sums, ends)
    chunks, (key_dim, width) = size(sums, 1), sums.shape[2:]
    sums = _chunks(sums, chunks, _GROUP)  # [y, j, c, k, w]
    ends = _chunks(ends, chunks, _GROUP, ends.dtype.max)
    groups = size(sums, 1)
    inside = _group_sums(_folded(sums), _folded(ends))
    inside = tf.reshape(inside, [-1, groups, _GROUP, key_dim, width])
    tops = ends[:, :, -1]
    before = _running_sum(inside[:, :, -1], tops, rounds - 1)
    decay = tf.exp(tf.expand_dims(_moved(tops, 1, 1), 2) - ends)
    before = tf.expand_dims(_moved(before, 1, 1, 0.0), 2)
    sums = inside + tf.expand_dims(decay, -1) * before
    sums = tf.reshape(sums, [-1, groups * _GROUP, key_dim, width])
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
    rounds = _MAX_SHIFTS if count is None else max(count - 1, 0).bit_length()
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
    fill = x.dtype.min if fill is None else fill
    if x.shape[axis] is None:
        shift = tf.minimum(shift, tf.shape(x)[axis])
    cut = [slice(None)] * axis + [slice(size(x, axis) - shift)]
    pads = [[shift if i == axis else 0, 0] for i in range(len(x.shape))]
    return tf.pad(x[tuple(cut)], pads, constant_values=fill)


def _past(count):
    positions = tf.range(count)
    return tf.expand_dims(positions, 1) >= positions


def _chunks(x, length, chunk, fill=0.0):
    """`(y, n, ...)` -> `(y, chunks, chunk, ...)`, filled at the end."""
    chunks, rest = ceil_div(length, chunk), x.shape[2:]
    pads = [[0, 0], [0, chunks * chunk - length]] + [[0, 0]] * len(rest)
    x = tf.pad(x, pads, constant_values=tf.cast(fill, x.dtype))
    return tf.reshape(x, [-1, chunks, chunk, *rest])
