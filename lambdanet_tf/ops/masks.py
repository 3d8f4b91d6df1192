"""What queries may see: masks of every shape that Keras takes, and NaN.

A product with zero hides a number, but neither NaN nor infinity, and in the
gradient of a projection inputs that are not finite meet upstream gradients of
zero. So projections and sums run over finite numbers only, and the outputs
that may see a position that is not finite become NaN afterwards.
"""

import dataclasses
import functools
import math

import tensorflow as tf

from lambdanet_tf.ops.devices import target_device
from lambdanet_tf.ops.geometry import ceil_div
from lambdanet_tf.ops.geometry import fitted
from lambdanet_tf.ops.geometry import is_compiled_by_xla
from lambdanet_tf.ops.geometry import size


@dataclasses.dataclass(frozen=True)
class Masks:
    """What the queries of a call may see. True is real, or permitted.

    Attributes:
        query: None or boolean `(batch, n)`: which queries are not padding.
        context: None or boolean `(batch, m)`: likewise of the context.
        shared: None or boolean `(batch, m)`: what all queries and heads are
            permitted to see.
        attention: boolean `(n, m)` or `(batch, n, m)`: what single queries are
            permitted to see. A tuple: of none, of one for all heads, or of
            one for each head.
        causal: bool. Whether a query sees only itself and what is before it.

    Examples:
        >>> Masks(context=tf.constant([[True, False]])).hides
        False
    """

    query: tf.Tensor | None = None
    context: tf.Tensor | None = None
    shared: tf.Tensor | None = None
    attention: tuple[tf.Tensor, ...] = ()
    causal: bool = False

    @classmethod
    def of_call(
        cls,
        inputs,
        context,
        mask=None,
        context_mask=None,
        attention_mask=None,
        num_heads=1,
        causal=False,
        axis=None,
    ):
        """Brings the masks of a call of a layer to their few forms.

        Args:
            inputs: `(batch, *spatial, channels)`.
            context: likewise; the same tensor where there is no other.
            mask: None, or of the inputs, see `padding_mask`.
            context_mask: None, or of the context, see `padding_mask`.
            attention_mask: None or 0 and 1. Its shape may be those of Keras'
                attention: `(batch, heads, n, m)`, without heads, or without
                both; and the same with all axes of the grids in the place of
                n and m. The batch and any axis may be 1.
            num_heads: int.
            causal: bool.
            axis: None, or the only one along which positions see each other:
                n and m count along it.

        Raises:
            ValueError: if a mask has another shape.
        """
        if context is inputs:
            both = padding_mask(inputs, mask=mask, context_mask=context_mask)
            padding = both, both
        else:
            padding = (
                padding_mask(inputs, mask=mask),
                padding_mask(context, context_mask=context_mask),
            )
        if attention_mask is None:
            return cls(*padding, causal=causal)
        grids = _sizes(inputs)[1:], _sizes(context)[1:]
        if axis is not None:
            grids = tuple(grid[axis - 1 : axis] for grid in grids)
        batch, pairs = size(inputs, 0), tf.cast(attention_mask, tf.bool)
        pairs = _as_pairs(pairs, batch, num_heads, *grids)
        if is_shared(pairs.shape):
            sizes = batch, math.prod(grids[1])
            shared = tf.reshape(pairs, [-1, sizes[1]])
            return cls(*padding, _broadcast(shared, sizes), causal=causal)
        heads = tf.unstack(pairs, axis=1) if len(pairs.shape) == 4 else [pairs]
        heads = [
            x[0] if len(x.shape) == 3 and x.shape[0] == 1 else x for x in heads
        ]
        return cls(*padding, None, tuple(heads), causal)

    @property
    def hides(self):
        """Whether some query may not see some position that is real."""
        return self.causal or self.shared is not None or bool(self.attention)

    @property
    def by_head(self):
        """Whether heads may see other positions than other heads."""
        return len(self.attention) > 1

    @property
    def permitted(self):
        """What any query may see: None or boolean `(batch, m)`."""
        masks = [x for x in (self.context, self.shared) if x is not None]
        return functools.reduce(tf.logical_and, masks) if masks else None

    def of_head(self, head):
        """The masks of a single head."""
        if not self.by_head:
            return self
        return dataclasses.replace(self, attention=(self.attention[head],))

    def pairs(self, n, m):
        """What single queries may see: None or boolean `([batch,] n, m)`.

        Args:
            n: int or scalar tensor. Number of queries.
            m: int or scalar tensor. Number of context positions.
        """
        (mask,) = self.attention or (None,)
        if not self.causal:
            return mask
        mask = tf.ones([n, m], tf.bool) if mask is None else mask
        return tf.linalg.band_part(mask, -1, 0)

    def finite_inputs(self, x, context):
        """Replaces what a projection must not read by zeros.

        That is NaN and infinity at padded queries, the whole of the padded
        context and, where a mask hides real positions, those that are not
        finite.

        Args:
            x: `(batch, n, channels)`.
            context: `(batch, m, channels)`; the same tensor where it is x.

        Returns:
            Both, and None or boolean `(batch, n)` and `(batch, m)`: which
            positions were not finite, for `propagate_nan`.
        """
        shared = context is x and self.context is None
        nonfinite = context_nonfinite = None
        x = finite_padding(x, self.query)
        if self.hides:
            x, nonfinite = split_nonfinite(x)
        if shared:
            return x, x, nonfinite, nonfinite
        context = masked_fill(context, self.context)
        if self.hides:
            context, context_nonfinite = split_nonfinite(context)
        return x, context, nonfinite, context_nonfinite


def padding_mask(x, **masks):
    """Returns `(batch, positions)`, False where a mask says padding, or None.

    Counts the mask that Keras propagates with `x`.

    Args:
        x: `(batch, *spatial, channels)`.
        **masks: None, or by the name that errors give it, `(batch, positions)`
            or `(batch, *spatial)`, or for all positions along the last spatial
            axes without these. The batch and any axis may be 1.

    Returns:
        Boolean `(batch, positions)`, or None.

    Raises:
        ValueError: if a mask has another shape.

    Examples:
        >>> x = tf.zeros([1, 3, 8])
        >>> padding_mask(x, mask=[[True, True, False]]).numpy().tolist()
        [[True, True, False]]
    """
    named = [("mask", getattr(x, "_keras_mask", None)), *masks.items()]
    masks = [
        _of_positions(name, mask, x) for name, mask in named if mask is not None
    ]
    return functools.reduce(tf.logical_and, masks) if masks else None


def is_shared(shape):
    """Returns whether a mask of a shape is one for all queries and heads.

    Args:
        shape: of a mask, as Keras' attention takes it.

    Returns:
        A bool.

    Examples:
        >>> is_shared([2, 1, 1, 5]), is_shared([2, 5, 5])
        (True, False)
    """
    rank = tf.TensorShape(shape).rank or 0
    return 2 <= rank <= 4 and shape[-2] == 1 and (rank < 4 or shape[1] == 1)


def masked_fill(x, mask, value=0.0):
    """Returns x with a number where a mask is False.

    Args:
        x: tensor.
        mask: None, or boolean with the first axes of x; True is real, or
            permitted.
        value: float.
    """
    if mask is None:
        return x
    mask = _with_rank(mask, len(x.shape))
    return tf.where(mask, x, tf.cast(value, x.dtype))


def finite_padding(x, mask):
    """Returns x with zeros for NaN and infinity where a mask is False.

    Args:
        x: tensor.
        mask: None, or boolean with the first axes of x.

    Returns:
        A tensor as x.

    Examples:
        >>> x = tf.constant([[1.0, float("nan")]])
        >>> finite_padding(x, tf.constant([[True, False]])).numpy().tolist()
        [[1.0, 0.0]]
    """
    if mask is None:
        return x
    real = _with_rank(mask, len(x.shape))
    return masked_fill(x, real | tf.math.is_finite(x))


def split_nonfinite(x, depths=None):
    """Returns x with zeros where it is not finite, and where that is.

    Args:
        x: `(batch, n, *depths)`.
        depths: int. How many axes are depths; None for all but two.

    Returns:
        `(batch, n, *depths)`, and boolean `(batch, n)`.
    """
    axes = list(range(-(depths or len(x.shape) - 2), 0))

    def split():
        finite = tf.reduce_all(tf.math.is_finite(x), axis=axes)
        return masked_fill(x, finite), tf.logical_not(finite)

    def whole():
        return x, tf.zeros(tf.shape(x)[: axes[0]], tf.bool)

    # Finite sums are of finite numbers.
    total = tf.reduce_sum(x)
    return _where_needed(~tf.math.is_finite(total), split, whole)


def propagate_nan(x, nonfinite):
    """Makes x NaN where a mask of its first axes is True; None: nowhere.

    Args:
        x: tensor.
        nonfinite: None, or boolean with the first axes of x.

    Returns:
        A tensor as x.

    Examples:
        >>> propagate_nan(tf.ones([1, 2]), tf.constant([[False, True]])).numpy()
        array([[ 1., nan]], dtype=float32)
    """
    if nonfinite is None:
        return x

    def fill():
        return masked_fill(x, tf.logical_not(nonfinite), float("nan"))

    return _where_needed(tf.reduce_any(nonfinite), fill, lambda: x)


def _where_needed(condition, function, otherwise):
    """What is needed rarely: on a CPU a branch costs less than a pass.

    Elsewhere a pass is fused with others, and a branch waits for its condition.
    """
    if target_device() != "cpu" or is_compiled_by_xla():
        return function()
    return tf.cond(condition, function, otherwise)


def seen_through(pairs, nonfinite):
    """Which queries see a position that is not finite.

    Args:
        pairs: boolean `(n, m)` or `(batch, ..., n, m)`; True = may interact.
        nonfinite: boolean `(batch, ..., m)`.

    Returns:
        Boolean `(batch, ..., n)`.
    """
    pairs = pairs[None] if len(pairs.shape) == 2 else pairs
    column = tf.expand_dims(tf.cast(nonfinite, tf.float32), -1)
    counts = tf.matmul(tf.cast(pairs, tf.float32), column)  # [b, ..., n, 1]
    return counts[..., 0] > 0


def seen_within_scope(axis, nonfinite):
    """As `seen_through`, for queries that see the scope of one `Axis`."""
    # A multiple of the dilation, which then is an axis of its own.
    length = axis.context + axis.padding + axis.padding_after
    fill = ceil_div(length, axis.dilation) * axis.dilation - length
    pads = [(0, 0), (axis.padding, axis.padding_after + fill)]
    flags = fitted(tf.cast(nonfinite, tf.int32), pads)
    batch = tf.shape(flags)[0]
    phases = tf.reshape(flags, [batch, -1, axis.dilation])
    sums = tf.pad(tf.cumsum(phases, axis=1), [[0, 0], [1, 0], [0, 0]])
    seen = sums[:, axis.taps :] - sums[:, : -axis.taps]
    seen = tf.reshape(seen, [batch, -1]) > 0
    last = (axis.queries - 1) * axis.stride + 1
    return seen[:, : last : axis.stride]


def _with_rank(mask, rank):
    """A mask with more axes behind its own, of size 1."""
    for _ in range(rank - len(mask.shape)):
        mask = tf.expand_dims(mask, -1)
    return mask


def _of_positions(name, mask, x):
    """A mask as boolean `(batch, positions)`."""
    mask = tf.cast(mask, tf.bool)
    sizes = _sizes(x)
    flat = sizes[0], math.prod(sizes[1:])
    rank = mask.shape.rank
    if rank is None:  # of a generator; its length tells
        return tf.reshape(mask, flat)
    if _fits(mask, flat):
        return _broadcast(mask, flat)
    if rank < 2 or not _fits(mask, sizes[:rank]):
        raise ValueError(
            f"`{name}` must have the shape (batch, context positions) or "
            f"(batch, *spatial); here {_static(flat)} or {_static(sizes)}. "
            f"Received: {tuple(mask.shape)}."
        )
    mask = _with_rank(mask, len(sizes))
    return tf.reshape(_broadcast(mask, sizes), flat)


def _as_pairs(mask, batch, num_heads, queries, context):
    """An attention mask as `([batch or 1, [heads or 1,]] n, m)`.

    One for all queries and heads has an n of 1. Queries and context are the
    sizes of their grids.
    """
    n, m = math.prod(queries), math.prod(context)
    if mask.shape.rank is None:  # of a generator; its length tells
        return _broadcast(tf.reshape(mask, [-1, n, m]), (batch, n, m))
    leading = (), (batch,), (batch, num_heads)
    for rows, columns in ((n,), (m,)), (queries, context):
        for axes in leading:
            if not _fits(mask, (*axes, *rows, *columns)):
                continue
            shape = mask.shape.as_list()
            kept = [
                1 if have == 1 else wanted
                for have, wanted in zip(shape, axes, strict=False)
            ]
            alike = shape[len(axes) : -len(columns)] + kept[1:]
            if set(alike) == {1}:
                n, rows = 1, [1] * len(rows)
            mask = _broadcast(mask, [*kept, *rows, *columns])
            return tf.reshape(mask, [*kept, n, m])
    forms = ", ".join(str(_static((*axes, n, m))) for axes in leading)
    raise ValueError(
        "`attention_mask` must have the shape (n, m), (batch, n, m) or (batch, "
        "heads, n, m): query by context positions; 1 stands for all of an "
        f"axis. Here {forms}. Received: {tuple(mask.shape)}. (Padding of a "
        "batch is `context_mask`.)"
    )


def _sizes(x):
    """All sizes but that of the channels, int or scalar tensors."""
    return tuple(size(x, axis) for axis in range(len(x.shape) - 1))


def _static(sizes):
    return tuple(size if isinstance(size, int) else None for size in sizes)


def _fits(mask, sizes):
    """Whether a mask may be broadcast to these sizes."""
    return mask.shape.rank == len(sizes) and all(
        have in (None, 1) or want is None or have == want
        for have, want in zip(mask.shape, _static(sizes), strict=True)
    )


def _broadcast(mask, sizes):
    """A mask of given sizes, int or scalar tensors."""
    is_known = tuple(mask.shape) == _static(sizes) and None not in mask.shape
    return mask if is_known else tf.broadcast_to(mask, sizes)
