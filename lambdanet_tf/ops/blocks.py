"""Blocks: a query grid cut into equal parts that all use the same table.

Because embeddings depend on relative positions only, every block of queries and
the context around it has the same embeddings. One small table of pairs serves
the whole map, and all products are dense. A block as large as the map gives the
global layer.
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


@dataclasses.dataclass(frozen=True)
class BlockedAxis:
    """One axis cut into `count` blocks of `size` queries.

    A block reads a window of the context. The next window starts `step`
    positions later, and a window is `steps * step` positions long. A single
    block reads the whole context.
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
        """The axis of a block and its window."""
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
        """Zeros to add before and after the context; negative to cut it."""
        total = (self.count + self.steps - 1) * self.step
        before = self.axis.padding
        return before, total - before - self.axis.context


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A geometry cut into blocks, whose number may be a tensor."""

    axes: tuple[BlockedAxis, ...]

    @classmethod
    def of(cls, geometry, sizes):
        """Makes blocks of the given numbers of queries per axis."""
        axes = zip(geometry.axes, sizes, strict=True)
        return cls(
            tuple(
                BlockedAxis(one, min(n, one.queries) if one.is_static else n)
                for one, n in axes
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
        return tuple(blocked.axis.queries for blocked in self.axes)

    @property
    def inner(self):
        return Geometry(tuple(axis.inner for axis in self.axes))

    @property
    def queries(self):
        """Queries of a block."""
        return math.prod(self.sizes)

    @property
    def context(self):
        """Context positions of a block."""
        return math.prod(self.inner.context)

    @property
    def _is_even(self):
        """Whether blocks are known to divide the grid evenly."""
        axes = [(blocked.axis.queries, blocked.size) for blocked in self.axes]
        return all(isinstance(n, int) and n % size == 0 for n, size in axes)

    def windows(self, values):
        """Cuts `(batch, *context, c)` into (blocks, window) per axis."""
        for index, blocked in enumerate(self.axes):
            values = _windows(values, 1 + 2 * index, blocked)
        return values

    def query_blocks(self, queries):
        """Cuts `(batch, n, ...)` into `(batch, blocks, block queries, ...)`."""
        rest = queries.shape[2:]
        queries = tf.reshape(queries, [-1, *self.grid, math.prod(rest)])
        if not self._is_even:
            fills = [(0, b.count * b.size - b.axis.queries) for b in self.axes]
            queries = tf.pad(queries, [(0, 0), *fills, (0, 0)])
        queries = self._blocks_first(queries, self.sizes)
        shape = [-1, math.prod(self.counts), self.queries, *rest]
        return tf.reshape(queries, shape)

    def context_blocks(self, values):
        """Cuts `(batch, *context, ...)` into `(batch, blocks, window, ...)`."""
        rest = values.shape[1 + self.rank :]
        context = [blocked.axis.context for blocked in self.axes]
        values = tf.reshape(values, [-1, *context, math.prod(rest)])
        values = self._blocks_first(self.windows(values), self.inner.context)
        shape = [-1, math.prod(self.counts), self.context, *rest]
        return tf.reshape(values, shape)

    def joined(self, outputs):
        """Joins the blocks again: the inverse of `query_blocks`."""
        rest, rank = outputs.shape[3:], self.rank
        channels = math.prod(rest)
        shape = [-1, *self.counts, *self.sizes, channels]
        pairs = [i for axis in range(1, 1 + rank) for i in (axis, axis + rank)]
        outputs = tf.reshape(outputs, shape)
        if rank > 1:
            outputs = tf.transpose(outputs, [0, *pairs, 2 * rank + 1])
        whole = [blocked.count * blocked.size for blocked in self.axes]
        outputs = tf.reshape(outputs, [-1, *whole, channels])
        if not self._is_even:
            sizes = [-1, *self.grid, channels]
            outputs = sliced(outputs, [0] * len(sizes), sizes)
        return tf.reshape(outputs, [-1, math.prod(self.grid), *rest])

    def apply(self, queries, lambdas):
        """Applies lambdas `(batch, blocks, block queries, k, v)`."""
        outputs = apply_each(self.query_blocks(queries), lambdas)
        shape = [-1, math.prod(self.counts), self.queries, *outputs.shape[1:]]
        return self.joined(tf.reshape(outputs, shape))

    def _blocks_first(self, x, sizes):
        """Moves the counts of `(b, (count, size) per axis, c)` to the front."""
        pairs = zip(self.counts, sizes, strict=True)
        x = tf.reshape(x, [-1, *itertools.chain(*pairs), x.shape[-1]])
        last = 2 * self.rank + 1
        if self.rank == 1:
            return x
        return tf.transpose(
            x, [0, *range(1, last, 2), *range(2, last + 1, 2), last]
        )


def block_choices(geometry, first_whole=False):
    """Yields the `Blocks` of a static geometry that are worth considering."""
    choices = [_block_sizes(queries) for queries in geometry.queries]
    if first_whole:
        choices[0] = [geometry.queries[0]]
    for sizes in itertools.product(*choices):
        yield Blocks.of(geometry, sizes)


def _block_sizes(length):
    """Returns block sizes that divide an axis about evenly."""
    counts = {1}
    for wanted in (4, 8, 16, 32, 64, 128):
        counts.add(max(round(length / wanted), 1))
    return sorted({-(-length // count) for count in counts})


def _windows(values, axis, blocked):
    """Replaces one axis by (blocks, window).

    Overlapping windows are rows of whole steps, shifted and concatenated. We
    use `tf.slice`, because the gradient of a strided slice is slower.
    """
    if blocked.is_single:
        return tf.expand_dims(values, axis)
    sizes = tf.unstack(tf.shape(values))
    # Merged to three axes, because a slice supports at most eight.
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
    """Applies a lambda of its own to every query position.

    Queries are `(*positions, heads, key_dim)`, lambdas `(*positions, key_dim,
    value_dim)`. oneDNN is faster if all positions share one axis.
    """
    queries = tf.reshape(queries, [-1, *queries.shape[-2:]])
    return tf.matmul(queries, tf.reshape(lambdas, [-1, *lambdas.shape[-2:]]))


def intra_first(values):
    """Merges the last axes `(value_dim, intra_depth)`, intra-depth first."""
    if values.shape[-1] > 1:
        values = tf.einsum("...vu->...uv", values)
    sizes = [size(values, axis) for axis in range(len(values.shape) - 2)]
    return tf.reshape(values, [*sizes, math.prod(values.shape[-2:])])
