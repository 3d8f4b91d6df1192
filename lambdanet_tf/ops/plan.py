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
        bandwidth: bytes per second of reading and writing intermediates.
        inner: inner length at which a product runs at half that rate.
        convolution: rate of a convolution, as a share of `flops`.
        launch: seconds that a small operation takes, whatever its size.
        spectral: whether transforms are worth while (half precisions are
            computed in float32 there).
    """

    flops: float
    bandwidth: float
    inner: float
    convolution: float
    launch: float
    spectral: bool


# cpu: fitted to `make bench`. gpu and tpu: from the vendors' figures of an
# H200 and a v4, with the matrix unit's width as `inner`; not measured here.
DEVICES = {
    "cpu": Device(3e11, 1.5e10, 24, 0.12, 6e-5, True),
    "gpu": Device(4e13, 4e12, 64, 0.3, 8e-6, False),
    "tpu": Device(1e14, 1.2e12, 128, 0.3, 4e-6, False),
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
        memory: bytes of the intermediates, per example.
        seconds: the model's estimate for a batch of 8 in training; a figure
            to compare, not a promise.
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


def choose(geometry, depths, device=None):
    """The plan of `implementation="auto"`.

    Args:
        geometry: a `Geometry`, or None where sizes are not static: then only
            convolutions remain.
        depths: `Depths`.
        device: key of `DEVICES`, or None for `target_device()`.

    Returns:
        The `Plan` with the smallest estimate.
    """
    if geometry is None or not geometry.is_static:
        return Plan("conv2d")
    return _choose(geometry, depths, device or target_device())


@functools.lru_cache(maxsize=1024)
def _choose(geometry, depths, device):
    plans = sorted(
        candidates(geometry, depths, DEVICES[device]),
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


def block_sizes(algorithm, geometry, depths, device=None):
    """Queries of a block, per axis, for an algorithm asked for by name."""
    plan = choose(geometry, depths, device)
    for other in (plan, *plan.alternatives):
        if other.algorithm == algorithm:
            return other.sizes
    return geometry.queries


def candidates(geometry, depths, device):
    """Every plan worth considering."""
    for sizes in itertools.product(*map(_block_sizes, geometry.queries)):
        blocks = Blocks.of(geometry, sizes)
        yield _lambda_first(blocks, depths, device)
        yield _query_first(blocks, depths, device)
        if device.spectral and geometry.rank > 1 and blocks.counts[0] == 1:
            yield _spectral(blocks, depths, device)
    yield _convolution(geometry, depths, device)


def _block_sizes(length):
    """Even divisions of an axis, near the sizes that pay."""
    counts = {1}
    for size in (4, 8, 16, 32, 64, 128):
        counts.add(max(round(length / size), 1))
    return sorted({-(-length // count) for count in counts})


def _lambda_first(blocks, depths, device):
    h, k, v, u = dataclasses.astuple(depths)
    x, t, s = math.prod(blocks.counts), blocks.queries, blocks.context
    work = _Work(device)
    work.product(t * k, s * u, x * v)
    work.product(t * x * h, k, v)
    work.move(x * s * u * v, 3)
    work.move(x * t * k * v, 4)
    work.move_shared(t * s * k * u, 4)
    return work.plan("lambda_first", blocks.sizes, x * t * k * v)


def _query_first(blocks, depths, device):
    h, k, v, u = dataclasses.astuple(depths)
    x, t, s = math.prod(blocks.counts), blocks.queries, blocks.context
    work = _Work(device)
    work.product(x * t * h, k, s * u)
    work.product(x * t * h, s * u, v)
    work.move(x * s * u * v, 3)
    work.move(x * t * h * s * u, 4)
    work.move_shared(t * s * k * u, 4)
    return work.plan("query_first", blocks.sizes, x * t * h * s * u)


def _spectral(blocks, depths, device):
    h, k, v, u = dataclasses.astuple(depths)
    rest = Blocks(blocks.axes[1:])
    rows, frequencies = blocks.sizes[0], num_frequencies(blocks.axes[0].axis)
    x, t, s = math.prod(rest.counts), rest.queries, rest.context
    work = _Work(device)
    work.product(2 * frequencies * t * k, 2 * s * u, x * v)
    work.product(rows, 2 * frequencies, t * k * x * v)
    work.product(rows * t * x * h, k, v)
    work.move(2 * frequencies * x * s * u * v, 4)
    work.move(2 * frequencies * x * t * k * v, 2)
    work.move(rows * x * t * k * v, 4)
    work.move_shared(4 * frequencies * t * s * k * u, 6)
    return work.plan("spectral", blocks.sizes, rows * x * t * k * v)


def _convolution(geometry, depths, device):
    h, k, v, u = dataclasses.astuple(depths)
    n, taps = math.prod(geometry.queries), math.prod(geometry.taps)
    work = _Work(device)
    work.product(n * v, taps * u, k, device.convolution)
    work.product(n * h, k, v)
    work.move(n * k * v, 4)
    return work.plan("conv2d", (), n * k * v)


class _Work:
    """Adds up what one example, and the table, cost."""

    def __init__(self, device):
        self.device = device
        self.operations = 0
        self.seconds = 0.0

    def product(self, rows, inner, columns, share=1.0):
        """A matrix product: `(rows, inner)` by `(inner, columns)`."""
        operations = 2 * rows * inner * columns
        self.operations += operations
        narrow = min(inner, columns)
        rate = self.device.flops * share * narrow
        self.seconds += (
            _BATCH * operations * (narrow + self.device.inner) / rate
        )
        self.seconds += self.device.launch

    def move(self, floats, times):
        """Intermediates of an example, read or written so many times."""
        seconds = floats * _FLOAT * times / self.device.bandwidth
        self.seconds += _BATCH * seconds + self.device.launch

    def move_shared(self, floats, times):
        """Intermediates of the table, once for a batch."""
        seconds = floats * _FLOAT * times / self.device.bandwidth
        self.seconds += seconds + self.device.launch

    def plan(self, algorithm, sizes, floats):
        return Plan(
            algorithm, sizes, self.operations, floats * _FLOAT, self.seconds
        )
