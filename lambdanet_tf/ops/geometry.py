"""Which context positions a query sees, and by which entry of the table.

An axis works as in a convolution: query `i` uses the table's entry `t` for
context position

    i * stride + t * dilation - padding

and positions outside the context contribute nothing.
"""

import dataclasses
import math

import tensorflow as tf

from lambdanet_tf.environment import is_compiled_by_xla


@dataclasses.dataclass(frozen=True)
class Axis:
    """One spatial axis: a query grid laid over a context grid.

    Attributes:
        context: int, or scalar tensor if unknown. Number of context positions.
        queries: int or scalar tensor. Number of query positions.
        taps: int. Number of table entries in use, from `first` on.
        first: int. The first table entry in use.
        stride: int. Context positions between neighboring queries.
        dilation: int. Context positions between neighboring entries.
        padding: int or scalar tensor. How far the entry `first` of the first
            query lies before context position 0; may be negative.
    """

    context: int | tf.Tensor
    queries: int | tf.Tensor
    taps: int
    first: int = 0
    stride: int = 1
    dilation: int = 1
    padding: int | tf.Tensor = 0

    @property
    def is_static(self):
        numbers = self.context, self.queries, self.padding
        return all(isinstance(number, int) for number in numbers)

    @property
    def span(self):
        """Context positions between the first and the last entry, inclusive."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def circle(self):
        """The shortest length of a transform in which nothing wraps around."""
        last_offset = self.span - 1 - self.padding
        last_query = (self.queries - 1) * self.stride
        return 1 + max(
            self.context - 1 + self.padding, last_query + last_offset, 0
        )

    @property
    def is_causal(self):
        """Whether no query `i` sees beyond context position `i * stride`."""
        return isinstance(self.padding, int) and self.span - 1 <= self.padding

    @property
    def is_global(self):
        """Whether every query is known to see every context position."""
        return (
            self.is_static
            and self.stride == self.dilation == 1
            and self.queries - 1 <= self.padding < self.taps + 1 - self.context
        )

    @property
    def padding_after(self):
        """How many positions the last query reads beyond the end."""
        if self.stride == 1 and self.queries is self.context:
            # Static, even if the size of the axis is not.
            return _at_least_zero(self.span - 1 - self.padding)
        reach = (self.queries - 1) * self.stride + self.span
        return _at_least_zero(reach - self.padding - self.context)

    def cropped(self):
        """Returns the axis without the entries that no query can reach."""
        if not self.is_static:
            return self
        last_query = (self.queries - 1) * self.stride
        low = math.ceil((self.padding - last_query) / self.dilation)
        high = (self.context - 1 + self.padding) // self.dilation
        low, high = max(low, 0), min(high, self.taps - 1)
        if low > high:  # no pair of positions meets: keep one entry, all zero
            low = high = min(low, self.taps - 1)
        return dataclasses.replace(
            self,
            first=self.first + low,
            taps=high - low + 1,
            padding=self.padding - low * self.dilation,
        )

    def entries(self):
        """Returns each pair's entry or -1, int32 `(queries, context)`."""
        offset = (
            tf.range(self.context)[None, :]
            + self.padding
            - self.stride * tf.range(self.queries)[:, None]
        )
        entry = offset // self.dilation
        reached = (
            (offset % self.dilation == 0) & (entry >= 0) & (entry < self.taps)
        )
        return tf.where(reached, entry, -1)


def size(x, axis):
    """Returns the size of an axis: an int, or a scalar tensor if unknown."""
    return tf.shape(x)[axis] if x.shape[axis] is None else x.shape[axis]


def sliced(x, begin, sizes):
    """Computes `tf.slice`, whose gradient is faster than that of a subscript.

    Under XLA it uses a subscript, because `tf.slice` has no second gradient.
    """
    if not is_compiled_by_xla():
        return tf.slice(x, begin, sizes)
    ends = [
        None if isinstance(size, int) and size == -1 else first + size
        for first, size in zip(begin, sizes, strict=True)
    ]
    return x[tuple(map(slice, begin, ends))]


def fitted(x, pads):
    """Pads axes with zeros, or cuts them if a number is negative.

    `pads` has (before, after) per axis: ints, or non-negative scalar tensors.
    """
    cuts = [
        [max(-pad, 0) if isinstance(pad, int) else 0 for pad in pair]
        for pair in pads
    ]
    if any(map(any, cuts)):
        begin = [before for before, _ in cuts]
        sizes = [
            size(x, axis) - sum(pair) if any(pair) else -1
            for axis, pair in enumerate(cuts)
        ]
        x = sliced(x, begin, sizes)
    added = [
        [pad + cut for pad, cut in zip(*pairs, strict=True)]
        for pairs in zip(pads, cuts, strict=True)
    ]
    return tf.pad(x, added)


def dilated(kernel, dilations):
    """Puts `dilation - 1` zeros between entries along each of the first axes.

    (Some devices lack the gradient of a dilated convolution.)
    """
    for axis, dilation in enumerate(dilations):
        sizes = kernel.shape.as_list()
        taps = sizes[axis]
        if dilation > 1 and taps > 1:
            zeros = [[0, 0]] * len(sizes)
            zeros.insert(axis + 1, [0, dilation - 1])
            kernel = tf.pad(tf.expand_dims(kernel, axis + 1), zeros)
            sizes[axis] = taps * dilation
            kernel = tf.reshape(kernel, sizes)
            sizes[axis] = (taps - 1) * dilation + 1
            kernel = sliced(kernel, [0] * len(sizes), sizes)
    return kernel


def _at_least_zero(number):
    return max(number, 0) if isinstance(number, int) else tf.maximum(number, 0)


def ceil_div(number, divisor):
    """Returns the quotient of positive numbers, rounded up."""
    return number if divisor == 1 else (number + divisor - 1) // divisor


def same_axis(context, taps, stride=1, dilation=1):
    """Makes an `Axis` with "same" padding: `ceil(context / stride)` queries.

    `context` is an int or a scalar tensor, `taps` the size of the scope.
    `stride` and `dilation` are the distances of queries and of entries.
    """
    span = (taps - 1) * dilation + 1
    queries = ceil_div(context, stride)
    total = _at_least_zero((queries - 1) * stride + span - context)
    padding = dilation * (taps // 2) if stride == 1 else total // 2
    return Axis(context, queries, taps, 0, stride, dilation, padding)


def valid_axis(context, taps, stride=1, dilation=1):
    """Makes an `Axis` with "valid" padding; see `same_axis`."""
    span = (taps - 1) * dilation + 1
    queries = ceil_div(context - span + 1, stride)
    return Axis(context, queries, taps, 0, stride, dilation, 0)


def causal_axis(context, taps, stride=1, dilation=1):
    """Makes an `Axis` whose queries see only their past; see `same_axis`."""
    queries, padding = ceil_div(context, stride), dilation * (taps - 1)
    return Axis(context, queries, taps, 0, stride, dilation, padding)


def center_of(axis):
    """Returns the context position of the first query's center."""
    return (axis.taps // 2) * axis.dilation - axis.padding


@dataclasses.dataclass(frozen=True)
class Geometry:
    """The axes of a position lambda, cropped to the entries in use."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, axes):
        """Crops axes to the entries that some query uses."""
        return cls(tuple(axis.cropped() for axis in axes))

    @property
    def rank(self):
        return len(self.axes)

    @property
    def is_static(self):
        return all(axis.is_static for axis in self.axes)

    @property
    def is_global(self):
        return all(axis.is_global for axis in self.axes)

    @property
    def is_causal(self):
        """Whether it is a sequence whose queries see only their past."""
        return self.rank == 1 and self.axes[0].is_causal

    @property
    def context(self):
        return tuple(axis.context for axis in self.axes)

    @property
    def queries(self):
        return tuple(axis.queries for axis in self.axes)

    @property
    def taps(self):
        return tuple(axis.taps for axis in self.axes)

    def along(self, axis):
        """Returns the geometry of one axis alone."""
        return Geometry((self.axes[axis],))

    def crop(self, table):
        """Returns the part of the table that is used, `(*taps, ...)`."""
        return table[tuple(slice(a.first, a.first + a.taps) for a in self.axes)]
