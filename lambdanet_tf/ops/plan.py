"""The choice of an algorithm, from static shapes and a model of its cost.

Every algorithm computes the same function; they differ by up to a hundred
times in what that costs, depending on the geometry. The model counts
operations and bytes; what a device does with them is data (`DEVICES`).
"""

import contextlib
import dataclasses
import functools
import itertools
import logging
import math

import tensorflow as tf

from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.spectral import num_frequencies


@dataclasses.dataclass(frozen=True)
class Device:
    """What a device is good at, in float32.

    Attributes:
        flops: operations per second of a large matrix product.
        inner: inner length at which a product runs at half that rate.
        bandwidth: bytes per second of reading and writing intermediates.
        convolution: rate of a convolution, as a share of `flops`.
        convolution_training: the same with its gradients.
        launch: seconds that a small operation takes, whatever its size.
        training: how much longer moving takes with the gradients.
        spectral: whether transforms are worth while (half precisions are
            computed in float32 there).
    """

    flops: float
    inner: float
    bandwidth: float
    convolution: float
    convolution_training: float
    launch: float
    training: float
    spectral: bool


# cpu: fitted to `make bench`. gpu and tpu: from the vendors' figures of an
# H200 and a v4, with the matrix unit's width as `inner`; not measured here.
DEVICES = {
    "cpu": Device(4.1e11, 4.5, 3.25e10, 1.0, 0.16, 8e-5, 2.4, True),
    "gpu": Device(4e13, 64, 4e12, 0.3, 0.3, 8e-6, 3.0, False),
    "tpu": Device(1e14, 128, 1.2e12, 0.3, 0.3, 4e-6, 3.0, False),
}

# The model's batch: enough for the table's own cost to be shared.
_BATCH = 8
_FLOAT = 4
_target = []  # what `planning_for` says, innermost last


@dataclasses.dataclass(frozen=True)
class Depths:
    """The channel sizes of a position lambda."""

    num_heads: int
    key_dim: int
    value_dim: int
    intra_depth: int = 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a position output is computed, and what the model expects of it.

    Attributes:
        algorithm: name in `IMPLEMENTATIONS`.
        sizes: queries of a block per axis; empty for convolutions.
        operations: per example, two for each multiply-add.
        memory: bytes of the largest intermediate, per example.
        seconds: the model's estimate for a batch of 8; a figure to compare,
            not a promise.
        alternatives: the best plan of every other algorithm, fastest first.
    """

    algorithm: str
    sizes: tuple[int, ...] = ()
    operations: int = 0
    memory: int = 0
    seconds: float = math.inf
    alternatives: tuple["Plan", ...] = ()

    def __str__(self):
        blocks = "x".join(map(str, self.sizes))
        name = f"{self.algorithm}({blocks})" if blocks else self.algorithm
        return (
            f"{name}: {self.operations / 1e6:.1f} Mop, "
            f"{self.memory / 2**20:.2f} MiB an example"
        )


def choose(geometry, depths, device=None, training=True):
    """The plan of `implementation="auto"`.

    Args:
        geometry: a `Geometry`, or None where sizes are not static: then only
            convolutions remain.
        depths: `Depths`.
        device: key of `DEVICES`, or None for `target_device()`.
        training: bool. Whether gradients count.

    Returns:
        The `Plan` with the smallest estimate.
    """
    if geometry is None or not geometry.is_static:
        return Plan("conv2d")
    device = device or target_device()
    return _choose(geometry, depths, device, bool(training))


@functools.lru_cache(maxsize=1024)
def _choose(geometry, depths, device, training):
    plans = sorted(
        candidates(geometry, depths, DEVICES[device], training),
        key=lambda plan: plan.seconds,
    )
    best = {}
    for plan in plans:
        best.setdefault(plan.algorithm, plan)
    first, *others = best.values()
    logging.getLogger(__name__).debug(
        "Position lambdas of %s on %s: %s", geometry.context, device, first
    )
    return dataclasses.replace(first, alternatives=tuple(others))


def target_device():
    """The key of `DEVICES` that plans are made for.

    What `planning_for` says, or else the best device of this process.
    """
    if _target:
        return _target[-1]
    for device in ("TPU", "GPU"):
        if tf.config.list_logical_devices(device):
            return device.lower()
    return "cpu"


@contextlib.contextmanager
def planning_for(device):
    """Makes plans for a device that this process may not have.

    Args:
        device: key of `DEVICES`.

    Raises:
        ValueError: if it is not one.
    """
    if device not in DEVICES:
        raise ValueError(
            f"`device` must be one of {tuple(DEVICES)}. Received: "
            f"device={device!r}."
        )
    _target.append(device)
    try:
        yield
    finally:
        _target.pop()


def block_sizes(algorithm, geometry, depths, device=None, training=True):
    """Queries of a block, per axis, for an algorithm asked for by name."""
    plan = choose(geometry, depths, device, training)
    for other in (plan, *plan.alternatives):
        if other.algorithm == algorithm:
            return other.sizes
    return geometry.queries


def candidates(geometry, depths, device, training):
    """Every plan worth considering."""
    for sizes in itertools.product(*map(_block_sizes, geometry.queries)):
        blocks = Blocks.of(geometry, sizes)
        work = functools.partial(_Work, device, training)
        yield _lambda_first(blocks, depths, work())
        yield _query_first(blocks, depths, work())
        if device.spectral and geometry.rank > 1 and blocks.counts[0] == 1:
            yield _spectral(blocks, depths, work())
    yield _convolution(geometry, depths, _Work(device, training))


def _block_sizes(length):
    """Even divisions of an axis, near the sizes that pay."""
    counts = {1}
    for size in (4, 8, 16, 32, 64, 128):
        counts.add(max(round(length / size), 1))
    return sorted({-(-length // count) for count in counts})


def _lambda_first(blocks, depths, work):
    h, k, v, u = dataclasses.astuple(depths)
    x, t, s = math.prod(blocks.counts), blocks.queries, blocks.context
    work.cut(blocks, u * v, h * k + h * v)
    work.product(t * k, s * u, x * v)
    work.product(t * x * h, k, v)
    work.move(x * t * k * v, 4)
    work.move_table(t * s * k * u, 4)
    return work.plan("lambda_first", blocks.sizes, x * t * k * v)


def _query_first(blocks, depths, work):
    h, k, v, u = dataclasses.astuple(depths)
    x, t, s = math.prod(blocks.counts), blocks.queries, blocks.context
    work.cut(blocks, u * v, h * k + h * v)
    work.product(x * t * h, k, s * u)
    work.product(x * t * h, s * u, v)
    work.move(x * t * h * s * u, 4)
    work.move_table(t * s * k * u, 4)
    return work.plan("query_first", blocks.sizes, x * t * h * s * u)


def _spectral(blocks, depths, work):
    h, k, v, u = dataclasses.astuple(depths)
    rest = Blocks(blocks.axes[1:])
    rows, frequencies = blocks.sizes[0], num_frequencies(blocks.axes[0].axis)
    x, t, s = math.prod(rest.counts), rest.queries, rest.context
    work.cut(rest, 2 * frequencies * u * v, rows * (h * k + h * v))
    work.product(2 * frequencies * t * k, 2 * s * u, x * v)
    work.product(rows, 2 * frequencies, t * k * x * v)
    work.product(rows * t * x * h, k, v)
    work.move(2 * frequencies * x * t * k * v, 2)
    work.move(rows * x * t * k * v, 4)
    work.move_table(4 * frequencies * t * s * k * u, 6)
    return work.plan("spectral", blocks.sizes, rows * x * t * k * v)


def _convolution(geometry, depths, work):
    h, k, v, u = dataclasses.astuple(depths)
    n, taps = math.prod(geometry.queries), math.prod(geometry.taps)
    device = work.device
    share = device.convolution_training if work.training else device.convolution
    work.product(n * v, taps * u, k, share)
    work.product(n * h, k, v)
    work.move(n * k * v, 6)
    return work.plan("conv2d", (), n * k * v)


class _Work:
    """Adds up what a batch costs."""

    def __init__(self, device, training):
        self.device = device
        self.training = training
        self.operations = 0
        self.seconds = 0.0

    def product(self, rows, inner, columns, share=1.0):
        """A matrix product: `(rows, inner)` by `(inner, columns)`."""
        operations = 2 * rows * inner * columns
        self.operations += operations
        narrow = min(inner, columns)
        slowdown = (narrow + self.device.inner) / (narrow * share)
        passes = 3 if self.training else 1
        seconds = passes * operations * slowdown / self.device.flops
        self.seconds += _BATCH * seconds + self.device.launch

    def move(self, floats, times):
        """Intermediates of an example, read or written so many times."""
        self.move_table(_BATCH * floats, times)

    def move_table(self, floats, times):
        """Intermediates of the table, once for a batch."""
        seconds = floats * _FLOAT * times / self.device.bandwidth
        factor = self.device.training if self.training else 1.0
        self.seconds += factor * (seconds + self.device.launch)

    def cut(self, blocks, values, queries):
        """Values into windows; queries and outputs into blocks and back.

        Args:
            blocks: `Blocks`.
            values: floats of values at a context position.
            queries: floats of queries and outputs at a query position.
        """
        counts = math.prod(blocks.counts)
        cuts = sum(axis.count > 1 for axis in blocks.axes)
        self.move(counts * blocks.context * values, 2 + 2 * cuts)
        ragged = any(axis.axis.queries % axis.size for axis in blocks.axes)
        passes = 2 * (cuts > 0 and blocks.rank > 1) + 6 * ragged
        if passes:
            self.move(counts * blocks.queries * queries, passes)

    def plan(self, algorithm, sizes, floats):
        return Plan(
            algorithm, sizes, self.operations, floats * _FLOAT, self.seconds
        )
