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
import threading
import weakref

import tensorflow as tf

from lambdanet_tf.arguments import one_of
from lambdanet_tf.ops.batch_last import LANES
from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.spectral import half_axis
from lambdanet_tf.ops.spectral import halvings
from lambdanet_tf.ops.spectral import num_frequencies
from lambdanet_tf.ops.spectral import piece_axis
from lambdanet_tf.ops.spectral import transform_length


@dataclasses.dataclass(frozen=True)
class Device:
    """What a device is good at, in float32.

    Attributes:
        flops: operations per second of a large matrix product.
        inner: inner length at which a product runs at half that rate.
        bandwidth: bytes per second of reading and writing intermediates.
        gathering: the same of the table of all pairs of a block.
        convolution: rate of a convolution, as a share of `flops`; above 1
            where the products with padding, which count here, are skipped.
        convolution_training: the same with its gradients.
        convolution_inner: products of an output number at which a convolution
            runs at half of these rates.
        launch: seconds that a small operation takes, whatever its size.
        training: how much longer moving takes with the gradients.
        fourier: operations per second of fast Fourier transforms; 0 where
            there are none.
        spectral: whether transforms are worth while (half precisions are
            computed in float32 there).
        memory: bytes that a position part should leave room in; beyond, a
            plan that needs less is taken, if it is not much slower.
        lanes: the last axis of an intermediate is stored in multiples of this
            many numbers.
    """

    flops: float
    inner: float
    bandwidth: float
    gathering: float
    convolution: float
    convolution_training: float
    convolution_inner: float
    launch: float
    training: float
    fourier: float
    spectral: bool
    memory: float
    lanes: int = 1


# cpu: fitted to layers drawn at random (`benchmarks.regret`). gpu: from the
# vendors' figures of an H200, not measured here. tpu: fitted to what the
# compiler of v3 expects of layers drawn at random, in bfloat16
# (`benchmarks.tpu_regret`); never measured.
DEVICES = {
    "cpu": Device(
        *(1.4e11, 4.1, 1e10, 8.7e9, 1.25, 0.22, 52, 1.1e-5, 2.6, 1.4e10),
        *(True, 2**32),
    ),
    "gpu": Device(
        *(4e13, 64, 4e12, 4e12, 0.3, 0.3, 0, 8e-6, 3.0, 1e12),
        *(False, 2**34),
    ),
    "tpu": Device(
        *(3e13, 64, 4.5e11, 2.8e12, 0.3, 0.3, 0, 4e-6, 2.0, 1e11),
        *(False, 2**34, LANES),
    ),
}
# Files of TFLite and ONNX, which have no transforms.
DEVICES["portable"] = dataclasses.replace(DEVICES["cpu"], fourier=0.0)

# What a batch of unknown size is taken for: enough to share the table's cost.
TYPICAL_BATCH = 8
_FLOAT = 4
# What a convolution takes beside its products, for each axis.
_AXIS_LAUNCHES = 2
_MAX_SLOWDOWN = 3  # of an algorithm that fits, compared with the fastest
# Bytes; smaller blocks have smaller tables, which are held at every size of
# the batch.
_HUGE_TABLE = 3 * 2**27
# What TensorFlow's libraries hold while they compute, measured on a CPU.
_WORKSPACE = 12 * 2**20
# What `planning_for` says in a thread, innermost last; also by the graph that
# is outermost there.
_targets = threading.local()
_targets_of_graph = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class Dims:
    """The channel sizes of a position lambda."""

    num_heads: int
    key_dim: int
    value_dim: int
    intra_depth: int = 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a position output is computed, and the cost that the model expects.

    Attributes:
        algorithm: name in `IMPLEMENTATIONS`.
        sizes: queries of a block per axis; empty for convolutions.
        operations: of an example, two for each multiply-add; 0 where sizes
            are unknown.
        table_operations: of the table, once for a batch.
        memory: bytes at the peak of a call, or with `training` of a step with
            its gradients, per example. Counted, and fitted to what is
            measured on a CPU (`benchmarks.plan_memory`).
        table_memory: the same of the table and of libraries, once for a
            batch.
        seconds: estimate for a batch, of 8 if its size is unknown; a figure
            to compare, not a promise.
        alternatives: the best plan of every other algorithm that `"auto"`
            considers, fastest first.
        intermediate: bytes of the lambdas or scores, per example.
    """

    algorithm: str
    sizes: tuple[int, ...] = ()
    operations: int = 0
    table_operations: int = 0
    memory: int = 0
    table_memory: int = 0
    seconds: float = math.inf
    alternatives: tuple["Plan", ...] = ()
    intermediate: int = 0

    def __str__(self):
        blocks = "x".join(map(str, self.sizes))
        name = f"{self.algorithm}({blocks})" if blocks else self.algorithm
        if not self.operations:
            return f"{name}: sizes unknown"
        return (
            f"{name}: {self.operations / 1e6:.1f} Mop, "
            f"{self.memory / 2**20:.2f} MiB an example"
        )


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
        implementation: one of `IMPLEMENTATIONS`.
        device: key of `DEVICES`, or None for `target_device()`.
        training: bool. Whether gradients count.
        batch: int. Examples of a batch; None where that is unknown.

    Returns:
        The `Plan` with the smallest estimate, of the named algorithm or, for
        `"auto"`, of all that are worth considering.

    Raises:
        ValueError: if the name is unknown, needs static sizes that
            `geometry` does not have, or transforms that the device has not.
    """
    one_of("implementation", implementation, IMPLEMENTATIONS)
    if geometry is not None and geometry.is_static:
        device = device or target_device()
        needed = geometry.rank == 1 and implementation.startswith("spectral")
        if needed and not DEVICES[device].fourier:
            raise ValueError(
                f"`implementation={implementation!r}` computes sequences by "
                f"fast Fourier transforms, which {device!r} has not. Use "
                "'auto' or another one."
            )
        return _chosen(
            geometry, dims, implementation, device, bool(training), batch
        )
    if implementation == "auto":
        return Plan("conv2d")
    if implementation not in CONVOLUTIONS:
        raise ValueError(
            f"`implementation={implementation!r}` needs static spatial "
            "sizes. Received inputs of unknown size: fix it, or use one of "
            f"{CONVOLUTIONS} or 'auto'."
        )
    return Plan(implementation)


@functools.lru_cache(maxsize=1024)
def _chosen(geometry, dims, implementation, device, training, batch):
    best = {}
    names = considered(DEVICES[device], geometry.rank)
    if implementation != "auto":
        names.append(implementation)
    for name in names:
        best[name] = best_plan(
            geometry, dims, name, DEVICES[device], training, batch
        )
    if implementation == "auto":
        limit = _MAX_SLOWDOWN * min(plan.seconds for plan in best.values())
        room = DEVICES[device].memory
        implementation = min(
            best,
            key=lambda name: (
                best[name].seconds > limit,
                not _fits(best[name], batch or TYPICAL_BATCH, room),
                best[name].seconds,
            ),
        )
    chosen = best.pop(implementation)
    others = sorted(best.values(), key=lambda plan: plan.seconds)
    logging.getLogger(__name__).debug(
        "Position lambdas of %s on %s: %s", geometry.context, device, chosen
    )
    return dataclasses.replace(chosen, alternatives=tuple(others))


def best_plan(geometry, dims, algorithm, device, training=True, batch=None):
    """Chooses the blocks of one algorithm.

    Args:
        geometry: a static `Geometry`.
        dims: `Dims`.
        algorithm: one of `IMPLEMENTATIONS`, not `"auto"`.
        device: a `Device`, of `DEVICES` or not.
        training: bool. Whether gradients count.
        batch: int. Examples of a batch; None where that is unknown.

    Returns:
        The `Plan` with the smallest estimate, of those that fit if any does.
    """
    batch = batch or TYPICAL_BATCH
    new_work = functools.partial(_Work, device, training, batch)
    return min(
        _COSTS[algorithm](geometry, dims, new_work),
        key=lambda plan: (
            not _fits(plan, batch, device.memory),
            plan.table_memory > _HUGE_TABLE + _WORKSPACE,
            plan.seconds,
        ),
    )


def considered(device, rank):
    """Returns the algorithms that `"auto"` chooses from, as a list.

    Args:
        device: a `Device`, of `DEVICES` or not.
        rank: int. Axes of the geometry.
    """
    names = ["lambda_first", "query_first", "conv2d"]
    if device.spectral and (rank > 1 or device.fourier):
        names.append("spectral")
    if device.lanes > 1:
        names.append("batch_last")
        if rank > 1:
            names.append("spectral_batch_last")
    return names


def target_device():
    """Returns the key of `DEVICES` that plans are made for.

    What `planning_for` says in this thread or, in a replica of a strategy, in
    the one that runs it; or else the best device of this process.
    """
    targets = getattr(_targets, "stack", None)
    if not targets:
        # A replica has a thread of its own, but the graph of its strategy's.
        targets = _targets_of_graph.get(_outermost_graph())
    if targets:
        return targets[-1]
    for device in ("TPU", "GPU"):
        if tf.config.list_logical_devices(device):
            return device.lower()
    return "cpu"


@contextlib.contextmanager
def planning_for(device):
    """Makes plans for a device that this process may not have.

    Holds in the thread that enters it, for what it traces, and for the
    replicas of the strategies that it runs; other threads do not see it.

    "portable" is for files of TFLite and ONNX. What traces a model inside
    makes a graph of operations that both have:

        with ops.planning_for("portable"):
            content = tf.lite.TFLiteConverter.from_keras_model(model).convert()

    Args:
        device: key of `DEVICES`.

    Raises:
        ValueError: if it is not one.
    """
    one_of("device", device, DEVICES)
    if not hasattr(_targets, "stack"):
        _targets.stack = []
    targets, graph = _targets.stack, _outermost_graph()
    before = _targets_of_graph.get(graph)
    _targets_of_graph[graph] = targets
    targets.append(device)
    try:
        yield
    finally:
        targets.pop()
        if before is None:
            del _targets_of_graph[graph]
        else:
            _targets_of_graph[graph] = before


def _outermost_graph():
    """Returns the default graph around all functions that are being traced.

    Every thread has its own where nothing is traced, also eagerly.
    """
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    return graph


def _fits(plan, batch, room):
    return batch * plan.memory + plan.table_memory <= room


def _all_blocks(geometry):
    """Every cut of a geometry that is worth considering."""
    for sizes in itertools.product(*map(_block_sizes, geometry.queries)):
        yield Blocks.of(geometry, sizes)


def _block_sizes(length):
    """Even divisions of an axis, near the sizes that pay."""
    counts = {1}
    for size in (4, 8, 16, 32, 64, 128):
        counts.add(max(round(length / size), 1))
    return sorted({-(-length // count) for count in counts})


def _einsum(geometry, dims, new_work):
    h, k, v, u = dataclasses.astuple(dims)
    n, m = math.prod(geometry.queries), math.prod(geometry.context)
    work = new_work()
    work.product(n * k, m * u, v)
    work.product(n * h, k, v)
    work.move(n * k * v, 4)
    work.gather_table(n * m * k * u)
    work.hold(n * k * v, 2, 4)
    yield work.plan("einsum", geometry.queries, n * k * v)


def _lambda_first(geometry, dims, new_work):
    h, k, v, u = dataclasses.astuple(dims)
    for blocks in _all_blocks(geometry):
        x, t, s = math.prod(blocks.counts), blocks.queries, blocks.context
        work = new_work()
        work.cut(blocks, u * v, h * k + h * v, last=v)
        work.product(t * k, s * u, x * v)
        work.product(t * x * h, k, v)
        work.move(x * t * k * v, 4, last=v)
        work.gather_table(t * s * k * u)
        work.hold(x * s * u * v, 2, 4)
        work.hold(x * t * k * v, 2, 4)
        yield work.plan("lambda_first", blocks.sizes, x * t * k * v)


def _query_first(geometry, dims, new_work):
    h, k, v, u = dataclasses.astuple(dims)
    for blocks in _all_blocks(geometry):
        x, t, s = math.prod(blocks.counts), blocks.queries, blocks.context
        work = new_work()
        work.cut(blocks, u * v, h * k + h * v, last=v)
        work.product(x * t * h, k, s * u)
        work.product(x * t * h, s * u, v)
        work.move(x * t * h * s * u, 4, last=s * u)
        work.gather_table(t * s * k * u)
        work.hold(x * s * u * v, 2, 4)
        work.hold(x * t * h * s * u, 2, 4)
        yield work.plan("query_first", blocks.sizes, x * t * h * s * u)


def _batch_last(geometry, dims, new_work):
    h, k, v, u = dataclasses.astuple(dims)
    for blocks in _all_blocks(geometry):
        x, t, s = math.prod(blocks.counts), blocks.queries, blocks.context
        work = new_work()
        work.cut(blocks, u * v, h * k + h * v)
        work.product(t * k, s * u, x * v)
        # Transposed, multiplied and added up.
        work.move(x * t * k * v, 5)
        # As it comes out of the product; then merged with t, if that fills.
        work.move(x * t * k * v, 2, last=work.batch)
        work.gather_table(t * s * k * u)
        work.hold(x * s * u * v, 2, 4)
        work.hold(x * t * k * v, 2, 4)
        yield work.plan("batch_last", blocks.sizes, x * t * k * v)


def _spectral(geometry, dims, new_work):
    if geometry.rank == 1:
        yield _spectral_of_a_sequence(geometry, dims, new_work())
        return
    h, k, v, u = dataclasses.astuple(dims)
    for blocks in _all_blocks(geometry):
        if blocks.counts[0] > 1:
            continue
        first, rest = blocks.axes[0].axis, Blocks(blocks.axes[1:])
        rows, frequencies = first.queries, num_frequencies(first)
        width = math.prod(geometry.context[1:])
        x, t, s = math.prod(rest.counts), rest.queries, rest.context
        work = new_work()
        work.cut(rest, 2 * frequencies * u * v, rows * (h * k + h * v))
        work.product(2 * frequencies, first.context, width * u * v)
        work.product(2 * frequencies * t * k, 2 * s * u, x * v)
        work.product(rows, 2 * frequencies, t * k * x * v)
        work.product(rows * t * x * h, k, v)
        work.move(2 * frequencies * x * t * k * v, 2)
        work.move(rows * x * t * k * v, 2)
        work.move(math.prod(geometry.queries) * h * (k + v), 2)
        entries = math.prod(geometry.taps[1:]) * k * u
        work.product_of_table(4 * frequencies, first.taps, entries)
        work.move_table(4 * frequencies * t * s * k * u, 6)
        work.hold_spectra(2 * frequencies, rows, x * s * u * v, x * t * k * v)
        yield work.plan("spectral", blocks.sizes, rows * x * t * k * v)


def _spectral_batch_last(geometry, dims, new_work):
    if geometry.rank == 1:
        (plan,) = _spectral(geometry, dims, new_work)
        yield dataclasses.replace(plan, algorithm="spectral_batch_last")
        return
    h, k, v, u = dataclasses.astuple(dims)
    for blocks in _all_blocks(geometry):
        if blocks.counts[0] > 1:
            continue
        first, rest = blocks.axes[0].axis, Blocks(blocks.axes[1:])
        rows, frequencies = first.queries, num_frequencies(first)
        width = math.prod(geometry.context[1:])
        x, t, s = math.prod(rest.counts), rest.queries, rest.context
        work = new_work()
        work.cut(rest, 2 * frequencies * u * v, rows * (h * k + h * v))
        # The examples are columns too, so that their number is no limit.
        work.product(width * u * v, first.context, 2 * frequencies)
        work.product(x * v, 2 * s * u, 2 * frequencies * t * k)
        work.product(t * k * x * v, 2 * frequencies, rows)
        lambdas = t * k * x * v
        # A compiler lets the longer of two axes fill the rows of tiles.
        last = max(work.batch, rows)
        work.move(2 * frequencies * lambdas, 2, last=last)
        work.move(rows * lambdas, 2, last=last)
        entries = math.prod(geometry.taps[1:]) * k * u
        work.product_of_table(2 * frequencies, first.taps, entries)
        work.move_table(4 * frequencies * t * s * k * u, 6)
        work.hold_spectra(2 * frequencies, rows, x * s * u * v, lambdas)
        yield work.plan("spectral_batch_last", blocks.sizes, rows * lambdas)


def _spectral_of_a_sequence(geometry, dims, work):
    h, k, v, u = dataclasses.astuple(dims)
    (axis,) = geometry.axes
    if axis.is_causal:
        piece, levels = halvings(axis)
        inner = piece_axis(axis, piece)
        pieces = 2**levels
        parts = [
            (half_axis(axis, piece * 2**level), pieces // 2 ** (level + 1))
            for level in range(levels)
        ]
        work.product(inner.queries * k, piece * u, pieces * v)
        work.gather_table(inner.queries * piece * k * u)
    else:
        pieces, parts = 1, [(axis, 1)]
    for part, count in parts:
        points = transform_length(part)
        work.transform(points, count * (u * v + k * v), k * u)
        # Spectra are complex, and the transforms copy what they read and write.
        work.move(2 * count * points * k * v, 3 * (2 + u))
        work.hold(2 * count * points * k * v, 1, 2)
    n = math.prod(geometry.queries)
    work.product(n * h, k, v)
    work.move(n * k * v, 4 + 2 * len(parts))
    work.hold(n * k * v, 2, 4)
    return work.plan("spectral", geometry.queries, n * k * v)


def _conv2d(geometry, dims, new_work):
    spans = math.prod(axis.span for axis in geometry.axes)
    yield _convolution("conv2d", geometry, dims, new_work(), spans, 1)


def _depthwise(geometry, dims, new_work):
    spans = math.prod(axis.span for axis in geometry.axes)
    heads = dims.intra_depth
    yield _convolution("depthwise", geometry, dims, new_work(), spans, heads)


def _unfolded(geometry, dims, new_work):
    spans = math.prod(axis.span for axis in geometry.axes[1:])
    taps = geometry.axes[0].taps * spans
    yield _convolution("unfolded", geometry, dims, new_work(), taps, 1)


def _convolution(name, geometry, dims, work, taps, copies):
    h, k, v, u = dataclasses.astuple(dims)
    n, device = math.prod(geometry.queries), work.device
    share = device.convolution_training if work.training else device.convolution
    share *= taps * u / (taps * u + device.convolution_inner)
    work.product(n * v, taps * u, k, share)
    work.product(n * h * copies, k, v)
    work.move(n * k * v * copies, 6)
    work.launch(_AXIS_LAUNCHES * geometry.rank)
    work.hold(n * k * v * copies, 2, 4)
    return work.plan(name, (), n * k * v * copies)


_COSTS = {
    "einsum": _einsum,
    "conv2d": _conv2d,
    "depthwise": _depthwise,
    "unfolded": _unfolded,
    "lambda_first": _lambda_first,
    "query_first": _query_first,
    "batch_last": _batch_last,
    "spectral": _spectral,
    "spectral_batch_last": _spectral_batch_last,
}
IMPLEMENTATIONS = ("auto", *_COSTS)
# What needs no static size.
CONVOLUTIONS = ("conv2d", "depthwise", "unfolded")


class _Work:
    """Adds up what a batch costs."""

    def __init__(self, device, training, batch):
        self.device = device
        self.training = training
        self.batch = batch
        self.operations = self.table_operations = 0
        self.memory = self.table_memory = 0
        self.seconds = 0.0

    def product(self, rows, inner, columns, share=1.0):
        """A matrix product: `(rows, inner)` by `(inner, columns)`."""
        self.operations += 2 * rows * inner * columns
        self._multiply(self.batch, rows, inner, columns, share)

    def product_of_table(self, rows, inner, columns):
        """The same of the table, once for a batch."""
        self.table_operations += 2 * rows * inner * columns
        self._multiply(1, rows, inner, columns, 1.0)

    def launch(self, times):
        """Operations that are small."""
        self._wait(times * self.device.launch)

    def transform(self, points, rows, table_rows):
        """Fast Fourier transforms of real numbers, each of so many points."""
        each = 5 * points * (points.bit_length() - 1) // 2
        self.operations += rows * each
        self.table_operations += table_rows * each
        passes = 3 if self.training else 1
        total = passes * (self.batch * rows + table_rows) * each
        self.seconds += total / self.device.fourier + self.device.launch

    def _multiply(self, times, rows, inner, columns, share):
        operations = 2 * times * rows * inner * columns
        narrow = min(inner, columns)
        slowdown = (narrow + self.device.inner) / (narrow * share)
        passes = 3 if self.training else 1
        seconds = passes * operations * slowdown / self.device.flops
        self.seconds += seconds + self.device.launch

    def move(self, floats, times, last=None):
        """Intermediates of an example, read or written so many times.

        Args:
            floats: their number.
            times: how often each is read or written.
            last: length of the last axis; None where it is so long that
                filling it up does not matter.
        """
        if last is not None:
            floats *= -(-last // self.device.lanes) * self.device.lanes / last
        self._move(self.batch * floats, times, self.device.bandwidth)

    def move_table(self, floats, times):
        """Intermediates of the table, once for a batch."""
        self.table_memory += self._held(floats, 1.5, 1.5)
        self._move(floats, times, self.device.bandwidth)

    def gather_table(self, floats):
        """The table of all pairs of a block, once for a batch."""
        self.table_memory += self._held(floats, 1.5, 1.5)
        self._move(floats, 4, self.device.gathering)

    def _move(self, floats, times, bandwidth):
        seconds = floats * _FLOAT * times / bandwidth
        self._wait(seconds + self.device.launch)

    def _wait(self, seconds):
        """Time that is not spent on products; longer with the gradients."""
        factor = self.device.training if self.training else 1.0
        self.seconds += factor * seconds

    def cut(self, blocks, values, queries, last=None):
        """Values into windows; queries and outputs into blocks and back.

        Args:
            blocks: `Blocks`.
            values: floats of values at a context position.
            queries: floats of queries and outputs at a query position.
            last: length of the last axis of these, as in `move`.
        """
        counts = math.prod(blocks.counts)
        cuts = sum(axis.count > 1 for axis in blocks.axes)
        self.move(counts * blocks.context * values, 2 + 2 * cuts, last)
        ragged = any(axis.axis.queries % axis.size for axis in blocks.axes)
        passes = 2 * (cuts > 0 and blocks.rank > 1) + 6 * ragged
        if passes:
            self.move(counts * blocks.queries * queries, passes, last)

    def hold(self, floats, forward, training):
        """Numbers of an example, so many times at the peak of memory.

        Args:
            floats: their number.
            forward: copies of them in a call.
            training: copies of them, and of gradients, in a training step.
        """
        self.memory += self._held(floats, forward, training)

    def hold_spectra(self, columns, rows, windows, lambdas):
        """As `hold`, for a transform of the first axis.

        Args:
            columns: real and imaginary parts.
            rows: queries along the first axis.
            windows: floats of the context of all blocks in one column.
            lambdas: floats of lambdas in one row.
        """
        # The gradient adds up a window's shifted pieces, each padded.
        self.hold(columns * windows, 2, 5.4)
        self.hold((columns + rows) * lambdas, 0.7, 1.75)

    def _held(self, floats, forward, training):
        times = training if self.training else forward
        return math.ceil(times * floats * _FLOAT)

    def plan(self, algorithm, sizes, floats):
        return Plan(
            algorithm,
            sizes,
            self.operations,
            self.table_operations,
            self.memory,
            self.table_memory + _WORKSPACE,
            self.seconds,
            intermediate=floats * _FLOAT,
        )
