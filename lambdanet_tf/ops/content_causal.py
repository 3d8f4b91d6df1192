"""The content lambda of sequences whose positions see only their past.

Positions are cut into chunks. What the chunks before a query hold arrives as
one running sum, rescaled to each query's own normalization with exponents that
are never positive; only inside the query's own chunk are pairs of positions
formed. Time and memory are linear in the length.

Letters added to those of the package: j chunks, c positions of a chunk (s where
they are summed over), p windows of a chunk, y = b u. No tensor has more than
five axes, which is what the runtime of TFLite can slice and pad.
"""

import math

import tensorflow as tf

from lambdanet_tf.arguments import check_int
from lambdanet_tf.ops.geometry import ceil_div
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.geometry import sliced
from lambdanet_tf.ops.keys import MASKED_LOGIT
from lambdanet_tf.ops.keys import inverse_length
from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.masks import propagate_nan
from lambdanet_tf.ops.masks import split_nonfinite
from lambdanet_tf.ops.precision import accumulation_dtype

_CHUNK = 32  # positions
_MAX_EXPONENT = 20.0  # of float32, with digits to spare on both sides
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

    Examples:
        >>> sorted(content_state_spec(key_dim=16, value_dim=8))
        ['content', 'key_maximum', 'key_sum']
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

    Raises:
        ValueError: if `batch_size` is no integer of 0 or more.

    Examples:
        >>> state = initial_state(content_state_spec(16, 8), batch_size=2)
        >>> state["content"].shape
        TensorShape([2, 16, 1, 8])
    """
    _check_batch_size(batch_size)
    state = {}
    for name, part in spec.items():
        first = MASKED_LOGIT if name == "key_maximum" else 0.0
        sizes = [0 if size is None else size for size in part.shape[1:]]
        first = tf.cast(first, part.dtype)
        state[name] = tf.fill([batch_size, *sizes], first)
    return state


def _check_batch_size(batch_size):
    if not tf.is_tensor(batch_size):
        check_int("batch_size", batch_size, 0, tf.int32.max)
    elif batch_size.shape.rank or not batch_size.dtype.is_integer:
        raise ValueError(
            "`batch_size` must be an integer or a scalar tensor of one. "
            f"Received: batch_size={batch_size}."
        )


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
    ends = tf.stop_gradient(tf.reduce_max(keys, axis=2))  # [y, j, k]
    ends = _running_maximum(tf.concat([start, ends], axis=1))  # [y, j + 1, k]
    before = [state["content"], tf.expand_dims(state["key_sum"], -1)]
    before = tf.expand_dims(tf.concat(before, axis=-1), 1)
    first = tf.reshape(ends[:, :-1], [-1, 1, keys.shape[-1]])  # [y j, 1, k]
    last = tf.reshape(ends[:, 1:], [-1, 1, keys.shape[-1]])
    values, keys = _folded(values), _folded(keys)  # [y * j, c, k]
    own = tf.exp(keys - last)
    totals = tf.expand_dims(tf.reduce_sum(own, axis=1), -1)
    sums = tf.matmul(own, values, transpose_a=True)
    sums = tf.concat([sums, totals], axis=-1)  # [y * j, k, v + 1]
    sums = tf.reshape(sums, [-1, chunks, *sums.shape[1:]])
    sums = _running_sum(tf.concat([before, sums], axis=1), ends)
    sums, totals = tf.split(sums, [value_dim, 1], axis=-1)
    state = {
        "content": sums[:, -1],
        "key_sum": totals[:, -1, :, 0],
        "key_maximum": ends[:, -1],
    }
    sums, before = _first(sums, chunks), _first(totals, chunks)
    before = tf.reshape(before, [-1, 1, keys.shape[-1]])
    queries, scores = _weighed(queries, keys, first, before)
    return queries, sums, scores, state


def _weighed(queries, keys, first, before):
    """How queries weigh what is before their chunk, and positions in it.

    Exponents are relative to the maximum before the chunk, so that one product
    has all pairs. A position that sees a key far above it takes exponents
    relative to its own maximum: both depend on the past alone, to the bit.

    Args:
        queries: `(y * j, c, h, k)`.
        keys: `(y * j, c, k)`.
        first: `(y * j, 1, k)`, the maximum before the chunk.
        before: `(y * j, 1, k)`, the sum of exponentials before the chunk.

    Returns:
        Queries for the sums before the chunk, and scores `(y * j, c, h, s)`.
    """
    _, chunk, heads, key_dim = queries.shape
    # Out here: XLA takes no permutation that a branch hands to its gradient.
    columns = tf.transpose(keys, [0, 2, 1])
    if chunk == 1:  # a step: its pairs are its keys
        return _weighed_by_pairs(queries, keys, columns, first, before)
    level = masked_fill(first, first > MASKED_LOGIT / 2)  # 0: nothing is before
    carry = tf.exp(first - level)
    relative = keys - level
    weights = tf.exp(tf.minimum(relative, _MAX_EXPONENT))
    totals = tf.cumsum(weights, axis=1) + carry * before  # [y * j, c, k]
    peak = tf.reduce_max(relative, axis=-1)
    lost = tf.reduce_min(totals, axis=-1) < math.exp(-_MAX_EXPONENT)
    lost &= peak > MASKED_LOGIT / 2
    far = tf.cast(lost | (peak > _MAX_EXPONENT), tf.int32)
    far = tf.cumsum(far, axis=1) > 0  # [y * j, c]
    read = queries / tf.expand_dims(masked_fill(totals, totals > 0, 1.0), 2)
    scores = tf.matmul(
        tf.reshape(read, [-1, chunk * heads, key_dim]),
        weights,
        transpose_b=True,
    )
    scores = tf.reshape(scores, [-1, chunk, heads, chunk])
    scores = masked_fill(scores, _past(chunk)[None, :, None])
    near = read * tf.expand_dims(carry, 2), scores

    def mend():
        at = tf.reshape(far, [-1, chunk, 1, 1])
        exact = _weighed_by_pairs(queries, keys, columns, first, before)
        return tuple(map(tf.where, (at, at), exact, near))

    return tf.cond(tf.reduce_any(far), mend, lambda: near)


def _weighed_by_pairs(queries, keys, columns, first, before):
    """As `_weighed`, of keys of any size: forms `(y * j, c, k, s)`."""
    top = _running_maximum(tf.stop_gradient(keys))
    top = tf.maximum(top, first)  # [y * j, c, k]
    past = tf.expand_dims(_past(keys.shape[1]), 1)[None]  # [1, c, 1, s]
    pairs = tf.expand_dims(columns, 1) - tf.expand_dims(top, 3)
    pairs = masked_fill(pairs, past, MASKED_LOGIT)
    pairs = tf.exp(pairs)  # [y * j, c, k, s]
    carry = tf.exp(first - top)
    totals = tf.reduce_sum(pairs, axis=3) + carry * before
    queries = queries / tf.expand_dims(totals, 2)  # [y * j, c, h, k]
    scores = tf.matmul(queries, pairs)  # [y * j, c, h, s]
    return queries * tf.expand_dims(carry, 2), scores


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
    return queries, _first(sums, size(keys, 1)), scores, next_state


def _running_maximum(x):
    """Maximum over all entries of axis 1 up to each."""
    for shift in _shifts(x.shape[1]):
        x = tf.maximum(x, _moved(x, shift, 1))
    return x


def _running_sum(sums, ends, rounds=_MAX_ROUNDS):
    """Inclusive sums over chunks, each rescaled to its own chunk's end.

    Of sums `(y, j, k, w)`, each relative to the maximum at its end, of `(y, j,
    k)`, which never falls. An unknown number of chunks is grouped in `rounds`.
    """
    count = sums.shape[1]
    if rounds == 0 or (count is not None and count < 2 * _GROUP):
        return _group_sums(sums, ends)
    group = _GROUP if count is None else ceil_div(count, count // _GROUP)
    chunks, (key_dim, width) = size(sums, 1), sums.shape[2:]
    sums = _chunks(sums, chunks, group)  # [y, j, c, k, w]
    ends = _chunks(ends, chunks, group, ends.dtype.max)
    groups = size(sums, 1)
    inside = _group_sums(_folded(sums), _folded(ends))
    inside = tf.reshape(inside, [-1, groups, group, key_dim, width])
    tops = ends[:, :, -1]
    before = _running_sum(inside[:, :, -1], tops, rounds - 1)
    decay = tf.exp(tf.expand_dims(_moved(tops, 1, 1), 2) - ends)
    before = tf.expand_dims(_moved(before, 1, 1, 0.0), 2)
    sums = inside + tf.expand_dims(decay, -1) * before
    sums = tf.reshape(sums, [-1, groups * group, key_dim, width])
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
