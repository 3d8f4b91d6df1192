"""The cost of each algorithm: its products, and the numbers that it moves.

The rates of a device convert both to seconds. Further letters: t queries of a
block, s context positions of a block, x blocks of a map.
"""

import dataclasses
import math

from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.position.fft import half_axis
from lambdanet_tf.ops.position.fft import halvings
from lambdanet_tf.ops.position.fft import leaf_axis
from lambdanet_tf.ops.position.fft import transform_length
from lambdanet_tf.ops.position.fourier import num_frequencies


@dataclasses.dataclass(frozen=True)
class Dims:
    """The channel sizes of a position lambda."""

    num_heads: int
    key_dim: int
    value_dim: int
    intra_depth: int = 1


@dataclasses.dataclass(frozen=True)
class Work:
    """The work of one algorithm for the position output of a batch.

    Attributes:
        products: rows, inner length and columns of each matrix product.
        moved: numbers of intermediates that are read or written.
        largest: numbers of the largest intermediate.
        launches: operations that are not products.
        is_convolution: whether the first product is a convolution.
        transformed: operations of fast Fourier transforms.
    """

    products: list[tuple[int, int, int]]
    moved: int
    largest: int
    launches: int = 4
    is_convolution: bool = False
    transformed: int = 0

    @property
    def operations(self):
        return self.transformed + sum(2 * math.prod(x) for x in self.products)

    def seconds(self, rates, training):
        """Estimates the time; infinite if the device lacks the transforms."""
        passes, slower, share = 1, 1.0, rates.convolution
        if training:  # each product has two more for its gradients
            passes, slower = 3, rates.training
            share = rates.convolution_training
        moved = 4 * self.moved / rates.bandwidth
        taken = slower * (moved + self.launches * rates.launch)
        for index, (rows, inner, columns) in enumerate(self.products):
            rate = rates.flops / (1 + rates.inner / min(inner, columns))
            if self.is_convolution and index == 0:
                rate *= share / (1 + rates.convolution_inner / inner)
            taken += passes * 2 * rows * inner * columns / rate + rates.launch
        if self.transformed:
            speed = rates.fourier
            taken += passes * self.transformed / speed if speed else math.inf
        return taken


def einsum(geometry, dims, b):
    """Returns the `Work` of `einsum`."""
    h, k, v, u = dataclasses.astuple(dims)
    n, m = math.prod(geometry.queries), math.prod(geometry.context)
    lambdas, table = b * n * k * v, n * m * k * u
    products = [(b * n * k, m * u, v), (b * n * h, k, v)]
    return Work(products, 4 * (lambdas + table), max(lambdas, table))


def lambda_first(blocks, dims, b):
    """Returns the `Work` of `lambda_first`."""
    h, k, v, u = dataclasses.astuple(dims)
    x, t, s = math.prod(blocks.counts), blocks.queries, blocks.context
    lambdas, table = b * x * t * k * v, t * s * k * u
    products = [(t * k, s * u, b * x * v), (b * x * t * h, k, v)]
    moved = 4 * (lambdas + table) + b * _cut(blocks, u * v, h * (k + v))
    return Work(products, moved, max(lambdas, table))


def query_first(blocks, dims, b):
    """Returns the `Work` of `query_first`."""
    h, k, v, u = dataclasses.astuple(dims)
    x, t, s = math.prod(blocks.counts), blocks.queries, blocks.context
    scores, table = b * x * t * h * s * u, t * s * k * u
    products = [(b * x * t * h, k, s * u), (b * x * t * h, s * u, v)]
    moved = 4 * (scores + table) + b * _cut(blocks, u * v, h * (k + v))
    return Work(products, moved, max(scores, table))


def fourier(blocks, dims, b):
    """Returns the `Work` of `fourier`."""
    h, k, v, u = dataclasses.astuple(dims)
    axis, rest = blocks.axes[0].axis, Blocks(blocks.axes[1:])
    x, t, s = math.prod(rest.counts), rest.queries, rest.context
    rows, f = axis.queries, 2 * num_frequencies(axis)
    width = math.prod(one.axis.context for one in rest.axes)
    taps = math.prod(one.axis.taps for one in rest.axes)
    lambdas, table = x * t * k * v, 2 * f * t * s * k * u
    products = [
        (f, axis.context, b * width * u * v),
        (f * t * k, 2 * s * u, b * x * v),
        (rows, f, b * lambdas),
        (b * rows * x * t * h, k, v),
        (2 * f, axis.taps, taps * k * u),
    ]
    moved = 2 * (f + rows) * lambdas + 2 * math.prod(blocks.grid) * h * (k + v)
    moved += _cut(rest, f * u * v, rows * h * (k + v))
    largest = max(b * f * lambdas, table)
    return Work(products, b * moved + 6 * table, largest, launches=5)


def fft(geometry, dims, b):
    """Returns the `Work` of `fft`."""
    h, k, v, u = dataclasses.astuple(dims)
    (axis,) = geometry.axes
    n = axis.queries
    products, parts, table = [(b * n * h, k, v)], [(axis, 1)], 0
    if axis.is_causal:
        leaf, levels = halvings(axis)
        inner = leaf_axis(axis, leaf)
        products += [(inner.queries * k, leaf * u, b * 2**levels * v)]
        table = inner.queries * leaf * k * u
        parts = [
            (half_axis(axis, leaf * 2**level), 2 ** (levels - 1 - level))
            for level in range(levels)
        ]
    moved, transformed = n * k * v * (4 + 2 * len(parts)), 0
    for part, count in parts:
        points = transform_length(part)
        each = 5 * points * (points.bit_length() - 1) // 2
        transformed += (b * count * (u + k) * v + k * u) * each
        # Spectra are complex, and transforms copy their inputs and outputs.
        moved += 2 * count * points * k * v * 3 * (2 + u)
    return Work(
        products,
        b * moved + 4 * table,
        2 * b * n * k * v,
        launches=2 + 2 * len(parts),
        transformed=transformed,
    )


def convolution(geometry, dims, b, copies=1):
    """Returns the `Work` of `conv2d`."""
    h, k, v, u = dataclasses.astuple(dims)
    n = math.prod(geometry.queries)
    taps = math.prod(axis.span for axis in geometry.axes)
    lambdas, launches = b * n * k * v * copies, 1 + 2 * geometry.rank
    products = [(b * n * v, taps * u, k), (b * n * h * copies, k, v)]
    return Work(products, 6 * lambdas, lambdas, launches, is_convolution=True)


def depthwise(geometry, dims, b):
    """Returns the `Work` of `depthwise`."""
    return convolution(geometry, dims, b, copies=dims.intra_depth)


def _cut(blocks, values, queries):
    """Returns how many numbers it moves to cut windows and blocks.

    `values` and `queries` are the numbers per context and query position.
    """
    counts = math.prod(blocks.counts)
    cuts = sum(axis.count > 1 for axis in blocks.axes)
    ragged = any(axis.axis.queries % axis.size for axis in blocks.axes)
    passes = 2 * (cuts > 0 and blocks.rank > 1) + 6 * ragged
    moved = counts * blocks.context * values * (2 + 2 * cuts)
    return moved + passes * counts * blocks.queries * queries
