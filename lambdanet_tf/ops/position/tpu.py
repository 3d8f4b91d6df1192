"""Position lambdas by frequencies of the first axis, laid out for TPUs.

What `fourier` computes, with the batch as the last axis: TPUs store the last
two axes of an array in tiles of 8 by 128, and arrays that end in 16 channels
waste most of a tile. Three matrix products follow each other without a
transposition between them, the other axes are cut where cutting is cheap, and
the queries are applied elementwise, to the content lambda as well.

Letters added to those of the package: f frequencies, c real and imaginary part,
r rows of queries, t and s queries and context positions of a block of the
other axes, x their blocks.
"""

import dataclasses
import math

import numpy as np
import tensorflow as tf

from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.blocks import block_choices
from lambdanet_tf.ops.geometry import dilated
from lambdanet_tf.ops.geometry import fitted
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.geometry import sliced
from lambdanet_tf.ops.position.cost import Algorithm
from lambdanet_tf.ops.position.fourier import num_frequencies
from lambdanet_tf.ops.position.fourier import transforms
from lambdanet_tf.ops.precision import accumulation_dtype


def fourier_tpu(queries, values, table, blocks, content=None):
    """Computes the position output by frequencies of the first axis.

    bfloat16 stays what it is on a TPU, so spectra are rounded to it: an error
    of some 2^-9 of the largest lambda of a column, as an output rounded to
    bfloat16 has of itself.

    The first axis is one block. Args and returns as in `Algorithm.run`.

    Cost: with F frequencies and, on the other axes, w queries and blocks with
    a context of s positions: 8 b w s F k u v + 4 b n F k v operations, and
    2 b n h k v that are no product of matrices; intermediate b n k v.
    """
    lambdas = _lambdas(values, table, blocks, content)  # [t, k, x, v, r, b]
    queries = _queries_last(queries, blocks)  # [t, h, k, x, 1, r, b]
    outputs = tf.reduce_sum(queries * lambdas[:, None], axis=2)
    return _joined(outputs, blocks)


def _lambdas(values, table, blocks, content):
    """The sum of both lambdas, `(t, k, x, v, r, b)`."""
    forward, kernel, inverse = transforms(blocks.axes[0].axis)
    rest = Blocks(blocks.axes[1:])
    count, batch = len(forward) // 2, size(values, 0)
    key_dim, value_dim = table.shape[-2], values.shape[-2]
    inverse = tf.constant(inverse.reshape(-1, count, 2), values.dtype)
    context = _spectrum(values, forward, rest)  # [f, c * s * u, x * v, b]
    kernel = _kernel(
        table, kernel, rest, values.dtype
    )  # [f, c, t * k, c * s * u]
    if content is not None:
        # One more row of the context per key channel, at frequency zero.
        content = tf.transpose(content, [1, 2, 0])[None]  # [1, k, v, b]
        content = tf.tile(content, [count, 1, math.prod(rest.counts), 1])
        context = tf.concat([context, content], 1)
        same = np.zeros([count, 2, rest.queries, key_dim, key_dim])
        same[0, 0] = (2 * count - 1) * np.eye(key_dim)
        same = tf.constant(same.reshape(count, 2, -1, key_dim), kernel.dtype)
        kernel = tf.concat([kernel, same], 3)
    products = tf.einsum("fcts,fsvb->fctvb", kernel, context)
    lambdas = tf.einsum("rfc,fctvb->tvrb", inverse, products)
    shape = [rest.queries, key_dim, math.prod(rest.counts), value_dim]
    return tf.reshape(lambdas, [*shape, blocks.grid[0], batch])


def _spectrum(values, forward, rest):
    """`(b, *context, v, u)` -> `(f, c * s * u, x * v, b)`."""
    batch, (value_dim, intra) = size(values, 0), values.shape[-2:]
    rank, count = rest.rank, len(forward) // 2
    order = [*range(1, rank + 2), rank + 3, rank + 2, 0]
    values = tf.transpose(values, order)  # [*context, u, v, b]
    shape = [count, 2, *values.shape[1:-1], batch]
    values = tf.reshape(values, [values.shape[0], -1, value_dim, batch])
    forward = tf.constant(forward.reshape(count, 2, -1), values.dtype)
    spectrum = tf.einsum("fcr,rsvb->fcsvb", forward, values)
    spectrum = tf.reshape(spectrum, shape)
    for index, blocked in enumerate(rest.axes):
        spectrum = _window(spectrum, 2 + 2 * index, blocked)
    # [f, c, (x, s) per axis, u, v, b]
    last = 2 + 2 * rank
    order = [0, 1, *range(3, last, 2), last, *range(2, last, 2)]
    spectrum = tf.transpose(spectrum, [*order, last + 1, last + 2])
    return tf.reshape(spectrum, [count, 2 * rest.context * intra, -1, batch])


def _kernel(table, transform, rest, dtype):
    """`(*taps, k, u)` -> `(f, c, t * k, c * s * u)`."""
    count, wide = len(transform) // 2, accumulation_dtype(table.dtype)
    taps = tf.reshape(tf.cast(table, wide), [table.shape[0], -1])
    spectrum = tf.matmul(tf.constant(transform, wide), taps)
    spectrum = tf.cast(spectrum, dtype)
    spectrum = tf.reshape(spectrum, [count, 2, *table.shape[1:]])
    for index, blocked in enumerate(rest.axes):
        spectrum = _toeplitz(spectrum, 2 + 2 * index, blocked.inner)
    # [f, c, (t, s) per axis, k, u]
    last = 2 + 2 * rest.rank
    order = [1, 0, *range(2, last, 2), last, *range(3, last, 2), last + 1]
    shape = [2, count, rest.queries * table.shape[-2], -1]
    spectrum = tf.reshape(tf.transpose(spectrum, order), shape)
    real, imaginary = tf.unstack(spectrum)
    # The real matrix of a complex product.
    rows = [[real, -imaginary], [imaginary, real]]
    return tf.stack([tf.concat(row, -1) for row in rows], 1)


def _queries_last(queries, blocks):
    """`(batch, n, heads, key_dim)` -> `(t, h, k, x, 1, r, b)`."""
    batch, (heads, key_dim) = size(queries, 0), queries.shape[-2:]
    last, rest = 2 * blocks.rank, Blocks(blocks.axes[1:])
    queries = blocks.cut_queries(queries)  # [b, (count, size) per axis, h, k]
    order = [1, *range(4, last + 1, 2), last + 1, last + 2]
    order += [*range(3, last, 2), 2, 0]
    shape = [rest.queries, heads, key_dim, math.prod(rest.counts), 1]
    queries = tf.transpose(queries, order)
    return tf.reshape(queries, [*shape, blocks.grid[0], batch])


def _joined(outputs, blocks):
    """`(t, heads, x, v, r, batch)` -> `(batch, n, heads, v)`."""
    rest, batch = Blocks(blocks.axes[1:]), size(outputs, 5)
    rank, heads, value_dim = rest.rank, outputs.shape[1], outputs.shape[3]
    shape = [*rest.sizes, heads, *rest.counts, value_dim]
    shape += [1, blocks.grid[0], batch]
    pairs = [i for axis in range(rank) for i in (1 + rank + axis, axis)]
    last = 2 * rank + 1
    order = [last + 3, last + 1, last + 2, *pairs, rank, last]
    return blocks.join_queries(tf.transpose(tf.reshape(outputs, shape), order))


def _window(values, axis, blocked):
    """Replaces an axis by (blocks, context of a block)."""
    if blocked.count == 1:
        return tf.expand_dims(values, axis)
    pads = [(0, 0)] * len(values.shape)
    pads[axis] = blocked.pads
    values, reach = fitted(values, pads), blocked.inner.context
    parts = []
    for block in range(blocked.count):
        begin, length = [0] * len(values.shape), [-1] * len(values.shape)
        begin[axis], length[axis] = block * blocked.step, reach
        parts.append(sliced(values, begin, length))
    return tf.stack(parts, axis)


def _toeplitz(table, axis, inner):
    """Replaces an axis of taps by (queries, context), zero out of scope.

    Copies of the padded table, one for every query, are laid end to end and
    cut to rows that are `stride` shorter: each row begins `stride` earlier in
    its copy than the one before. No index, so no scatter in the gradient.
    """
    shape = table.shape.as_list()
    outer, rest = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    rows = tf.reshape(table, [outer, shape[axis], rest])
    rows = dilated(rows, 1, inner.dilation)
    queries, context = inner.queries, inner.context
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


def _costs(geometry, dims, new_cost):
    h, k, v, u = dataclasses.astuple(dims)
    for blocks in block_choices(geometry):
        if blocks.counts[0] > 1:
            continue
        first, rest = blocks.axes[0].axis, Blocks(blocks.axes[1:])
        rows, frequencies = first.queries, num_frequencies(first)
        width = math.prod(geometry.context[1:])
        x, t, s = math.prod(rest.counts), rest.queries, rest.context
        cost = new_cost()
        cost.cut(rest, 2 * frequencies * u * v, rows * (h * k + h * v))
        # The examples are columns too, so that their number is no limit.
        cost.product(width * u * v, first.context, 2 * frequencies)
        cost.product(x * v, 2 * s * u, 2 * frequencies * t * k)
        cost.product(t * k * x * v, 2 * frequencies, rows)
        lambdas = t * k * x * v
        # A compiler lets the longer of two axes fill the rows of tiles.
        last = max(cost.batch, rows)
        cost.move(2 * frequencies * lambdas, 2, last=last)
        cost.move(rows * lambdas, 2, last=last)
        entries = math.prod(geometry.taps[1:]) * k * u
        cost.product_of_table(2 * frequencies, first.taps, entries)
        cost.move_table(4 * frequencies * t * s * k * u, 6)
        cost.hold_spectra(2 * frequencies, rows, x * s * u * v, lambdas)
        yield cost.plan(blocks.sizes, rows * lambdas)


FOURIER_TPU = Algorithm(
    run=fourier_tpu,
    costs=_costs,
    blocked=True,
    reads_content=True,
    mixes_positions=True,
    ranks=(2, 3),
    devices=("tpu",),
    widened=("gpu",),
)
