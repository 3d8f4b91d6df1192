"""Scores of relative positions, for the softmax of attention.

A score is the product of a query and the embedding of the way to a context
position. Letters added to those of the package: x blocks of a map, t queries of
a block, s its context.
"""

import dataclasses
import math

import tensorflow as tf

from lambdanet_tf.ops.geometry import Geometry
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.geometry import sliced
from lambdanet_tf.ops.pairs import pair_embeddings
from lambdanet_tf.ops.precision import accumulation_dtype

# Into which the longest axis is cut: each part multiplies its own length more
# than it keeps.
_SHIFTED_PARTS = 4
# Bytes of float32 up to which the embeddings of all pairs are formed, which is
# faster.
_MAX_PAIRS = 2**24


def position_scores(queries, embeddings, blocks):
    """Returns the scores of queries with embeddings of relative positions.

    Args:
        queries: `(b, x, h, t, key_dim)`.
        embeddings: one table `(*entries, key_dim)`, or a tuple of one for each
            axis, `(entries, key_dim)`.
        blocks: `Blocks`.

    Returns:
        `(b, x, h, t, s)`, in float32 or wider.
    """
    if isinstance(embeddings, tuple):
        return _scores_per_axis(queries, embeddings, blocks)
    inner = blocks.inner
    table = inner.crop(embeddings)
    if _is_large(queries, blocks):
        return _scores_of_table(queries, table, blocks)
    pairs = pair_embeddings(table, inner, queries.dtype)  # [t, s, k]
    return wide(_scores_of_pairs(queries, pairs, axis=3))


def past_scores(queries, table, context):
    """Returns the scores of the last positions of a context with its positions.

    Args:
        queries: `(b, x, h, t, key_dim)`, of the last t positions.
        table: `(entries, key_dim)`, whose center is the position itself; the
            entries before it are at least as many as the positions before the
            last query.
        context: int or scalar tensor. Positions of the context, s.

    Returns:
        `(b, x, h, t, s)`, in float32 or wider; any number for positions that
        come after the query.
    """
    last = table.shape[0] // 2 + 1
    rows = tf.cast(table[last - context : last], queries.dtype)  # [s, k]
    count, heads = size(queries, 3), queries.shape[2]
    flat = tf.reshape(queries, [-1, queries.shape[4]])
    scores = wide(tf.matmul(flat, rows, transpose_b=True))  # [b x h t, s]
    # Each query is one entry nearer to the center than the one before it: a
    # column more, read in rows without it, shifts each row by one.
    scores = tf.reshape(scores, [-1, count, context])
    scores = tf.pad(scores, [[0, 0], [0, 0], [1, 0]])  # [b x h, t, s + 1]
    scores = tf.reshape(scores, [-1, context + 1, count])[:, 1:]
    return tf.reshape(scores, [-1, size(queries, 1), heads, count, context])


def wide(scores):
    """Returns scores in float32 or wider."""
    return tf.cast(scores, accumulation_dtype(scores.dtype))


def _scores_of_pairs(queries, pairs, axis):
    """`(..., t, ..., k)` with pairs `(t, s, k)` -> `(..., t, ..., s)`.

    The axis is that of t.
    """
    order = list(range(len(queries.shape)))
    if pairs.shape[0] > 1:
        order = [axis, *order[:axis], *order[axis + 1 :]]
        queries = tf.transpose(queries, order)  # [t, ..., k]
    sizes = tf.unstack(tf.shape(queries))
    rows = tf.reshape(queries, [pairs.shape[0], -1, pairs.shape[2]])
    scores = tf.matmul(rows, pairs, transpose_b=True)
    scores = tf.reshape(scores, [*sizes[:-1], pairs.shape[1]])
    if pairs.shape[0] == 1:
        return scores
    return tf.transpose(scores, [order.index(i) for i in range(len(order))])


def _is_large(queries, blocks):
    """Whether the embeddings of all pairs would be larger than the scores."""
    if not all(axis.axis.is_static for axis in blocks.axes):
        return False
    num_heads, key_dim = queries.shape[2], queries.shape[4]
    if 4 * blocks.queries * blocks.context * key_dim <= _MAX_PAIRS:
        return False
    counts = math.prod(blocks.counts)
    return counts == 1 or counts * num_heads < key_dim


def _scores_of_table(queries, table, blocks):
    """Scores of queries with their pairs' embeddings, which are not formed.

    Along the longest axis a query is multiplied by every row of the table that
    it or one of its neighbors reads, and the products are shifted into place:
    each query begins one row before the query in front of it. Along the other
    axes the table is laid out for all pairs, which are few. Arguments as of
    `position_scores`, with static sizes, and the table cropped.
    """
    sizes, rank = tf.unstack(tf.shape(queries))[:3], blocks.rank
    key_dim, inner = queries.shape[-1], blocks.inner.axes
    long = max(range(rank), key=lambda axis: blocks.sizes[axis])
    others = [axis for axis in range(rank) if axis != long]
    rest = Geometry(tuple(inner[axis] for axis in others))
    rows = tf.transpose(table, [*others, long, rank])
    dtype = accumulation_dtype(table.dtype)
    rows = pair_embeddings(rows, rest, dtype)  # [j, i, taps, k]
    rows = tf.transpose(rows, [0, 2, 1, 3])  # [j, taps, i, k]
    queries = tf.reshape(queries, [-1, *blocks.sizes, key_dim])
    order = [*(1 + axis for axis in others), 0, 1 + long, 1 + rank]
    queries = tf.transpose(queries, order)
    queries = tf.reshape(
        queries, [rows.shape[0], -1, blocks.sizes[long], key_dim]
    )  # [j, b * x * h, t, k]
    length = -(-blocks.sizes[long] // _SHIFTED_PARTS)
    parts = [
        _shifted_scores(queries[:, :, first : first + length], rows, axis)
        for first, axis in cut(inner[long], length)
    ]
    scores = tf.concat(parts, axis=2)  # [j, b * x * h, t, s, i]
    shape = [*rest.queries, -1, blocks.sizes[long], inner[long].context]
    scores = tf.reshape(scores, [*shape, *rest.context])
    place = {axis: index for index, axis in enumerate(others)}
    order = [place.get(axis, rank) for axis in range(rank)]
    order += [rank + 2 + place.get(axis, -1) for axis in range(rank)]
    scores = tf.transpose(scores, [rank - 1, *order])
    return tf.reshape(scores, [*sizes, blocks.queries, blocks.context])


def cut(axis, length):
    """Yields the queries from each multiple of `length` on, as an axis."""
    for first in range(0, axis.queries, length):
        yield (
            first,
            dataclasses.replace(
                axis,
                queries=min(length, axis.queries - first),
                padding=axis.padding - first,
            ),
        )


def _shifted_scores(queries, rows, axis):
    """`(j, r, t, k)` with rows `(j, taps, i, k)` -> `(j, r, t, s, i)`.

    The axis has stride and dilation 1.
    """
    count, context = axis.queries, axis.context
    # From the row of the last query's first position to that of the first
    # query's last, and one more: every query begins one before the next.
    first, length = axis.padding - count + 1, context + count
    rows = rows[:, max(first, 0) : max(first + length, 0)]
    before = min(max(-first, 0), length)
    after = length - before - rows.shape[1]
    rows = tf.pad(rows, [[0, 0], [before, after], [0, 0], [0, 0]])
    outer, columns, key_dim = rows.shape[0], rows.shape[2], rows.shape[3]
    rows = tf.cast(tf.reshape(rows, [outer, -1, key_dim]), queries.dtype)
    flat = tf.reshape(queries, [outer, -1, key_dim])
    scores = wide(tf.matmul(flat, rows, transpose_b=True))  # [j, r t, l i]
    scores = tf.reshape(scores, [outer, -1, count * length * columns])
    size_of_all = count * (length - 1) * columns
    begin = (count - 1) * columns
    scores = sliced(scores, [0, 0, begin], [-1, -1, size_of_all])
    scores = tf.reshape(scores, [outer, -1, count, length - 1, columns])
    return sliced(scores, [0] * 5, [-1, -1, -1, context, -1])


def _scores_per_axis(queries, tables, blocks):
    """Scores of one table per axis, added up, `(b, x, h, t, s)`.

    Each axis has its own scores of few context positions; only their sum is
    formed for every pair.
    """
    sizes = tf.unstack(tf.shape(queries))[:3]
    rank = blocks.rank
    queries = tf.reshape(queries, [-1, *blocks.sizes, queries.shape[-1]])
    total = None
    for axis, table in enumerate(tables):
        inner = blocks.inner.along(axis)
        pairs = pair_embeddings(inner.crop(table), inner, queries.dtype)
        scores = _scores_of_pairs(queries, pairs, axis=1 + axis)
        # The gradient of what follows is a sum over the other axes.
        scores = wide(scores)
        context = [1] * rank
        context[axis] = inner.axes[0].context
        scores = tf.reshape(scores, [-1, *context])  # [b x h t, s of the axis]
        total = scores if total is None else total + scores
    return tf.reshape(total, [*sizes, blocks.queries, blocks.context])
