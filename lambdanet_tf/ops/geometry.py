"""Which context positions a query sees, and through which entry of the table.

Everything here is integer arithmetic on the sizes of grids; no tensors of
values. An axis is described the way a convolution describes it: query `i`
meets the table's entry `t` at context position

    i * stride + t * dilation - padding

and positions outside the context contribute nothing (spec section 1).
"""

import dataclasses
import math

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Axis:
    """One spatial axis: a query grid laid over a context grid.

    Attributes:
        context: int, or a scalar tensor where it is only known at run time.
            Number of context positions.
        queries: int or scalar tensor. Number of query positions.
        taps: int. Entries of the table that are used, counted from `first`.
        first: int. The first entry of the table that is used.
        stride: int. Context positions between neighbouring queries.
        dilation: int. Context positions between neighbouring entries.
        padding: int or scalar tensor. Context positions between the first
            query's entry `first` and context position 0; may be negative.
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
        return all(
            isinstance(size, int)
            for size in (self.context, self.queries, self.padding)
        )

    @property
    def span(self):
        """Context positions between the first and the last entry, inclusive."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def padding_after(self):
        """Positions that the last query reads behind the context's end."""
        reach = (self.queries - 1) * self.stride + self.span
        return _at_least_zero(reach - self.padding - self.context)

    def cropped(self):
        """The same axis without the entries that no query can reach."""
        if not self.is_static:
            return self
        last_query = (self.queries - 1) * self.stride
        low = math.ceil((self.padding - last_query) / self.dilation)
        high = (self.context - 1 + self.padding) // self.dilation
        low, high = max(low, 0), min(high, self.taps - 1)
        if low > high:  # no pair of positions meets: keep one entry, all zero
            low = high = min(max(low, 0), self.taps - 1)
        return dataclasses.replace(
            self,
            first=self.first + low,
            taps=high - low + 1,
            padding=self.padding - low * self.dilation,
        )

    def entries(self):
        """Entry of every (query, context) pair; -1 where there is none.

        Returns:
            An int array `(queries, context)`, counted from `first`.
        """
        offset = (
            np.arange(self.context)[None, :]
            + self.padding
            - self.stride * np.arange(self.queries)[:, None]
        )
        entry = offset // self.dilation
        reached = (
            (offset % self.dilation == 0) & (entry >= 0) & (entry < self.taps)
        )
        return np.where(reached, entry, -1)


def _at_least_zero(size):
    return max(size, 0) if isinstance(size, int) else tf.maximum(size, 0)


def _ceil_div(size, divisor):
    return -(-size // divisor)


def same_axis(context, taps, stride=1, dilation=1):
    """An axis with TensorFlow's `SAME` padding: `ceil(context / stride)`."""
    span = (taps - 1) * dilation + 1
    queries = _ceil_div(context, stride)
    total = _at_least_zero((queries - 1) * stride + span - context)
    padding = dilation * (taps // 2) if stride == 1 else total // 2
    return Axis(context, queries, taps, 0, stride, dilation, padding)


def valid_axis(context, taps, stride=1, dilation=1):
    """An axis without padding: only windows inside the context."""
    span = (taps - 1) * dilation + 1
    queries = _ceil_div(context - span + 1, stride)
    return Axis(context, queries, taps, 0, stride, dilation, 0)


def causal_axis(context, taps, stride=1, dilation=1):
    """An axis whose last entry is the query itself, the others before it."""
    queries = _ceil_div(context, stride)
    return Axis(
        context, queries, taps, 0, stride, dilation, dilation * (taps - 1)
    )


def center_of(axis):
    """Context position of the centre of the first query's (odd) table."""
    return (axis.taps // 2) * axis.dilation - axis.padding


@dataclasses.dataclass(frozen=True)
class Geometry:
    """The axes of a position lambda, cropped to the entries that matter."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, axes):
        return cls(tuple(axis.cropped() for axis in axes))

    @property
    def rank(self):
        return len(self.axes)

    @property
    def is_static(self):
        return all(axis.is_static for axis in self.axes)

    @property
    def context(self):
        return tuple(axis.context for axis in self.axes)

    @property
    def queries(self):
        return tuple(axis.queries for axis in self.axes)

    @property
    def taps(self):
        return tuple(axis.taps for axis in self.axes)

    @property
    def strides(self):
        return tuple(axis.stride for axis in self.axes)

    @property
    def dilations(self):
        return tuple(axis.dilation for axis in self.axes)

    def crop(self, table):
        """The part of the table that is used, `(*taps, key_dim, intra)`."""
        return table[tuple(slice(a.first, a.first + a.taps) for a in self.axes)]


def relative_index(geometry):
    """Row of the flattened, cropped table for every (query, context) pair.

    Args:
        geometry: a static `Geometry`.

    Returns:
        An int32 array `(n, m)`, positions flattened row-major; -1 where the
        context position lies outside the query's scope.
    """
    index = np.zeros((1, 1), np.int64)
    inside = np.ones((1, 1), bool)
    for axis in geometry.axes:
        entries = axis.entries()
        shape = (len(index) * axis.queries, index.shape[1] * axis.context)
        index = index[:, None, :, None] * axis.taps + entries[:, None, :]
        inside = inside[:, None, :, None] & (entries >= 0)[:, None, :]
        index, inside = index.reshape(shape), inside.reshape(shape)
    return np.where(inside, index, -1).astype(np.int32)
