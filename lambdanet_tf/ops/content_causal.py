"""The content lambda of sequences whose positions see only their past.

We cut the sequence into chunks. A running sum holds all chunks before the
query, and is rescaled to the query's own normalization with exponents that are
never positive. Pairs of positions are formed only inside the query's own chunk.
Time and memory are linear in the length.

Further letters: j chunks, c positions of a chunk (s where we sum over them),
y = b u. No tensor has more than five axes, because TFLite's runtime can slice
and pad no more.
"""

import math

import tensorflow as tf

from lambdanet_tf.ops.devices import accumulation_dtype
from lambdanet_tf.ops.geometry import ceil_div
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.geometry import sliced
from lambdanet_tf.ops.keys import MASKED_LOGIT
from lambdanet_tf.ops.keys import SUMS
from lambdanet_tf.ops.keys import exact_where
from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.state import content_state_spec
from lambdanet_tf.ops.state import initial_state

_CHUNK = 32  # positions
_MAX_EXPONENT = 20.0  # exp(+-20) is well inside the range of float32
_GROUP = 32  # chunks whose running sums one product computes


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

    Arguments as in `content_output`. There are `ceil(n / stride)` queries,
    `stride` positions apart. The mask is None or boolean `(batch or 1, n)`.
    Also returns the next state.

    Cost: about 2 b n u (k v + h k v + h c k + h c v) operations; largest
    intermediates b n h k u, b n h c u and b n k v u / c.
    """
    if stride > 1:
        queries = tf.repeat(queries, stride, axis=1)[:, : size(keys, 1)]
    dtype, out_dtype = accumulation_dtype(keys.dtype), keys.dtype
    (heads, key_dim), (value_dim, intra) = queries.shape[2:], values.shape[2:]
    if state is None:
        channels = key_dim, value_dim, intra
        spec = content_state_spec(*channels, normalization, dtype)
        state = initial_state(spec, tf.shape(keys)[0])
    state = {name: _intra_first(part, 2) for name, part in state.items()}
    length = size(keys, 1)
    # The smallest power of two that holds a short sequence.
    chunk = min(_CHUNK, 2 ** max((keys.shape[1] or _CHUNK) - 1, 0).bit_length())
    fill = MASKED_LOGIT if normalization == "softmax" else 0.0
    keys = masked_fill(tf.cast(keys, dtype), context_mask, fill)
    # Intra-depth joins the batch, so that matrix products can follow.
    keys = _chunks(_intra_first(keys, 3), chunk, fill)  # [y, j, c, k]
    values = _chunks(_intra_first(tf.cast(values, dtype), 3), chunk)
    queries = tf.reshape(tf.cast(queries, dtype), [-1, length, heads * key_dim])
    queries = tf.expand_dims(_chunks(queries, chunk), 1)  # [b, 1, j, c, h * k]
    queries = tf.tile(queries, [1, intra, 1, 1, 1])
    queries = tf.reshape(queries, [-1, chunk, heads, key_dim])  # [y j, c, h, k]
    operands = queries, keys, values, state
    if normalization == "softmax":
        queries, sums, scores, state = _softmax(*operands)
    else:
        queries, sums, scores, state = _linear(
            *operands, SUMS.get(normalization)
        )
    outputs = _apply(queries, sums) + _apply(scores, values)  # [y, j, c h, v]
    shape = [-1, intra, ceil_div(length, chunk) * chunk, heads, value_dim]
    outputs = tf.reduce_sum(tf.reshape(outputs, shape), axis=1)
    outputs = tf.cast(_first(outputs, length), out_dtype)
    for name, part in state.items():
        part = tf.reshape(part, [-1, intra, *part.shape[1:]])
        state[name] = tf.transpose(part, [0, 2, 1, 3][: len(part.shape)])
    return outputs[:, ::stride] if stride > 1 else outputs, state


def _softmax(queries, keys, values, state):
    """Returns queries, the sums before their chunks, scores, the next state.

    The state keeps the maximum and the sum of exponentials apart. One
    log-sum-exp would lose the digits of a small difference of large logits.
    """
    chunks, key_dim, value_dim = size(keys, 1), keys.shape[3], values.shape[3]
    start = tf.expand_dims(state["key_maximum"], 1)
    ends = tf.concat([start, tf.reduce_max(keys, axis=2)], axis=1)
    ends = _running_maximum(ends)  # [y, j + 1, k]
    before = [state["content"], tf.expand_dims(state["key_sum"], -1)]
    before = tf.expand_dims(tf.concat(before, axis=-1), 1)
    first, last = (
        tf.reshape(x, [-1, 1, key_dim]) for x in (ends[:, :-1], ends[:, 1:])
    )  # [y * j, 1, k]
    values, keys = _fold(values), _fold(keys)  # [y * j, c, k]
    own = tf.exp(keys - last)
    totals = tf.expand_dims(tf.reduce_sum(own, axis=1), -1)
    sums = tf.matmul(own, values, transpose_a=True)
    sums = tf.concat([sums, totals], axis=-1)  # [y * j, k, v + 1]
    sums = tf.reshape(sums, [-1, chunks, key_dim, value_dim + 1])
    sums = _running_sum(tf.concat([before, sums], axis=1), ends)
    sums, totals = tf.split(sums, [value_dim, 1], axis=-1)
    state = {
        "content": sums[:, -1],
        "key_sum": totals[:, -1, :, 0],
        "key_maximum": ends[:, -1],
    }
    before = tf.reshape(_first(totals, chunks), [-1, 1, key_dim])
    queries, scores = _weights(queries, keys, first, before)
    return queries, _first(sums, chunks), scores, state


def _weights(queries, keys, first, before):
    """Returns the weights of the sums before the chunk, and of its positions.

    Exponents are relative to the maximum before the chunk, so that one product
    computes all pairs. If a position sees a much larger key, its exponents are
    relative to its own maximum. Both depend on the past only, bit for bit.

    Queries are `(y * j, c, h, k)`, keys `(y * j, c, k)`; `first` and `before`,
    `(y * j, 1, k)`, are maximum and sum of exponentials before the chunk.
    """
    # Outside the branch, whose gradient XLA could not transpose.
    columns = tf.transpose(keys, [0, 2, 1])
    if queries.shape[1] == 1:  # a step: one pair per query
        return _weights_of_pairs(queries, keys, columns, first, before)
    level = masked_fill(first, first > MASKED_LOGIT / 2)  # 0 for the first
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
    return exact_where(
        far,
        lambda: _weights_of_pairs(queries, keys, columns, first, before),
        [read * tf.expand_dims(carry, 2), _scores(read, weights)],
    )


def _weights_of_pairs(queries, keys, columns, first, before):
    """Computes `_weights` for keys of any size: forms `(y * j, c, k, s)`."""
    top = _running_maximum(keys)
    top = tf.maximum(top, first)  # [y * j, c, k]
    past = tf.expand_dims(_past(keys.shape[1]), 1)[None]  # [1, c, 1, s]
    pairs = tf.expand_dims(columns, 1) - tf.expand_dims(top, 3)
    pairs = tf.exp(masked_fill(pairs, past, MASKED_LOGIT))  # [y * j, c, k, s]
    carry = tf.exp(first - top)
    totals = tf.reduce_sum(pairs, axis=3) + carry * before
    queries = queries / tf.expand_dims(totals, 2)  # [y * j, c, h, k]
    return queries * tf.expand_dims(carry, 2), tf.matmul(queries, pairs)


def _linear(queries, keys, values, state, normalization):
    """Computes what `_softmax` does, for the other normalizations."""
    sums = tf.matmul(keys, values, transpose_a=True)
    sums = tf.concat([tf.expand_dims(state["content"], 1), sums], axis=1)
    sums = tf.cumsum(sums, axis=1)  # [y, j + 1, k, v]
    after = {"content": sums[:, -1]}
    if normalization is not None:
        part, factor = normalization
        own = tf.cumsum(part(keys), axis=2)
        whole = [tf.expand_dims(state["key_sum"], 1), own[:, :, -1]]
        whole = tf.cumsum(tf.concat(whole, 1), axis=1)  # [y, j + 1, k]
        after["key_sum"] = whole[:, -1]
        scale = factor(own + tf.expand_dims(whole[:, :-1], 2))
        queries *= tf.expand_dims(_fold(scale), 2)
    scores = _scores(queries, _fold(keys))
    return queries, _first(sums, size(keys, 1)), scores, after


def _scores(queries, keys):
    """Multiplies queries by the keys up to each query, within a chunk."""
    _, chunk, heads, key_dim = queries.shape
    rows = tf.reshape(queries, [-1, chunk * heads, key_dim])
    scores = tf.matmul(rows, keys, transpose_b=True)
    scores = tf.reshape(scores, [-1, chunk, heads, chunk])
    return masked_fill(scores, tf.expand_dims(_past(chunk), 1)[None])


def _apply(queries, lambdas):
    """Multiplies `(y * j, c, h, x)` by `(y, j, x, v)`: `(y, j, c * h, v)`."""
    _, chunk, heads, depth = queries.shape
    shape = [-1, size(lambdas, 1), chunk * heads, depth]
    return tf.matmul(tf.reshape(queries, shape), lambdas)


def _running_sum(sums, ends):
    """Sums `(y, j, k, w)` up to each chunk.

    Each sum is relative to the running maximum `ends` of its chunk, `(y, j,
    k)`.
    """
    count, width = sums.shape[1], sums.shape[3]
    if count is None or count < 2 * _GROUP:
        return _sums_of_pairs(sums, ends)
    # First the chunks of a group, then the groups before it.
    group = ceil_div(count, count // _GROUP)
    ends = _chunks(ends, group, ends.dtype.max)  # [y, groups, group, k]
    _, groups, _, key_dim = ends.shape
    sums = _sums_of_pairs(_fold(_chunks(sums, group)), _fold(ends))
    sums = tf.reshape(sums, [-1, groups, group, key_dim, width])
    tops = ends[:, :, -1]
    before = _shifted(_sums_of_pairs(sums[:, :, -1], tops), 1, 0.0)
    decay = _shifted(tops, 1, tops.dtype.min)
    decay = tf.exp(tf.expand_dims(decay, 2) - ends)
    sums += tf.expand_dims(decay, -1) * tf.expand_dims(before, 2)
    return _first(tf.reshape(sums, [-1, groups * group, key_dim, width]), count)


def _sums_of_pairs(sums, ends):
    """Computes `_running_sum` by one product over all pairs of chunks."""
    ends = tf.transpose(ends, [0, 2, 1])  # [y, k, j]
    decay = tf.expand_dims(ends, 2) - tf.expand_dims(ends, 3)
    past = _past(size(ends, 2))[None, None]
    decay = tf.exp(masked_fill(decay, past, MASKED_LOGIT))
    order = [0, 2, 1, 3]
    return tf.transpose(tf.matmul(decay, tf.transpose(sums, order)), order)


def _running_maximum(x):
    """Returns the maximum over axis 1 up to each entry, without a gradient."""
    if x.shape[1] is None:  # XLA has no shifts by a number of a loop.
        past = tf.expand_dims(_past(tf.shape(x)[1]), 0)
        x = masked_fill(tf.expand_dims(x, 1), past, x.dtype.min)
        return tf.stop_gradient(tf.reduce_max(x, axis=2))
    reach = 1
    while reach < x.shape[1]:  # twice as far (Hillis and Steele)
        x = tf.maximum(x, _shifted(x, reach, x.dtype.min))
        reach *= 2
    return tf.stop_gradient(x)


def _shifted(x, shift, fill):
    """Shifts axis 1 towards its end, and fills its beginning."""
    pads = [[0, 0], [shift, 0]] + [[0, 0]] * (len(x.shape) - 2)
    return tf.pad(x[:, : size(x, 1) - shift], pads, constant_values=fill)


def _first(x, count):
    """Returns the first `count` entries of axis 1."""
    if x.shape[1] is not None and x.shape[1] == count:
        return x
    # The gradient of `tf.slice` takes a third of the time of a subscript's.
    rest = x.shape[2:]
    sizes = [-1, count, *(-1 for _ in rest)]
    x = sliced(x, [0] * len(sizes), sizes)
    # Restores the sizes that a slice of unknown size forgets.
    return tf.reshape(x, [-1, count, *rest])


def _past(count):
    return tf.expand_dims(tf.range(count), 1) >= tf.range(count)


def _intra_first(x, axis):
    """Moves the intra-depth to the batch, `(b * u, ...)`."""
    others = [i for i in range(1, len(x.shape)) if i != axis]
    return _fold(tf.transpose(x, [0, axis, *others]))


def _fold(x):
    """Merges the first two axes."""
    sizes = [size(x, axis) for axis in range(2, len(x.shape))]
    return tf.reshape(x, [-1, *sizes])


def _chunks(x, chunk, fill=0.0):
    """Cuts `(y, n, ...)` into `(y, chunks, chunk, ...)`, padded at the end."""
    length, rest = size(x, 1), x.shape[2:]
    chunks = ceil_div(length, chunk)
    pads = [[0, 0], [0, chunks * chunk - length]] + [[0, 0]] * len(rest)
    x = tf.pad(x, pads, constant_values=tf.cast(fill, x.dtype))
    return tf.reshape(x, [-1, chunks, chunk, *rest])
