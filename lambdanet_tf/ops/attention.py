"""Softmax attention with relative positions, in blocks of queries.

    S[b, h, n, m] = Q[b, n, h] . (K[b, m, h] + E[n, m])
    Y[b, n, h]    = sum over m of  softmax over m (S)[b, h, n, m] V[b, m, h]

E is the embedding of a relative position, shared by the heads: of all axes
jointly, or the sum of one embedding per axis. Letters added to those of the
package: x blocks of a map, t queries of a block, s its context.
"""

import dataclasses
import functools
import itertools
import math

import tensorflow as tf

from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.geometry import Axis
from lambdanet_tf.ops.geometry import Geometry
from lambdanet_tf.ops.geometry import ceil_div
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.keys import MASKED_LOGIT
from lambdanet_tf.ops.masks import Masks
from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.masks import propagate_nan
from lambdanet_tf.ops.masks import seen_through
from lambdanet_tf.ops.masks import split_nonfinite
from lambdanet_tf.ops.pairs import relative_index
from lambdanet_tf.ops.position_scores import cut
from lambdanet_tf.ops.position_scores import past_scores
from lambdanet_tf.ops.position_scores import position_scores
from lambdanet_tf.ops.position_scores import wide
from lambdanet_tf.ops.precision import accumulation_dtype
from lambdanet_tf.ops.precision import factor_dtype

# Positions per axis that sizes known at run time only are taken for.
_UNKNOWN_SIZE = 64
# Positions whose shares float16 still tells apart: 2^-14 is its smallest
# normal number.
_FLOAT16_CONTEXT = 2**14
# Bytes of float32 up to which the scores of all queries are formed at once,
# and those of a part where there are more.
_MAX_SCORES, _SCORES_OF_PART = 2**28, 2**25
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
        queries: `(batch, n, heads, key_dim)`, already scaled; query positions
            flattened row-major.
        keys: `(batch, m, heads, key_dim)`, or None for scores of positions
            alone.
        values: `(batch, m, heads, value_dim)`.
        embeddings: None for scores of content alone. With a geometry the
            table of relative positions, `(*entries, key_dim)`, or a tuple of
            tables `(entries, key_dim)`, one per axis, whose embeddings add up.
            Without one the table of a sequence whose last positions the
            queries are; masks then hide what comes after each.
        geometry: a `Geometry`, which says what a query may see; or None: all
            context positions.
        masks: `Masks`. With a geometry, `causal` is the geometry's, and masks
            of single queries need static sizes.
        return_weights: bool. Whether the weights of all pairs are formed at
            once, and returned, too. That needs static sizes, likewise.

    Returns:
        `(batch, n, heads, value_dim)`; zero where nothing is permitted. NaN
        and infinity reach the queries that may see them and no others. The
        softmax runs in float32 or wider. With `return_weights` also what the
        values are multiplied by, `(batch, heads, n, m)`.

    Raises:
        ValueError: if a mask, or the weights, need static sizes that
            `geometry` does not have.

    Cost: 2 b x t h s (2 k + v) operations with x blocks of t queries and a
    context of s positions each; largest intermediate b x h t s. A global
    geometry is one block: n m pairs. Where they are many, one part of the
    queries after the other; the backward pass then forms their scores again.
    With a local scope it is linear in n.

    Examples:
        >>> queries = keys = tf.random.normal([2, 9, 4, 16])
        >>> relative_attention(queries, keys, tf.ones([2, 9, 4, 8])).shape
        TensorShape([2, 9, 4, 8])
    """
    if geometry is None and masks.causal:
        past = tf.ones([size(queries, 1), size(values, 1)], tf.bool)
        past = tf.linalg.band_part(past, -1, 0)  # [n, m]
        pairs = tuple(pairs & past for pairs in masks.attention) or (past,)
        masks = dataclasses.replace(masks, attention=pairs)
    if isinstance(embeddings, tuple) and len(embeddings) == 1:
        (embeddings,) = embeddings
    context = {"values": values, "keys": keys, "embeddings": embeddings}
    context = {name: x for name, x in context.items() if x is not None}
    whole = {"geometry": geometry, "masks": masks}
    if return_weights:
        return _attention(queries, **context, **whole, return_weights=True)
    length = None
    if geometry is not None or embeddings is None:
        length = _length_of_part(queries, values, geometry, masks)
    if length is None:
        return _attention(queries, **context, **whole)
    parts = list(_parts(geometry, masks, queries.shape[1], length))
    return _attention_in_parts(queries, context, parts)


def _length_of_part(queries, values, geometry, masks):
    """Positions of the first axis that have their scores at a time.

    None for all: where they are few, or their number is known at run time only.
    """
    batch, rows, num_heads, _ = queries.shape
    is_static = geometry is None or geometry.is_static
    if None in (rows, values.shape[1]) or not is_static:
        return None
    pairs = rows * values.shape[1]
    if geometry is not None:
        blocks = _blocks(geometry, queries, values, masks)
        rows = geometry.queries[0]
        pairs = math.prod(blocks.counts) * blocks.queries * blocks.context
    scores = 4 * (batch or 1) * num_heads * pairs
    if scores <= _MAX_SCORES:
        return None
    return ceil_div(rows, min(ceil_div(scores, _SCORES_OF_PART), rows))


def _parts(geometry, masks, n, length):
    """Queries, as a slice, geometry and masks of one part after the other."""
    axis = Axis(n, n, 1) if geometry is None else geometry.axes[0]
    row = n // axis.queries
    for first, own in cut(axis, length):
        queries = slice(first * row, (first + own.queries) * row)
        pairs = tuple(pairs[..., queries, :] for pairs in masks.attention)
        part = geometry and Geometry((own, *geometry.axes[1:]))
        yield queries, part, dataclasses.replace(masks, attention=pairs)


def _attention_in_parts(queries, context, parts):
    """Attends for one of `_parts` of the queries after the other.

    Scores are not kept: the backward pass forms those of a part again. The
    context is tensors by the names that `_attention` gives them.
    """

    def of_part(part, queries, context_tensors):
        _, geometry, masks = part
        own = tf.nest.pack_sequence_as(context, context_tensors)
        return _attention(queries, **own, geometry=geometry, masks=masks)

    @tf.custom_gradient
    def attend(queries, *context_tensors):
        fixed = [tf.stop_gradient(x) for x in context_tensors]
        outputs = []
        for part in parts:
            own = tf.stop_gradient(queries[:, part[0]])
            (own,) = _after(outputs[-1:], own)
            outputs += [of_part(part, own, fixed)]

        def gradient(upstream):
            d_queries = []
            d_context = [tf.zeros_like(x) for x in context_tensors]
            for part in parts:
                own, up = _after(
                    [upstream, *d_queries[-1:], *d_context],
                    queries[:, part[0]],
                    upstream[:, part[0]],
                )
                sources = [own, *context_tensors]
                with tf.GradientTape() as tape:
                    tape.watch(sources)
                    again = of_part(part, own, context_tensors)
                found = tape.gradient(again, sources, up)
                d_queries += found[:1]
                pairs = zip(d_context, found[1:], strict=True)
                d_context = [total + d for total, d in pairs]
            return tf.concat(d_queries, axis=1), *d_context

        return tf.concat(outputs, axis=1), gradient

    return attend(queries, *tf.nest.flatten(context))


def _after(before, *tensors):
    """The tensors, which nothing can form while one of `before` is not there.

    Neither an executor, which begins with all that it can, nor a compiler,
    which forms the same only once.
    """
    first = [tf.cast(tf.reshape(x, [-1])[:1], tf.float32) for x in before]
    first = tf.concat([[0.0], *first], axis=0)
    never = tf.reduce_any(tf.math.is_nan(first) & tf.math.is_inf(first))
    return [x + tf.cast(never, x.dtype) for x in tensors]


def _attention(
    queries,
    values,
    keys=None,
    embeddings=None,
    *,
    geometry,
    masks,
    return_weights=False,
):
    """As `relative_attention`, for all queries at once."""
    blocks = None
    if geometry is not None:
        blocks = _blocks(geometry, queries, values, masks, return_weights)
    permitted = _permitted(blocks, masks)
    dtype = values.dtype
    inner = _factor_dtype(dtype, blocks, values)
    queries, values = tf.cast(queries, inner), tf.cast(values, inner)
    keys = None if keys is None else tf.cast(keys, inner)
    if permitted is not None:
        values, nonfinite = split_nonfinite(values)
        if keys is not None:
            keys, nonfinite_keys = split_nonfinite(keys)
            nonfinite |= nonfinite_keys
    queries = _heads_first(_of_queries(queries, blocks))  # [b, x, h, t, k]
    values = _heads_first(_of_context(values, blocks))  # [b, x, h, s, v]
    scores = []
    if keys is not None:
        keys = _heads_first(_of_context(keys, blocks))  # [b, x, h, s, k]
        scores += [wide(tf.matmul(queries, keys, transpose_b=True))]
    if embeddings is not None and blocks is None:
        scores += [past_scores(queries, embeddings, size(values, 3))]
    elif embeddings is not None:
        scores += [position_scores(queries, embeddings, blocks)]
    scores = tf.add_n(scores)  # [b, x, h, t, s]
    if permitted is not None:
        scores = masked_fill(scores, permitted, MASKED_LOGIT)
    weights = tf.cast(tf.nn.softmax(scores), inner)
    outputs = tf.matmul(weights, values)  # [b, x, h, t, v]
    if permitted is not None:
        some = tf.reduce_any(permitted, axis=-1, keepdims=True)
        outputs = masked_fill(outputs, some)
        nonfinite = _of_context(tf.cast(nonfinite, tf.float32), blocks)
        seen = seen_through(permitted, tf.expand_dims(nonfinite, 2))
        outputs = propagate_nan(outputs, seen)  # [b, x, h, t, v]
    outputs = tf.cast(_heads_first(outputs), dtype)  # [b, x, t, h, v]
    outputs = outputs[:, 0] if blocks is None else blocks.joined(outputs)
    if not return_weights:
        return outputs
    weights = masked_fill(weights, permitted)  # uniform, where none is
    return outputs, tf.cast(weights[:, 0], dtype)


def _factor_dtype(dtype, blocks, values):
    """As `factor_dtype`; float16 has no share of one among many positions."""
    context = values.shape[1] if blocks is None else blocks.context
    inner = factor_dtype(dtype)
    if inner == tf.float16 and (context is None or context > _FLOAT16_CONTEXT):
        return accumulation_dtype(dtype)
    return inner


def _permitted(blocks, masks):
    """Which pairs count: boolean `(b, x, h, t, s)`, any of them 1; or None.

    Formed with four axes, which is what TFLite can broadcast: masks of single
    queries, `(b, h, n, m)`, are of one block.
    """
    parts = []  # each (b, x, t, s), any of them 1
    if blocks is not None:
        if not blocks.inner.is_global:
            index = relative_index(blocks.inner)
            parts += [index[None, None] >= 0]
        if not all(axis.is_single for axis in blocks.axes):
            context = [blocked.axis.context for blocked in blocks.axes]
            on_map = blocks.context_blocks(tf.ones([1, *context], tf.int32))
            parts += [tf.expand_dims(on_map, 2) > 0]
    if masks.attention:
        pairs = [x if len(x.shape) == 3 else x[None] for x in masks.attention]
        parts += [tf.stack(pairs, axis=1)]
    if masks.permitted is not None:
        real = _of_context(tf.cast(masks.permitted, tf.int32), blocks)
        parts += [tf.expand_dims(real, 2) > 0]
    if not parts:
        return None
    permitted = functools.reduce(tf.logical_and, parts)
    return tf.expand_dims(permitted, 1 if masks.attention else 2)


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


def _blocks(geometry, queries, values, masks, return_weights=False):
    """The blocks of a call; one for all where pairs are masked, or returned."""
    if not (masks.attention or return_weights):
        num_heads, key_dim = queries.shape[2:]
        sizes = block_sizes(geometry, num_heads, key_dim, values.shape[-1])
        return Blocks.of(geometry, sizes)
    if not geometry.is_static:
        name = "return_weights" if return_weights else "attention_mask"
        raise ValueError(
            f"`{name}` needs a `geometry` of static sizes. Received: sizes "
            "that are known at run time only."
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
            one.count if one.axis.is_static else -(-_UNKNOWN_SIZE // one.size)
            for one in blocks.axes
        )
        pairs = 2 * blocks.queries * num_heads
        windows = num_heads * (key_dim + value_dim)
        held = counts * blocks.context * (pairs + windows)
        if held < best[0]:
            best = held, sizes
    return best[1]


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
