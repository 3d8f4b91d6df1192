"""Softmax attention with relative positions, in blocks of queries.

    S[b, h, n, m] = Q[b, n, h] . (K[b, m, h] + E[n, m])
    Y[b, n, h]    = sum over m of  softmax over m (S)[b, h, n, m] V[b, m, h]

E is the embedding of a relative position, shared by the heads: of all axes
jointly, or the sum of one embedding per axis. Letters beside those of the
package: x blocks of a map, t queries of a block, s its context.
"""

import dataclasses
import itertools
import math

import tensorflow as tf

from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.geometry import Geometry
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.keys import MASKED_LOGIT
from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.masks import propagate_nan
from lambdanet_tf.ops.masks import split_nonfinite
from lambdanet_tf.ops.pairs import gather_pairs
from lambdanet_tf.ops.pairs import relative_index
from lambdanet_tf.ops.precision import accumulation_dtype
from lambdanet_tf.ops.precision import factor_dtype

# Positions per axis that sizes known at run time only are taken for.
_UNKNOWN_SIZE = 64
# Positions whose shares float16 still tells apart: 2^-14 is its smallest
# normal number.
_FLOAT16_CONTEXT = 2**14
# Into which the longest axis is cut: each part multiplies its own length more
# than it keeps.
_SHIFTED_PARTS = 4
# Bytes of float32 up to which the embeddings of all pairs are formed, which is
# faster.
_MAX_PAIRS = 2**24


def relative_attention(
    queries,
    keys,
    values,
    embeddings=None,
    geometry=None,
    attention_mask=None,
    context_mask=None,
    causal=False,
):
    """Computes multi-head softmax attention with relative positions.

    Args:
        queries: `(batch, n, heads, key_dim)`, already scaled; query positions
            flattened row-major.
        keys: `(batch, m, heads, key_dim)`, or None for scores of positions
            alone.
        values: `(batch, m, heads, value_dim)`.
        embeddings: None for scores of content alone. With a geometry the
            table of relative positions, `(*entries, key_dim)`, or a tuple of
            tables `(entries, key_dim)`, one per axis, whose embeddings add up.
        geometry: a `Geometry`, which says what a query may see; or None: all
            context positions.
        attention_mask: None or boolean `(n, m)` or `(batch, n, m)`; True =
            may interact. With a geometry it needs static sizes.
        context_mask: None or boolean `(batch, m)`; False = padding.
        causal: bool. Without a geometry, whether query n sees positions up to
            n only; with one, that is the geometry's.

    Returns:
        `(batch, n, heads, value_dim)`; zero where nothing is permitted. NaN
        and infinity reach the queries that may see them and no others. The
        softmax runs in float32 or wider.

    Raises:
        ValueError: if a mask needs static sizes that `geometry` does not have.

    Cost: 2 b x t h s (2 k + v) operations with x blocks of t queries and a
    context of s positions each; largest intermediate b x h t s. A global
    geometry is one block: n m pairs. With a local scope it is linear in n.
    """
    blocks = None
    if geometry is not None:
        blocks = _blocks(geometry, queries, values, attention_mask)
    permitted = _permitted(
        blocks, queries, values, attention_mask, context_mask, causal
    )
    if isinstance(embeddings, tuple) and len(embeddings) == 1:
        (embeddings,) = embeddings
    dtype = values.dtype
    inner = _factor_dtype(dtype, blocks, values)
    queries, values = tf.cast(queries, inner), tf.cast(values, inner)
    keys = None if keys is None else tf.cast(keys, inner)
    bad = None
    if permitted is not None:
        values, bad = split_nonfinite(values)
        if keys is not None:
            keys, bad_keys = split_nonfinite(keys)
            bad |= bad_keys
    queries = _heads_first(_of_queries(queries, blocks))  # [b, x, h, t, k]
    values = _heads_first(_of_context(values, blocks))  # [b, x, h, s, v]
    scores = []
    if keys is not None:
        keys = _heads_first(_of_context(keys, blocks))  # [b, x, h, s, k]
        scores += [_wide(tf.matmul(queries, keys, transpose_b=True))]
    if isinstance(embeddings, tuple):
        scores += [_scores_per_axis(queries, embeddings, blocks)]
    elif embeddings is not None:
        table = geometry.crop(embeddings)
        if _is_large(queries, blocks):
            scores += [_scores_of_table(queries, table, blocks)]
        else:
            pairs = gather_pairs(
                table, blocks.rank, relative_index(blocks.inner), inner
            )  # [t, s, k]
            scores += [_wide(_scores_of_pairs(queries, pairs, axis=3))]
    outputs = _attend(tf.add_n(scores), values, permitted)
    outputs = tf.cast(outputs, dtype)
    if bad is not None:
        bad = _of_context(tf.cast(bad, tf.float32), blocks)  # [b, x, s]
        bad = tf.expand_dims(bad, -1)
        seen = tf.matmul(tf.cast(permitted, tf.float32), bad)
        outputs = propagate_nan(outputs, tf.squeeze(seen, -1) > 0)
    return outputs[:, 0] if blocks is None else blocks.joined(outputs)


def _factor_dtype(dtype, blocks, values):
    """As `factor_dtype`; float16 has no share of one among many positions."""
    context = values.shape[1] if blocks is None else blocks.context
    inner = factor_dtype(dtype)
    if inner == tf.float16 and (context is None or context > _FLOAT16_CONTEXT):
        return accumulation_dtype(dtype)
    return inner


def _attend(scores, values, permitted):
    """Values weighted by a softmax of `(b, x, h, t, s)`: `(b, x, t, h, v)`."""
    if permitted is not None:
        mask = tf.expand_dims(permitted, 2)
        scores = masked_fill(scores, mask, MASKED_LOGIT)
    weights = tf.cast(tf.nn.softmax(scores), values.dtype)
    outputs = _heads_first(tf.matmul(weights, values))  # [b, x, t, h, v]
    if permitted is None:
        return outputs
    some = tf.reduce_any(permitted, axis=-1, keepdims=True)
    some = tf.expand_dims(some, -1)  # [b, x, t, 1, 1]
    return masked_fill(outputs, some)


def _wide(scores):
    return tf.cast(scores, accumulation_dtype(scores.dtype))


def _scores_of_pairs(queries, pairs, axis):
    """Scores of queries with the embeddings of their pairs.

    Args:
        queries: `(..., t, ..., key_dim)`.
        pairs: `(t, s, key_dim)`.
        axis: int. That of t.

    Returns:
        `(..., t, ..., s)`.
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
    axes the table is laid out for all pairs, which are few.

    Args:
        queries: `(b, x, heads, t, key_dim)`.
        table: `(*taps, key_dim)`, already cropped.
        blocks: `Blocks` of static sizes.

    Returns:
        `(b, x, heads, t, s)`, in float32 or wider.
    """
    sizes, rank = tf.unstack(tf.shape(queries))[:3], blocks.rank
    key_dim, inner = queries.shape[-1], blocks.inner.axes
    long = max(range(rank), key=lambda axis: blocks.sizes[axis])
    others = [axis for axis in range(rank) if axis != long]
    rest = Geometry(tuple(inner[axis] for axis in others))
    rows = tf.transpose(table, [*others, long, rank])
    rows = tf.cast(rows, accumulation_dtype(table.dtype))
    rows = gather_pairs(rows, rank - 1, relative_index(rest))  # [j, i, taps, k]
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
        for first, axis in _parts(inner[long], length)
    ]
    scores = tf.concat(parts, axis=2)  # [j, b * x * h, t, s, i]
    if rank > 1:
        shape = [axis.queries for axis in rest.axes]
        shape += [-1, blocks.sizes[long], inner[long].context]
        scores = tf.reshape(scores, [*shape, *rest.context])
        at = dict(zip([*others, long], [*range(rank - 1), rank], strict=True))
        order = [rank - 1, *(at[axis] for axis in range(rank))]
        at = dict(
            zip([long, *others], range(rank + 1, 2 * rank + 1), strict=True)
        )
        order += [at[axis] for axis in range(rank)]
        scores = tf.transpose(scores, order)
    return tf.reshape(scores, [*sizes, blocks.queries, blocks.context])


def _parts(axis, length):
    """Queries from each multiple of `length` on, as axes of their own."""
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
    """Scores of queries along one axis.

    Args:
        queries: `(j, r, t, key_dim)`.
        rows: `(j, taps, i, key_dim)`.
        axis: `Axis` of stride and dilation 1.

    Returns:
        `(j, r, t, s, i)`.
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
    scores = _wide(tf.matmul(flat, rows, transpose_b=True))  # [j, r t, l i]
    scores = tf.reshape(scores, [outer, -1, count * length * columns])
    size_of_all = count * (length - 1) * columns
    begin = (count - 1) * columns
    scores = tf.slice(scores, [0, 0, begin], [-1, -1, size_of_all])
    scores = tf.reshape(scores, [outer, -1, count, length - 1, columns])
    return tf.slice(scores, [0] * 5, [-1, -1, -1, context, -1])


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
        pairs = gather_pairs(
            inner.crop(table), 1, relative_index(inner), queries.dtype
        )
        scores = _scores_of_pairs(queries, pairs, axis=1 + axis)
        # The gradient of what follows is a sum over the other axes.
        scores = _wide(scores)
        context = [1] * rank
        context[axis] = inner.axes[0].context
        scores = tf.reshape(scores, [-1, *context])  # [b x h t, s of the axis]
        total = scores if total is None else total + scores
    return tf.reshape(total, [*sizes, blocks.queries, blocks.context])


def _permitted(blocks, queries, values, attention_mask, context_mask, causal):
    """Which pairs count: boolean `(b or 1, x or 1, t, s)`; None for all."""
    parts = []
    if blocks is None:
        if causal:
            n, m = size(queries, 1), size(values, 1)
            pairs = tf.expand_dims(tf.range(n), 1) >= tf.range(m)
            parts += [tf.expand_dims(tf.expand_dims(pairs, 0), 0)]
    else:
        if not blocks.inner.is_global:
            parts += [relative_index(blocks.inner)[None, None] >= 0]
        parts += _inside(blocks)
    if attention_mask is not None:
        by_example = len(attention_mask.shape) == 3
        rows = attention_mask if by_example else attention_mask[None]
        parts += [tf.expand_dims(rows, 1)]
    if context_mask is not None:
        real = _of_context(tf.cast(context_mask, tf.int32), blocks)
        n = size(queries, 1) if blocks is None else blocks.queries
        rows = tf.ones([n, 1], tf.bool)
        parts += [rows & tf.expand_dims(real > 0, 2)]
    total = None
    for part in parts:
        total = part if total is None else total & part
    return total


def _inside(blocks):
    """Which positions of the blocks' windows lie on the map, as a list."""
    if all(axis.is_single for axis in blocks.axes):
        return []
    context = [blocked.axis.context for blocked in blocks.axes]
    ones = blocks.context_blocks(tf.ones([1, *context], tf.int32))
    return [tf.expand_dims(ones, 2) > 0]


def _heads_first(x):
    """`(b, x, t, h, ...)` -> `(b, x, h, t, ...)`, and back."""
    return tf.transpose(x, [0, 1, 3, 2, 4])


def _of_queries(queries, blocks):
    """`(batch, n, ...)` -> `(batch, x, t, ...)`."""
    if blocks is None:
        return tf.expand_dims(queries, 1)
    return blocks.query_blocks(queries)


def _of_context(x, blocks):
    """`(batch, m, ...)` -> `(batch, x, s, ...)`."""
    if blocks is None:
        return tf.expand_dims(x, 1)
    context = [blocked.axis.context for blocked in blocks.axes]
    x = tf.reshape(x, [-1, *context, *x.shape[2:]])
    return blocks.context_blocks(x)


def _blocks(geometry, queries, values, attention_mask):
    """The blocks of a call; one for all where pairs are masked."""
    if attention_mask is None:
        num_heads, key_dim = queries.shape[2:]
        sizes = block_sizes(geometry, num_heads, key_dim, values.shape[-1])
        return Blocks.of(geometry, sizes)
    if not geometry.is_static:
        raise ValueError(
            "`attention_mask` needs a `geometry` of static sizes. Received: "
            "sizes that are known at run time only."
        )
    return Blocks.of(geometry, geometry.queries)


def block_sizes(geometry, num_heads, key_dim, value_dim):
    """Chooses how many queries per axis a block of local attention has.

    Larger blocks have fewer copies of their context; smaller ones fewer pairs
    out of scope. A size that divides the scope's reach leaves no context
    unread. What a training step holds is the smallest: the scores and their
    softmax, and the windows of keys and values.

    Args:
        geometry: `Geometry`; unknown sizes count as large.
        num_heads: int.
        key_dim: int.
        value_dim: int.

    Returns:
        Tuple of int; the whole axis where its scope is global.
    """
    best = math.inf, ()
    for sizes in itertools.product(*map(_candidates, geometry.axes)):
        blocks = Blocks.of(geometry, sizes)
        counts = math.prod(
            axis.count
            if axis.axis.is_static
            else -(-_UNKNOWN_SIZE // axis.size)
            for axis in blocks.axes
        )
        pairs = 2 * blocks.queries * num_heads
        windows = num_heads * (key_dim + value_dim)
        held = counts * blocks.context * (pairs + windows)
        if held < best[0]:
            best = held, sizes
    return best[1]


def _count(blocked):
    if blocked.axis.is_static:
        return blocked.count
    return -(-_UNKNOWN_SIZE // blocked.size)


def _candidates(axis):
    """Divisors of the scope's reach, and the whole axis."""
    reach = axis.taps - 1
    sizes = {n for n in range(1, reach + 1) if reach % n == 0} or {1}
    if not axis.is_static:
        return sorted(sizes)
    whole = {axis.queries}
    if axis.is_global:
        return sorted(whole)
    return sorted(whole | {n for n in sizes if n < axis.queries})
