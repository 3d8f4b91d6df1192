"""Masks of a call, in the one form that everything behind it takes.

The forms that a caller may give are read here alone. Padding is filled with
zeros before it is projected, so that nothing there reaches a sum.
"""

import dataclasses
import functools
import math

import tensorflow as tf

from lambdanet_tf.ops.geometry import size


@dataclasses.dataclass(frozen=True)
class Masks:
    """What the queries of a call may see. True is real, or permitted.

    Attributes:
        query: None or boolean `(batch, n)`: which queries are not padding.
        context: None or boolean `(batch, m)`: which context positions are not.
        permitted: None or boolean `(batch or 1, m)`: what all queries may see,
            without padding.
        seen: None or boolean `(batch or 1, n, m)`: what each query may see,
            without padding, if queries differ; `permitted` is None then.
        causal: bool. Whether a query sees only itself and what is before it.
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
        """Makes the masks of a layer's call, of all forms that it takes."""
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

        A mask `(n, m)` or `(batch or 1, n or 1, m)` is bool, or 0 and 1; with
        lines, one of an example counts for so many of the batch.
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
        """Returns inputs and context with zeros for what is padding.

        At padded queries only NaN and infinity are replaced. The context
        `(batch, m, channels)` is the same tensor where it is x, `(batch, n,
        channels)`.
        """
        is_shared = context is x and self.context is None
        if self.query is not None:
            real = tf.expand_dims(self.query, -1)
            x = masked_fill(x, real | tf.math.is_finite(x))
        return x, x if is_shared else masked_fill(context, self.context)


def differs_by_query(attention_mask):
    """Returns whether a mask of pairs, in any form, is of single queries."""
    return tuple(attention_mask.shape[-2:-1]) != (1,)


def check_attention_mask(mask, batch, n, m):
    """Raises a ValueError unless a mask is `(n, m)` or `(batch, n or 1, m)`."""
    shape = tf.TensorShape(mask.shape)
    allowed = [(n, m), (1, m)]
    allowed += [(b, *rest) for b in (batch, 1) for rest in allowed]
    if shape.rank is None or not any(map(shape.is_compatible_with, allowed)):
        raise ValueError(
            "`attention_mask` must have the shape (n, m), (batch, n, m) or "
            f"(batch, 1, m): query by context positions; here {(n, m)}, "
            f"{(batch, n, m)} or {(batch, 1, m)}. Received: {shape}. (Padding "
            "of a batch is `context_mask`.)"
        )


def padding_mask(x, **masks):
    """Returns boolean `(batch, positions)`, False = padding, or None.

    Masks are None, `(batch, positions)` or `(batch, *spatial)`, each under the
    name that errors show.
    """
    flat = [
        _flat(name, tf.cast(mask, tf.bool), x)
        for name, mask in masks.items()
        if mask is not None
    ]
    return functools.reduce(tf.logical_and, flat) if flat else None


def _flat(name, mask, x):
    """Returns a mask of positions as `(batch, positions)`."""
    batch, *grid = x.shape[:-1]
    shapes = [batch, *grid], [batch, x.shape[1:-1].num_elements()]
    allowed = [*shapes, *([1, *shape[1:]] for shape in shapes)]
    if not any(map(mask.shape.is_compatible_with, allowed)):
        raise ValueError(
            f"`{name}` must have the shape (batch, positions) or (batch, "
            f"*spatial); here {tuple(shapes[1])} or {tuple(shapes[0])}. "
            f"Received: {mask.shape}."
        )
    positions = math.prod(size(x, axis + 1) for axis in range(len(grid)))
    is_one = mask.shape[0] == 1 and batch != 1  # for all examples
    mask = tf.reshape(mask, [-1, positions])
    return tf.repeat(mask, tf.shape(x)[0], axis=0) if is_one else mask


def masked_fill(x, mask, value=0.0):
    """Returns x with a number where a mask is False.

    The mask is None, or boolean with the first axes of x, any of them 1.
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
