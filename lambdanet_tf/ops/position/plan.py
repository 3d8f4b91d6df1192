"""The plan of a position part: an algorithm, and blocks of which size.

For each algorithm a formula counts the products of a batch and the numbers that
it moves; the rates of a device make seconds of them. The least is taken.

Letters added to those of the package: t queries of a block, s its context, x
blocks of a map.
"""

import dataclasses
import functools
import logging
import math
from collections.abc import Callable
from typing import Any

from lambdanet_tf.arguments import one_of
from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.blocks import block_choices
from lambdanet_tf.ops.devices import DEVICES
from lambdanet_tf.ops.devices import target_device
from lambdanet_tf.ops.position.convolution import conv2d
from lambdanet_tf.ops.position.convolution import depthwise
from lambdanet_tf.ops.position.einsum import einsum
from lambdanet_tf.ops.position.fft import fft
from lambdanet_tf.ops.position.fft import half_axis
from lambdanet_tf.ops.position.fft import halvings
from lambdanet_tf.ops.position.fft import leaf_axis
from lambdanet_tf.ops.position.fft import transform_length
from lambdanet_tf.ops.position.fourier import fourier
from lambdanet_tf.ops.position.fourier import num_frequencies
from lambdanet_tf.ops.position.products import lambda_first
from lambdanet_tf.ops.position.products import query_first

# What a batch of unknown size is taken for: enough to share the table's cost.
TYPICAL_BATCH = 8
# Numbers of an intermediate, 1 GiB, beyond which a smaller one is preferred.
_LARGEST = 2**28


@dataclasses.dataclass(frozen=True)
class Dims:
    """The channel sizes of a position lambda."""

    num_heads: int
    key_dim: int
    value_dim: int
    intra_depth: int = 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a position output is computed.

    Attributes:
        algorithm: one of `implementations()` but "auto".
        sizes: queries of a block per axis; empty where nothing is cut.
        operations: of a batch, two for each multiply-add; 0 where sizes are
            unknown.
        seconds: estimate for a batch; a figure to compare, not a promise.
    """

    algorithm: str
    sizes: tuple[int, ...] = ()
    operations: int = 0
    seconds: float = math.inf

    def __str__(self):
        blocks = "x".join(map(str, self.sizes))
        return f"{self.algorithm}({blocks})" if blocks else self.algorithm


@dataclasses.dataclass(frozen=True)
class _Work:
    """What one way to compute the position output of a batch does.

    Attributes:
        products: rows, inner length and columns of each matrix product.
        moved: numbers of intermediates, each time they are read or written.
        largest: numbers of the largest intermediate.
        launches: operations that are no products.
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
        """Returns an estimate; infinite where a device has no transforms."""
        passes, slower, share = 1, 1.0, rates.convolution
        if training:  # a product, and the two of its gradients
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


def _einsum(geometry, dims, b):
    h, k, v, u = dataclasses.astuple(dims)
    n, m = math.prod(geometry.queries), math.prod(geometry.context)
    lambdas, table = b * n * k * v, n * m * k * u
    products = [(b * n * k, m * u, v), (b * n * h, k, v)]
    return _Work(products, 4 * (lambdas + table), max(lambdas, table))


def _lambda_first(blocks, dims, b):
    h, k, v, u = dataclasses.astuple(dims)
    x, t, s = math.prod(blocks.counts), blocks.queries, blocks.context
    lambdas, table = b * x * t * k * v, t * s * k * u
    products = [(t * k, s * u, b * x * v), (b * x * t * h, k, v)]
    moved = 4 * (lambdas + table) + b * _cut(blocks, u * v, h * (k + v))
    return _Work(products, moved, max(lambdas, table))


def _query_first(blocks, dims, b):
    h, k, v, u = dataclasses.astuple(dims)
    x, t, s = math.prod(blocks.counts), blocks.queries, blocks.context
    scores, table = b * x * t * h * s * u, t * s * k * u
    products = [(b * x * t * h, k, s * u), (b * x * t * h, s * u, v)]
    moved = 4 * (scores + table) + b * _cut(blocks, u * v, h * (k + v))
    return _Work(products, moved, max(scores, table))


def _fourier(blocks, dims, b):
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
    return _Work(products, b * moved + 6 * table, largest, launches=5)


def _fft(geometry, dims, b):
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
        # Spectra are complex, and the transforms copy what they read and write.
        moved += 2 * count * points * k * v * 3 * (2 + u)
    return _Work(
        products,
        b * moved + 4 * table,
        2 * b * n * k * v,
        launches=2 + 2 * len(parts),
        transformed=transformed,
    )


def _convolution(geometry, dims, b, copies=1):
    h, k, v, u = dataclasses.astuple(dims)
    n = math.prod(geometry.queries)
    taps = math.prod(axis.span for axis in geometry.axes)
    lambdas, launches = b * n * k * v * copies, 1 + 2 * geometry.rank
    products = [(b * n * v, taps * u, k), (b * n * h * copies, k, v)]
    return _Work(products, 6 * lambdas, lambdas, launches, is_convolution=True)


def _depthwise(geometry, dims, b):
    return _convolution(geometry, dims, b, copies=dims.intra_depth)


def _cut(blocks, values, queries):
    """Returns the numbers moved to cut values to windows, queries to blocks.

    Given the numbers of a context position, and of a query position.
    """
    counts = math.prod(blocks.counts)
    cuts = sum(axis.count > 1 for axis in blocks.axes)
    ragged = any(axis.axis.queries % axis.size for axis in blocks.axes)
    passes = 2 * (cuts > 0 and blocks.rank > 1) + 6 * ragged
    moved = counts * blocks.context * values * (2 + 2 * cuts)
    return moved + passes * counts * blocks.queries * queries


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """A way to compute position outputs.

    Attributes:
        run: function of queries `(batch, n, heads, key_dim)`, values `(batch,
            *context, value_dim, intra_depth)`, the cropped table `(*taps,
            key_dim, intra_depth)`, and the place: the `Geometry`, or its
            `Blocks`. Returns `(batch, n, heads, value_dim)`.
        work: function of place, `Dims` and size of a batch to a `_Work`.
        blocks: function of a geometry that yields `Blocks`; None without.
        needs_static: whether sizes must be known when it is traced.
        mixes_positions: whether rounding errors of a position reach positions
            outside its scope.
        ranks: axes of the geometries that it serves.
        devices: names of the `DEVICES` on which "auto" considers it.
    """

    run: Callable[..., Any]
    work: Callable[..., Any]
    blocks: Callable[..., Any] | None = None
    needs_static: bool = True
    mixes_positions: bool = False
    ranks: tuple[int, ...] = (1, 2, 3)
    devices: tuple[str, ...] = tuple(DEVICES)

    def plans(self, geometry):
        """Returns the sizes of blocks and the place of each way to cut."""
        if self.blocks is None:
            return [((), geometry)]
        return [(blocks.sizes, blocks) for blocks in self.blocks(geometry)]


ALGORITHMS = {
    # The paper's order, to compare with.
    "einsum": Algorithm(einsum, _einsum, devices=()),
    "lambda_first": Algorithm(lambda_first, _lambda_first, block_choices),
    "query_first": Algorithm(query_first, _query_first, block_choices),
    "fourier": Algorithm(
        fourier,
        _fourier,
        blocks=functools.partial(block_choices, first_whole=True),
        mixes_positions=True,
        ranks=(2, 3),
        devices=("cpu", "portable"),
    ),
    "fft": Algorithm(
        fft,
        _fft,
        mixes_positions=True,
        ranks=(1,),
        devices=("cpu", "gpu", "tpu"),
    ),
    "conv2d": Algorithm(conv2d, _convolution, needs_static=False),
    # By name alone: hardly faster than `conv2d` anywhere, and often slower.
    "depthwise": Algorithm(
        depthwise, _depthwise, needs_static=False, ranks=(1, 2), devices=()
    ),
}


def implementations(rank=None):
    """Returns what `implementation` can be, as a tuple that begins by "auto".

    Args:
        rank: int. Spatial axes that are to be served; None for any.
    """
    names = [x for x, one in ALGORITHMS.items() if rank in (None, *one.ranks)]
    return ("auto", *names)


def plan_for(
    geometry,
    dims,
    implementation="auto",
    device=None,
    training=True,
    batch=None,
):
    """Chooses how a position output is computed.

    Args:
        geometry: a `Geometry`, or None where sizes are not static: then only
            convolutions remain.
        dims: `Dims`.
        implementation: one of `implementations()`. Of an algorithm that
            does not serve the rank of the geometry, it counts as "auto".
        device: key of `DEVICES`, or None for `target_device()`.
        training: bool. Whether gradients count.
        batch: int. Examples of a batch; None where that is unknown.

    Returns:
        The `Plan` with the smallest estimate, of the named algorithm or, for
        "auto", of all that are worth considering.

    Raises:
        ValueError: if the name is unknown, needs static sizes that `geometry`
            does not have, or transforms that the device has not.
    """
    name = one_of("implementation", implementation, implementations())
    if geometry is not None and name not in implementations(geometry.rank):
        name = "auto"
    if geometry is None or not geometry.is_static:
        return Plan(_without_sizes(name))
    device = device or target_device()
    names = candidates(device, geometry.rank) if name == "auto" else (name,)
    plan = best_plan(
        geometry,
        dims,
        names,
        DEVICES[device],
        bool(training),
        batch or TYPICAL_BATCH,
    )
    if math.isinf(plan.seconds):
        raise ValueError(
            f"`implementation={name!r}` computes sequences by fast Fourier "
            f"transforms, which {device!r} has not. Use 'auto' or another one."
        )
    logging.getLogger(__name__).debug(
        "Position lambdas of %s on %s: %s", geometry.context, device, plan
    )
    return plan


def _without_sizes(name):
    """Returns the algorithm where sizes are not static."""
    able = [key for key, one in ALGORITHMS.items() if not one.needs_static]
    if name == "auto":
        return able[0]
    if name not in able:
        raise ValueError(
            f"`implementation={name!r}` needs static spatial sizes. Received "
            "inputs of unknown size: fix it, or use one of "
            f"{tuple(able)} or 'auto'."
        )
    return name


def candidates(device, rank):
    """Returns the algorithms that "auto" chooses from, for so many axes."""
    return tuple(
        name
        for name, algorithm in ALGORITHMS.items()
        if device in algorithm.devices and rank in algorithm.ranks
    )


@functools.lru_cache(maxsize=1024)
def best_plan(geometry, dims, names, rates, training, batch):
    """Returns the plan with the smallest estimate of some algorithms.

    Rates are a row of `DEVICES`, or another one.
    """
    found = []
    for name in names:
        for sizes, place in ALGORITHMS[name].plans(geometry):
            work = ALGORITHMS[name].work(place, dims, batch)
            seconds = work.seconds(rates, training)
            plan = Plan(name, sizes, work.operations, seconds)
            found.append((work.largest > _LARGEST, seconds, plan))
    return min(found, key=lambda one: one[:2])[2]
