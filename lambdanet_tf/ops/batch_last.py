"""Position outputs with the batch as the last axis, for matrix units.

TPUs store the last two axes of an array in tiles of 8 by 128. Arrays that end
in 16 channels waste most of a tile; with the batch last nothing is padded, and
the positions are cut along leading axes, where cutting is cheap. The content
lambda is read in the same layout, so that queries are transposed once.

Letters beside those of the package: t queries of a block, s its context, x
blocks of a map, f context positions of a step.
"""

import math

import tensorflow as tf

from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.geometry import sliced

LANES = 128  # numbers in a row of a tile


def batch_last(queries, values, table, blocks, content=None):
    """Position lambdas as a convolution over blocks, applied elementwise.

    The last axis of the map is a convolution over steps of a block, the
    positions of a step as its channels; along the others every block has a
    window of its own. So the input of the product is not much larger than the
    values, and its inner length, the window times a step, fills a matrix unit.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: `(batch, *context, value_dim, intra_depth)`.
        table: `(*taps, key_dim, intra_depth)`, already cropped.
        blocks: `Blocks` of the geometry.
        content: None, or a content lambda `(batch, key_dim, value_dim)` that
            the queries read as well.

    Returns:
        `(batch, n, heads, value_dim)`.

    Cost: 2 b n s k u v operations for blocks with a context of s positions,
    and 2 b n h k v that are no product of matrices; intermediate b n k v.
    """
    lambdas = _position_lambdas(values, table, blocks)  # [v, x, k, t, b]
    queries = _queries_last(queries, blocks)  # [x, h, k, t, b]
    read = [lambdas]
    if content is not None:
        content = tf.transpose(content, [2, 1, 0])  # [v, k, b]
        read.append(content[:, None, :, None])
    if not _fills_lanes(queries.shape[-1]):
        queries = _merged(queries)
        read = [_merged(_tiled(x, blocks.queries)) for x in read]
    # Apart, so that a device need not store the sum of the lambdas.
    outputs = tf.add_n(
        [tf.reduce_sum(queries * x[:, :, None], axis=3) for x in read]
    )
    return _joined(outputs, blocks)


def _position_lambdas(values, table, blocks):
    """Computes the position lambdas.

    Args:
        values: `(batch, *context, value_dim, intra_depth)`.
        table: `(*taps, key_dim, intra_depth)`, already cropped.
        blocks: `Blocks` of the geometry.

    Returns:
        `(value_dim, x, key_dim, t, batch)`.
    """
    batch, value_dim = size(values, 0), values.shape[-2]
    windows = _windows(values, blocks)  # [b, v * counts, steps, f]
    kernel = _kernel(
        tf.cast(table, values.dtype), blocks
    )  # [1, pieces, f, k * t]
    lambdas = tf.nn.conv2d(windows, kernel, 1, "VALID")
    lambdas = tf.transpose(lambdas, [1, 2, 3, 0])
    counts = math.prod(blocks.counts)
    shape = [value_dim, counts, table.shape[-2], blocks.queries, batch]
    return tf.reshape(lambdas, shape)


def _fills_lanes(batch):
    """Whether examples fill rows of tiles by themselves, as far as is known."""
    return batch is not None and batch % LANES == 0


def _tiled(x, queries):
    """`(..., 1 or t, b)` -> `(..., t, b)`."""
    return tf.tile(x, [1, 1, 1, queries // x.shape[3], 1])


def _merged(x):
    """`(..., t, b)` -> `(..., t * b)`, which fills the tiles of any batch."""
    return tf.reshape(x, [*x.shape[:-2], -1])


def _queries_last(queries, blocks):
    """`(batch, n, heads, key_dim)` -> `(x, heads, key_dim, t, batch)`."""
    batch, (heads, key_dim) = size(queries, 0), queries.shape[-2:]
    rank = blocks.rank
    queries = blocks.cut_queries(queries)  # [b, (count, size) per axis, h, k]
    order = [
        *range(1, 2 * rank, 2),
        2 * rank + 1,
        2 * rank + 2,
        *range(2, 2 * rank + 1, 2),
        0,
    ]
    shape = [math.prod(blocks.counts), heads, key_dim, blocks.queries, batch]
    return tf.reshape(tf.transpose(queries, order), shape)


def _joined(outputs, blocks):
    """`(value_dim, x, heads, ...)` -> `(batch, n, heads, value_dim)`."""
    rank = blocks.rank
    value_dim, heads = outputs.shape[0], outputs.shape[2]
    shape = [value_dim, *blocks.counts, heads, *blocks.sizes, -1]
    pairs = [i for a in range(rank) for i in (1 + a, rank + 2 + a)]
    order = [2 * rank + 2, *pairs, rank + 1, 0]
    outputs = tf.transpose(tf.reshape(outputs, shape), order)
    return blocks.join_queries(outputs)


def _windows(values, blocks):
    """`(b, *context, v, u)` -> `(b, v * leading counts, steps, f)`.

    A channel is a position of the window along the leading axes, an intra
    depth, and a position of a step along the last axis.
    """
    rank, batch = blocks.rank, size(values, 0)
    value_dim, intra = values.shape[-2:]
    order = [*range(1, rank + 1), rank + 2, rank + 1, 0]
    values = tf.transpose(values, order)  # [*context, u, v, b]
    for index, blocked in enumerate(blocks.axes[:-1]):
        values = window(values, 2 * index, blocked)
    values = _steps(values, 2 * rank - 2, blocks.axes[-1])
    # [(count, s) per leading axis, steps, f, u, v, b]
    leading = 2 * rank - 2
    order = [
        leading + 4,
        leading + 3,
        *range(0, leading, 2),
        leading,
        *range(1, leading, 2),
        leading + 2,
        leading + 1,
    ]
    counts = math.prod(blocks.counts[:-1])
    steps = values.shape[leading]
    shape = [batch, value_dim * counts, steps, _window_size(blocks) * intra]
    return tf.reshape(tf.transpose(values, order), shape)


def _window_size(blocks):
    """Context positions of a block in one step of the last axis."""
    leading = math.prod(blocked.inner.context for blocked in blocks.axes[:-1])
    last = blocks.axes[-1]
    return leading * (last.axis.context if last.count == 1 else last.step)


def window(values, axis, blocked):
    """Replaces an axis by (blocks, context of a block)."""
    if blocked.count == 1:
        return tf.expand_dims(values, axis)
    values = _padded(values, axis, blocked)
    reach = blocked.inner.context
    parts = []
    for block in range(blocked.count):
        begin, length = [0] * len(values.shape), [-1] * len(values.shape)
        begin[axis], length[axis] = block * blocked.step, reach
        parts.append(sliced(values, begin, length))
    return tf.stack(parts, axis)


def _steps(values, axis, blocked):
    """Replaces an axis by (steps, context of a step)."""
    if blocked.count == 1:
        return tf.expand_dims(values, axis)
    values = _padded(values, axis, blocked)
    sizes = tf.unstack(tf.shape(values))
    steps = blocked.count + blocked.pieces - 1
    return tf.reshape(
        values, [*sizes[:axis], steps, blocked.step, *sizes[axis + 1 :]]
    )


def _padded(values, axis, blocked):
    """Cuts and pads an axis to whole steps."""
    before, after = blocked.pads
    rank = len(values.shape)
    if before < 0 or after < 0:
        begin, length = [0] * rank, [-1] * rank
        begin[axis] = max(-before, 0)
        length[axis] = blocked.axis.context + min(before, 0) + min(after, 0)
        values = sliced(values, begin, length)
    pads = [(0, 0)] * rank
    pads[axis] = max(before, 0), max(after, 0)
    return tf.pad(values, pads)


def _kernel(table, blocks):
    """`(*taps, k, u)` -> `(1, pieces, f, k * t)`."""
    rank, last = blocks.rank, blocks.axes[-1]
    key_dim, intra = table.shape[-2:]
    for index, blocked in enumerate(blocks.axes):
        table = toeplitz(table, 2 * index, blocked.inner)
    # [(t, s) per axis, k, u]
    pieces = 1 if last.count == 1 else last.pieces
    shape = table.shape.as_list()
    shape[2 * rank - 1 : 2 * rank] = [pieces, shape[2 * rank - 1] // pieces]
    table = tf.reshape(table, shape)
    order = [
        2 * rank - 1,
        *range(1, 2 * rank - 2, 2),
        2 * rank + 2,
        2 * rank,
        2 * rank + 1,
        *range(0, 2 * rank, 2),
    ]
    shape = [
        1,
        pieces,
        _window_size(blocks) * intra,
        key_dim * blocks.queries,
    ]
    return tf.reshape(tf.transpose(table, order), shape)


def toeplitz(table, axis, inner):
    """Replaces an axis of taps by (queries, context), zero out of scope.

    Copies of the padded table, one for every query, are laid end to end and
    cut to rows that are `stride` shorter: each row begins `stride` earlier in
    its copy than the one before. No index, so no scatter in the gradient.
    """
    shape = table.shape.as_list()
    outer, rest = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    rows = tf.reshape(table, [outer, shape[axis], rest])
    taps, queries, context = inner.taps, inner.queries, inner.context
    if inner.dilation > 1:
        rows = tf.pad(
            rows[:, :, None], [(0, 0), (0, 0), (0, inner.dilation - 1), (0, 0)]
        )
        rows = tf.reshape(rows, [outer, taps * inner.dilation, rest])
    first = inner.stride * (queries - 1) - inner.padding
    length = context + inner.stride * queries
    rows = _placed(rows, first, length)  # entry of query 0, position c: at c +
    rows = tf.tile(rows[:, None], [1, queries, 1, 1])
    rows = tf.reshape(rows, [outer, queries * length, rest])
    begin, shorter = inner.stride * (queries - 1), length - inner.stride
    rows = sliced(rows, [0, begin, 0], [-1, queries * shorter, -1])
    rows = tf.reshape(rows, [outer, queries, shorter, rest])[:, :, :context]
    return tf.reshape(
        rows, [*shape[:axis], queries, context, *shape[axis + 1 :]]
    )


def _placed(rows, first, length):
    """Pads or cuts axis 1 so that row 0 comes to stand at `first`."""
    if first < 0:
        rows, first = rows[:, -first:], 0
    rows = rows[:, : max(length - first, 0)]
    after = length - first - rows.shape[1]
    return tf.pad(rows, [(0, 0), (first, after), (0, 0)])
