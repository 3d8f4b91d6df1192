"""Blocks: a query grid cut into equal parts that all see the same table.

Translation equivariance makes the embeddings of a block of queries and the
context around it the same for every block: one small table of pairs serves
the whole map, and the products become dense ones. A block as large as the
map is the global layer.
"""

import dataclasses
import itertools
import math

import tensorflow as tf

from lambdanet_tf.ops.geometry import Axis
from lambdanet_tf.ops.geometry import Geometry
from lambdanet_tf.ops.geometry import ceil_div
from lambdanet_tf.ops.geometry import fitted
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.geometry import sliced

# What the runtime of TFLite transposes, however short the axes are.
_MAX_AXES = 6


@dataclasses.dataclass(frozen=True)
class BlockedAxis:
    """One axis cut into `count` blocks of `size` queries.

    A block reads a window of the context, which is `steps` times as long as
    the distance `step` to the next one. A single block reads the context as it
    is.
    """

    axis: Axis
    size: int

    @property
    def count(self):
        return ceil_div(self.axis.queries, self.size)

    @property
    def is_single(self):
        """Whether one block is known to hold all queries."""
        return self.axis.is_static and self.count == 1

    @property
    def step(self):
        return self.size * self.axis.stride

    @property
    def steps(self):
        reach = (self.size - 1) * self.axis.stride + self.axis.span
        return -(-reach // self.step)

    @property
    def inner(self):
        """The axis that every block sees."""
        if self.is_single:
            return self.axis
        return dataclasses.replace(
            self.axis,
            context=self.steps * self.step,
            queries=self.size,
            padding=0,
        )

    @property
    def pads(self):
        """Zeros before and after the context, negative where it is cut."""
        total = (self.count + self.steps - 1) * self.step
        before = self.axis.padding
        return before, total - before - self.axis.context


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A geometry cut into blocks; their number may be known at run time only.

    Sizes that are not static need an axis of stride 1 that keeps the size.
    """

    axes: tuple[BlockedAxis, ...]

    @classmethod
    def of(cls, geometry, sizes):
        """Blocks of the given numbers of queries per axis."""
        return cls(
            tuple(
                BlockedAxis(
                    axis, min(size, axis.queries) if axis.is_static else size
                )
                for axis, size in zip(geometry.axes, sizes, strict=True)
            )
        )

    @property
    def rank(self):
        return len(self.axes)

    @property
    def counts(self):
        return tuple(axis.count for axis in self.axes)

    @property
    def sizes(self):
        return tuple(axis.size for axis in self.axes)

    @property
    def grid(self):
        """Queries per axis."""
        return tuple(blocked.axis.queries for blocked in self.axes)

    @property
    def inner(self):
        """The geometry that every block sees."""
        return Geometry(tuple(axis.inner for axis in self.axes))

    @property
    def queries(self):
        """Queries of a block."""
        return math.prod(self.sizes)

    @property
    def context(self):
        """Context positions of a block."""
        return math.prod(self.inner.context)

    def windows(self, values):
        """`(batch, *context, *rest)`: (blocks, context of one) per axis."""
        for index, blocked in enumerate(self.axes):
            values = _windows(values, 1 + 2 * index, blocked)
        return values

    def query_blocks(self, queries):
        """`(batch, n, *rest)` -> `(batch, blocks, queries of one, *rest)`."""
        rest = queries.shape[2:]
        queries = self._blocks_first(self.cut_queries(queries), self.sizes)
        shape = [-1, math.prod(self.counts), self.queries]
        return tf.reshape(queries, [*shape, *rest])

    def context_blocks(self, values):
        """`(batch, *context, *rest)` -> `(batch, blocks, context, *rest)`."""
        rest = values.shape[1 + self.rank :]
        values = self._blocks_first(self.windows(values), self.inner.context)
        shape = [-1, math.prod(self.counts), self.context]
        return tf.reshape(values, [*shape, *rest])

    def joined(self, outputs):
        """The inverse of `query_blocks`."""
        rest, rank = outputs.shape[3:], self.rank
        shape = [-1, *self.counts, *self.sizes, *rest]
        outputs = tf.reshape(outputs, shape)
        if rank > 1:
            pairs = [i for a in range(rank) for i in (1 + a, 1 + rank + a)]
            rest = range(2 * rank + 1, len(outputs.shape))
            outputs = transpose(outputs, [0, *pairs, *rest], shape)
        return self.join_queries(outputs)

    def apply(self, queries, lambdas):
        """Applies the lambdas of blocks to the queries.

        Args:
            queries: `(batch, n, heads, key_dim)`.
            lambdas: `(batch, blocks, queries of one, key_dim, value_dim)`.

        Returns:
            `(batch, n, heads, value_dim)`.
        """
        outputs = apply_each(self.query_blocks(queries), lambdas)
        shape = [-1, math.prod(self.counts), self.queries, *outputs.shape[1:]]
        return self.joined(tf.reshape(outputs, shape))

    def _blocks_first(self, x, sizes):
        """`(b, (count, size) per axis, ...)` -> `(b, counts, sizes, ...)`."""
        rank = self.rank
        if rank == 1:
            return x
        rest = range(2 * rank + 1, len(x.shape))
        order = [0, *range(1, 2 * rank, 2), *range(2, 2 * rank + 1, 2), *rest]
        return transpose(x, order, self.cut_shape(sizes, x.shape[rest.start :]))

    def cut_shape(self, sizes, rest):
        """The shape `(-1, (count, size) per axis, *rest)`, as a list."""
        pairs = zip(self.counts, sizes, strict=True)
        return [-1, *itertools.chain(*pairs), *rest]

    def _flat(self, rest):
        """Axes that may be padded: the runtime of TFLite knows five in all."""
        return rest if self.rank < 3 else (math.prod(rest),)

    def cut_queries(self, queries):
        """`(batch, n, ...)` -> `(batch, count, size, ..., *rest)` per axis."""
        rest = queries.shape[2:]
        flat = self._flat(rest)
        queries = tf.reshape(queries, [-1, *self.grid, *flat])
        fills = [b.count * b.size - b.axis.queries for b in self.axes]
        if any(not isinstance(fill, int) or fill for fill in fills):
            pads = [(0, 0), *((0, f) for f in fills)] + [(0, 0)] * len(flat)
            queries = tf.pad(queries, pads)
        return tf.reshape(queries, self.cut_shape(self.sizes, rest))

    def join_queries(self, outputs):
        """The inverse of `cut_queries`."""
        rest = outputs.shape[1 + 2 * self.rank :]
        whole = [b.count * b.size for b in self.axes]
        flat = self._flat(rest)
        outputs = tf.reshape(outputs, [-1, *whole, *flat])
        if not all(
            b.axis.is_static and size == n
            for b, size, n in zip(self.axes, whole, self.grid, strict=True)
        ):
            sizes = [-1, *self.grid, *flat]
            outputs = sliced(outputs, [0] * len(sizes), sizes)
        return tf.reshape(outputs, [-1, math.prod(self.grid), *rest])


def block_choices(geometry):
    """Yields the `Blocks` of a static geometry that are worth considering."""
    for sizes in itertools.product(*map(_block_sizes, geometry.queries)):
        yield Blocks.of(geometry, sizes)


def _block_sizes(length):
    """Even divisions of an axis, near the sizes that pay."""
    counts = {1}
    for wanted in (4, 8, 16, 32, 64, 128):
        counts.add(max(round(length / wanted), 1))
    return sorted({-(-length // count) for count in counts})


def _windows(values, axis, blocked):
    """Replaces one axis by (blocks, context of a block).

    Overlapping windows are shifted rows of whole steps, side by side. The
    gradient of `tf.slice` is a padding; that of a strided slice is slower.
    """
    if blocked.is_single:
        return tf.expand_dims(values, axis)
    sizes = tf.unstack(tf.shape(values))
    # Three axes, whatever the rank: slices know at most eight.
    outer, inner = math.prod(sizes[:axis]), math.prod(sizes[axis + 1 :])
    values = tf.reshape(values, [outer, blocked.axis.context, inner])
    values = fitted(values, [(0, 0), blocked.pads, (0, 0)])
    rows = blocked.count + blocked.steps - 1
    values = tf.reshape(values, [outer, rows, blocked.step * inner])
    shifted = [
        sliced(values, [0, step, 0], [-1, blocked.count, -1])
        for step in range(blocked.steps)
    ]
    pair = [blocked.count, blocked.inner.context]
    return tf.reshape(
        tf.concat(shifted, axis=2), [*sizes[:axis], *pair, *sizes[axis + 1 :]]
    )


def apply_each(queries, lambdas):
    """Applies to every query position its own lambda.

    oneDNN is faster with one axis of matrices than with several.

    Args:
        queries: `(*positions, heads, key_dim)`.
        lambdas: `(*positions, key_dim, value_dim)`.

    Returns:
        `(positions, heads, value_dim)`.
    """
    queries = tf.reshape(queries, [-1, *queries.shape[-2:]])
    return tf.matmul(queries, tf.reshape(lambdas, [-1, *lambdas.shape[-2:]]))


def transpose(x, order, sizes=None):
    """Transposes, with the axes that stay neighbors merged into one.

    Args:
        x: tensor.
        order: list of int. Which axis of x each axis of the result is.
        sizes: list of the sizes of x, the first one may be -1; None for those
            of its own shape. To give where others are not static: ONNX
            converters write wrong files for a shape that is read off a
            reshaped tensor and used to reshape it again.

    Returns:
        As `tf.transpose(x, order)`.
    """
    if len(order) <= _MAX_AXES:
        return tf.transpose(x, order)
    sizes = list(sizes or (size(x, axis) for axis in range(len(order))))
    if not isinstance(sizes[0], int):
        sizes[0] = -1
    # An axis of size 1 is nobody's neighbor.
    long = [i for i in order if not isinstance(sizes[i], int) or sizes[i] != 1]
    place = {axis: index for index, axis in enumerate(sorted(long))}
    runs = []  # of the axes of x that stay neighbors, in the new order
    for axis in long:
        if runs and place[axis] == place[runs[-1][-1]] + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    given = sorted(runs)
    merged = [
        -1
        if run[0] == 0 and sizes[0] == -1
        else math.prod(sizes[axis] for axis in run)
        for run in given
    ]
    x = tf.transpose(tf.reshape(x, merged), [given.index(run) for run in runs])
    return tf.reshape(x, [sizes[axis] for axis in order])
