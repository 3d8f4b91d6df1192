"""Masks of every shape that Keras' layers take, brought to few forms."""

import functools
import math

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.layers.grids import grid_of
from lambdanet_tf.layers.grids import num_positions


def padding_mask(x, **masks):
    """`(batch, positions)`, False where any mask says padding, or None.

    Counts the mask that Keras propagates with `x`.

    Args:
        x: `(batch, *spatial, channels)`.
        **masks: None, or by the name that errors give it, `(batch, positions)`
            or `(batch, *spatial)`, or for all positions along the last spatial
            axes without these. The batch and any axis may be 1.

    Raises:
        ValueError: if a mask has another shape.
    """
    named = [("mask", getattr(x, "_keras_mask", None)), *masks.items()]
    masks = [
        _of_positions(name, mask, x) for name, mask in named if mask is not None
    ]
    return functools.reduce(tf.logical_and, masks) if masks else None


def _of_positions(name, mask, x):
    """A mask as boolean `(batch, positions)`."""
    mask = tf.cast(mask, tf.bool)
    batch, *grid = x.shape[:-1]
    sizes = ops.size(x, 0), *grid_of(x)
    if mask.shape.rank is None:  # of a generator; its length tells
        return tf.reshape(mask, [sizes[0], math.prod(sizes[1:])])
    if _fits(mask.shape, (batch, num_positions(x))):
        return _broadcast(mask, (sizes[0], math.prod(sizes[1:])))
    rank = mask.shape.rank
    if not 2 <= rank <= 1 + len(grid) or not _fits(
        mask.shape, (batch, *grid[: rank - 1])
    ):
        raise ValueError(
            f"`{name}` must have the shape (batch, context positions) or "
            f"(batch, *spatial); here {(batch, num_positions(x))} or "
            f"{(batch, *grid)}. Received: {tuple(mask.shape)}."
        )
    for axis in range(rank, 1 + len(grid)):
        mask = tf.expand_dims(mask, axis)
    return tf.reshape(_broadcast(mask, sizes), [sizes[0], math.prod(sizes[1:])])


def is_alike(shape):
    """Whether an attention mask of a shape is one for all queries and heads."""
    rank = tf.TensorShape(shape).rank or 0
    return 2 <= rank <= 4 and shape[-2] == 1 and (rank < 4 or shape[1] == 1)


def pairs_by_head(mask, inputs, num_heads, queries, context):
    """Brings an attention mask to one of few forms.

    It may have the shapes of Keras' attention: `(batch, heads, n, m)`, without
    heads, or without both; and the same with all axes of the grids in the
    place of n and m. The batch and any axis may be 1.

    Args:
        mask: what was given, or None.
        inputs: `(batch, ...)`.
        num_heads: int.
        queries: sizes of the grid of the queries, int or scalar tensors.
        context: sizes of the grid of their context.

    Returns:
        A list of boolean masks `(n, m)` or `(batch, n, m)`: one for all heads
        or one for each, none where every pair is permitted. And None, or
        boolean `(batch, m)`: a mask that all queries and heads have in common.

    Raises:
        ValueError: if the mask has another shape.
    """
    if mask is None:
        return [], None
    mask = _as_pairs(
        tf.cast(mask, tf.bool), inputs.shape[0], num_heads, queries, context
    )  # [[[b,] h,] n, m], any of them 1
    sizes = ops.size(inputs, 0), math.prod(queries), math.prod(context)
    if is_alike(mask.shape):
        mask = tf.reshape(mask, [-1, ops.size(mask, -1)])
        return [], _broadcast(mask, (sizes[0], sizes[2]))
    heads = tf.unstack(mask, axis=1) if len(mask.shape) == 4 else [mask]
    heads = [
        x[0] if len(x.shape) == 3 and x.shape[0] == 1 else x for x in heads
    ]
    return [_broadcast(x, sizes[3 - len(x.shape) :]) for x in heads], None


def _as_pairs(mask, batch, num_heads, queries, context):
    """A mask with one axis of queries and one of their context."""
    static = [
        tuple(size if isinstance(size, int) else None for size in grid)
        for grid in (queries, context)
    ]
    n, m = (tf.TensorShape(grid).num_elements() for grid in static)
    if mask.shape.rank is None:  # of a generator; its length tells
        return tf.reshape(mask, [-1, math.prod(queries), math.prod(context)])
    leading = [(), (batch,), (batch, num_heads)]
    for axes in leading:
        if _fits(mask.shape, (*axes, n, m)):
            return mask
    for axes in leading:
        if _fits(mask.shape, (*axes, *static[0], *static[1])):
            kept = [ops.size(mask, axis) for axis in range(len(axes))]
            alike = set(mask.shape[len(axes) : -len(context)]) == {1}
            if alike:
                queries = (1,) * len(queries)
            mask = _broadcast(mask, (*kept, *queries, *context))
            return tf.reshape(
                mask, [*kept, math.prod(queries), math.prod(context)]
            )
    raise ValueError(
        "`attention_mask` must have the shape (n, m), (batch, n, m) or (batch, "
        "heads, n, m): query by context positions; 1 stands for all of an "
        f"axis. Here {(n, m)}, {(batch, n, m)} or {(batch, num_heads, n, m)}. "
        f"Received: {tuple(mask.shape)}. (Padding of a batch is "
        "`context_mask`.)"
    )


def _fits(shape, wanted):
    """Whether a static shape may be broadcast to the wanted one."""
    return shape.rank == len(wanted) and all(
        have in (None, 1) or want is None or have == want
        for have, want in zip(shape, wanted, strict=True)
    )


def _broadcast(mask, sizes):
    """A mask of given sizes, int or scalar tensors."""
    known = all(
        isinstance(size, int) and have == size
        for have, size in zip(mask.shape, sizes, strict=True)
    )
    return mask if known else tf.broadcast_to(mask, sizes)
