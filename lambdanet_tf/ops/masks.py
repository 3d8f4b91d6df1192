"""Masks of a call, converted to the one form that the equations take.

Callers may pass masks in several forms, which only this file reads. Padding is
set to zero before the projections, so that no value there reaches a sum.
"""

import dataclasses
import functools
import math

import tensorflow as tf

from lambdanet_tf.ops.geometry import size


@dataclasses.dataclass(frozen=True)
class Masks:
    """What the queries of a call may see. True means real or permitted.

    Attributes:
        query: None or boolean `(batch, n)`: which queries are not padding.
        context: None or boolean `(batch, m)`: which context positions are not.
        permitted: None or boolean `(batch or 1, m)`: the positions that every
            query may see, without padding.
        seen: None or boolean `(batch or 1, n, m)`: the positions that each
            query may see, without padding. Set only if queries differ; then
            `permitted` is None.
        causal: bool. Whether a query sees only itself and earlier positions.
    """

    query: tf.Tensor | None = None
    context: tf.Tensor | None = None
    permitted: tf.Tensor | None = None
    seen: tf.Tensor | None = None
    causal: bool = False

    @classmethod
    def of_call(
        cls,
        inputs,
        context,
        mask=None,
        context_mask=None,
        attention_mask=None,
        causal=False,
    ):
        """Makes the masks of a layer's call from all that the caller passed."""
        if context is inputs:
            given = {"mask": mask, "context_mask": context_mask}
            query = real = padding_mask(inputs, **given)
        else:
            query = padding_mask(inputs, mask=mask)
            real = padding_mask(context, context_mask=context_mask)
        if attention_mask is not None:
            sizes = (x.shape[1:-1].num_elements() for x in (inputs, context))
            check_attention_mask(attention_mask, inputs.shape[0], *sizes)
        return cls.of(query, real, attention_mask, causal)

    @classmethod
    def of(cls, query=None, context=None, pairs=None, causal=False, lines=None):
        """Combines padding `(batch, n)` and `(batch, m)` with a mask of pairs.

        A mask `(n, m)` or `(batch or 1, n or 1, m)` is bool, or 0 and 1. If
        `lines` is given, each example is that many rows of the batch.
        """
        if pairs is None:
            return cls(query, context, permitted=context, causal=causal)
        pairs = tf.cast(pairs, tf.bool)
        pairs = pairs[None] if len(pairs.shape) == 2 else pairs
        if lines is not None and pairs.shape[0] != 1:
            pairs = tf.repeat(pairs, lines, axis=0)
        if not differs_by_query(pairs):
            pairs = tf.squeeze(pairs, 1)
            permitted = pairs if context is None else pairs & context
            return cls(query, context, permitted, causal=causal)
        seen = tf.linalg.band_part(pairs, -1, 0) if causal else pairs
        if context is not None:
            seen &= tf.expand_dims(context, 1)
        return cls(query, context, seen=seen, causal=causal)

    def filled(self, x, context):
        """Returns inputs and context with zeros at padded positions.

        At padded queries, only NaN and infinity are replaced. If the context
        is x, the two results are one tensor, too.
        """
        is_shared = context is x and self.context is None
        if self.query is not None:
            real = tf.expand_dims(self.query, -1)
            x = masked_fill(x, real | tf.math.is_finite(x))
        return x, x if is_shared else masked_fill(context, self.context)


def differs_by_query(attention_mask):
    """Returns whether a mask of pairs can differ between queries."""
    return tuple(attention_mask.shape[-2:-1]) != (1,)


def check_attention_mask(mask, batch, n, m):
    """Raises a ValueError unless a mask is `(n, m)` or `(batch, n or 1, m)`."""
    shape = tf.TensorShape(mask.shape)
    allowed = [(n, m), (1, m)]
    allowed += [(b, *rest) for b in (batch, 1) for rest in allowed]
    if shape.rank is None or not any(map(shape.is_compatible_with, allowed)):
        raise ValueError(
            "`attention_mask` must have the shape (n, m), (batch, n, m) or "
            f"(batch, 1, m) for n queries and m context positions: here "
            f"{(n, m)}, {(batch, n, m)} or {(batch, 1, m)}. Received: {shape}. "
            "To mask the padding of a batch, use `context_mask`."
        )


def padding_mask(x, **masks):
    """Combines masks to boolean `(batch or 1, positions)`, or None.

    Each mask is None, `(batch, positions)` or `(batch, *spatial)`; False means
    padding. Errors show the name of the keyword.
    """
    flat = [
        _flat(name, tf.cast(mask, tf.bool), x)
        for name, mask in masks.items()
        if mask is not None
    ]
    return functools.reduce(tf.logical_and, flat) if flat else None


def _flat(name, mask, x):
    """Returns a mask of positions as `(batch or 1, positions)`."""
    batch, *grid = x.shape[:-1]
    shapes = [batch, *grid], [batch, x.shape[1:-1].num_elements()]
    allowed = [*shapes, *([1, *shape[1:]] for shape in shapes)]
    if not any(map(mask.shape.is_compatible_with, allowed)):
        here = dict.fromkeys(f"{tuple(shape)}" for shape in shapes[::-1])
        raise ValueError(
            f"`{name}` must have the shape (batch, positions) or (batch, "
            f"*spatial): here {' or '.join(here)}. Received: {mask.shape}."
        )
    positions = math.prod(size(x, axis + 1) for axis in range(len(grid)))
    return tf.reshape(mask, [-1, positions])


def masked_fill(x, mask, value=0.0):
    """Returns x, with a number where the mask is False.

    The mask is None, or boolean and broadcasts to the first axes of x.
    """
    if mask is None:
        return x
    mask = with_rank(mask, len(x.shape))
    return tf.where(mask, x, tf.cast(value, x.dtype))


def with_rank(mask, rank):
    """Appends axes of size 1 to a mask."""
    for _ in range(rank - len(mask.shape)):
        mask = tf.expand_dims(mask, -1)
    return mask
