"""Softmax attention with relative positions, in blocks of queries.

    S[b, h, n, m] = Q[b, n, h] . (K[b, m, h] + E[n, m])
    Y[b, n, h]    = sum over m of  softmax over m (S)[b, h, n, m] V[b, m, h]

E embeds the relative position, and all heads share it. It comes from one table
for all axes, or is the sum of one embedding per axis. Further letters: x blocks
of a map, t queries of a block, s context positions of a block.
"""

import functools
import itertools
import math

import tensorflow as tf

from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.devices import accumulation_dtype
from lambdanet_tf.ops.devices import factor_dtype
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.keys import MASKED_LOGIT
from lambdanet_tf.ops.masks import Masks
from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.pairs import pair_embeddings
from lambdanet_tf.ops.pairs import relative_index

# The size that we assume for an axis of unknown size.
_UNKNOWN_SIZE = 64
# With more positions than this, a mean weight is below 2^-14, the smallest
# normal number of float16.
_FLOAT16_CONTEXT = 2**14
_UNMASKED = Masks()


def relative_attention(
    queries,
    keys,
    values,
    embeddings=None,
    geometry=None,
    masks=_UNMASKED,
    return_weights=False,
):
    """Computes multi-head softmax attention with relative positions.

    Args:
        queries: `(batch, n, heads, key_dim)`, already scaled. Query positions
            are flattened row-major.
        keys: `(batch, m, heads, key_dim)`, or None to score positions only.
        values: `(batch, m, heads, value_dim)`.
        embeddings: None to score content only, or the table of relative
            positions, `(*entries, key_dim)`, or a tuple of one table
            `(entries, key_dim)` per axis, whose embeddings are added.
        geometry: a `Geometry`, which says which positions a query sees, or
            None if it sees all of them.
        masks: `Masks`. If there is a geometry, it also defines causality, and
            masks that differ by query need static sizes.
        return_weights: bool. Whether to return the attention weights, too,
            which needs static sizes.

    Returns:
        `(batch, n, heads, value_dim)`, zero where the masks permit nothing.
        The softmax runs in float32 or wider. With `return_weights`, also the
        attention weights, `(batch, heads, n, m)`.

    Raises:
        ValueError: if a mask or `return_weights` needs static sizes, and
            `geometry` has none.

    Cost: 2 b x t h s (2 k + v) operations for x blocks of t queries that see s
    positions each. The largest intermediate is b x h t s. A global geometry is
    one block of n m pairs; with a local scope the cost is linear in n.
    """
    blocks = _blocks(geometry, queries, values, masks, return_weights)
    permitted = _permitted(blocks, masks, queries, values)
    dtype = values.dtype
    inner = _factor_dtype(dtype, blocks, values)
    queries, values = tf.cast(queries, inner), tf.cast(values, inner)
    queries = _heads_first(_of_queries(queries, blocks))  # [b, x, h, t, k]
    values = _heads_first(_of_context(values, blocks))  # [b, x, h, s, v]
    scores = []
    if keys is not None:
        keys = _of_context(tf.cast(keys, inner), blocks)
        keys = _heads_first(keys)  # [b, x, h, s, k]
        scores += [_wide(tf.matmul(queries, keys, transpose_b=True))]
    if embeddings is not None:
        scores += [_position_scores(queries, embeddings, blocks)]
    scores = tf.add_n(scores)  # [b, x, h, t, s]
    scores = masked_fill(scores, permitted, MASKED_LOGIT)
    weights = tf.nn.softmax(scores)
    if permitted is not None:  # Uniform where nothing is permitted.
        some = tf.reduce_any(permitted, axis=-1, keepdims=True)
        weights = masked_fill(weights, some)
    weights = tf.cast(weights, inner)
    outputs = tf.matmul(weights, values)  # [b, x, h, t, v]
    outputs = tf.cast(_heads_first(outputs), dtype)  # [b, x, t, h, v]
    outputs = outputs[:, 0] if blocks is None else blocks.joined(outputs)
    if return_weights:
        return outputs, tf.cast(weights[:, 0], dtype)
    return outputs


def _wide(scores):
    return tf.cast(scores, accumulation_dtype(scores.dtype))


def _factor_dtype(dtype, blocks, values):
    """Returns `factor_dtype`, or a wider dtype if the context is long."""
    context = values.shape[1] if blocks is None else blocks.context
    inner = factor_dtype(dtype)
    if inner == tf.float16 and (context is None or context > _FLOAT16_CONTEXT):
        return accumulation_dtype(dtype)
    return inner


def _position_scores(queries, embeddings, blocks):
    """Returns the scores of relative positions, `(b, x, h, t, s)`.

    With one table per axis, each axis is scored by itself, and only the sum of
    these scores has an entry for every pair.
    """
    inner = blocks.inner
    if not isinstance(embeddings, tuple):
        table = inner.crop(embeddings)
        pairs = pair_embeddings(table, inner, queries.dtype)  # [t, s, k]
        return _wide(_scores_of_pairs(queries, pairs, axis=3))
    sizes, rank = tf.unstack(tf.shape(queries))[:3], blocks.rank
    queries = tf.reshape(queries, [-1, *blocks.sizes, queries.shape[-1]])
    total = []
    for axis, table in enumerate(embeddings):
        along = inner.along(axis)
        pairs = pair_embeddings(along.crop(table), along, queries.dtype)
        scores = _wide(_scores_of_pairs(queries, pairs, axis=1 + axis))
        context = [1] * rank
        context[axis] = along.axes[0].context
        total += [tf.reshape(scores, [-1, *context])]  # [b x h t, s of an axis]
    total = functools.reduce(tf.add, total)
    return tf.reshape(total, [*sizes, blocks.queries, blocks.context])


def _scores_of_pairs(queries, pairs, axis):
    """Multiplies `(..., t, ..., k)` by pairs `(t, s, k)`: `(..., t, ..., s)`.

    `axis` is the axis of t. We avoid `tf.einsum`, because TFLite's converter
    writes a wrong one if sizes are unknown.
    """
    rank = len(queries.shape)
    order = [axis, *(i for i in range(rank) if i != axis)]
    queries = tf.transpose(queries, order)  # [t, ..., k]
    sizes = tf.unstack(tf.shape(queries))
    rows = tf.reshape(queries, [pairs.shape[0], -1, pairs.shape[2]])
    scores = tf.matmul(rows, pairs, transpose_b=True)
    scores = tf.reshape(scores, [*sizes[:-1], pairs.shape[1]])
    return tf.transpose(scores, [order.index(i) for i in range(rank)])


def _permitted(blocks, masks, queries, values):
    """Returns which pairs count: None or boolean `(b, x, h, t, s)`, any 1.

    The parts have four axes, because TFLite can broadcast no more.
    """
    parts = []  # each (b, x, t, s), any of them 1
    if blocks is None and masks.causal:
        past = tf.ones([1, 1, size(queries, 1), size(values, 1)], tf.bool)
        parts += [tf.linalg.band_part(past, -1, 0)]
    elif blocks is not None:
        if not blocks.inner.is_global:
            parts += [relative_index(blocks.inner)[None, None] >= 0]
        if not all(axis.is_single for axis in blocks.axes):
            context = [blocked.axis.context for blocked in blocks.axes]
            on_map = blocks.context_blocks(tf.ones([1, *context], tf.int32))
            parts += [tf.expand_dims(on_map, 2) > 0]
    if masks.seen is not None:  # there is one block
        parts += [tf.expand_dims(masks.seen, 1)]
    elif masks.permitted is not None:
        real = _of_context(tf.cast(masks.permitted, tf.int32), blocks)
        parts += [tf.expand_dims(real, 2) > 0]
    if not parts:
        return None
    return tf.expand_dims(functools.reduce(tf.logical_and, parts), 2)


def _heads_first(x):
    """Transposes `(b, x, t, h, ...)` to `(b, x, h, t, ...)`, and back."""
    return tf.transpose(x, [0, 1, 3, 2, 4])


def _of_queries(queries, blocks):
    """Cuts `(batch, n, ...)` into `(batch, x, t, ...)`."""
    if blocks is None:
        return tf.expand_dims(queries, 1)
    return blocks.query_blocks(queries)


def _of_context(x, blocks):
    """Cuts `(batch, m, ...)` into `(batch, x, s, ...)`."""
    if blocks is None:
        return tf.expand_dims(x, 1)
    context = [blocked.axis.context for blocked in blocks.axes]
    x = tf.reshape(x, [-1, *context, *x.shape[2:]])
    return blocks.context_blocks(x)


def _blocks(geometry, queries, values, masks, return_weights):
    """Returns the `Blocks`: one if pairs are masked or returned."""
    if geometry is None:
        return None
    if masks.seen is None and not return_weights:
        num_heads, key_dim = queries.shape[2:]
        sizes = _block_sizes(geometry, num_heads, key_dim, values.shape[-1])
        return Blocks.of(geometry, sizes)
    if not geometry.is_static:
        name = "return_weights" if return_weights else "attention_mask"
        raise ValueError(
            f"`{name}` needs a `geometry` of static sizes: fix the size of the "
            "inputs. Received: sizes that are unknown until run time."
        )
    return Blocks.of(geometry, geometry.queries)


def _block_sizes(geometry, num_heads, key_dim, value_dim):
    """Returns how many queries per axis a block of local attention has."""
    best = math.inf, ()
    for sizes in itertools.product(*map(_candidates, geometry.axes)):
        blocks = Blocks.of(geometry, sizes)
        counts = math.prod(
            one.count if one.axis.is_static else -(-_UNKNOWN_SIZE // one.size)
            for one in blocks.axes
        )
        pairs = 2 * blocks.queries * num_heads
        windows = num_heads * (key_dim + value_dim)
        held = counts * blocks.context * (pairs + windows)
        best = min(best, (held, sizes))
    return best[1]


def _candidates(axis):
    """Returns the divisors of the scope's reach, and the whole axis."""
    reach = axis.taps - 1
    sizes = {n for n in range(1, reach + 1) if reach % n == 0} or {1}
    if not axis.is_static:
        return sorted(sizes)
    whole = {axis.queries}
    if axis.is_global:
        return sorted(whole)
    return sorted(whole | {n for n in sizes if n < axis.queries})
