"""What an algorithm is, and costs: operations, bytes, seconds on a device.

Every algorithm counts its own products and intermediates with a `CostModel`;
what a device does with them is data (`lambdanet_tf.ops.DEVICES`).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

_FLOAT = 4
# Bytes that TensorFlow's libraries hold while they compute, measured on a CPU.
_WORKSPACE = 3 * 2**20


@dataclasses.dataclass(frozen=True)
class Dims:
    """The channel sizes of a position lambda.

    Examples:
        >>> Dims(num_heads=4, key_dim=16, value_dim=32).intra_depth
        1
    """

    num_heads: int
    key_dim: int
    value_dim: int
    intra_depth: int = 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a position output is computed, and the cost that the model expects.

    Attributes:
        algorithm: key of `ALGORITHMS`.
        sizes: queries of a block per axis; empty where nothing is cut.
        operations: of an example, two for each multiply-add; 0 where sizes
            are unknown.
        table_operations: of the table, once for a batch.
        memory: bytes at the peak of a call, or with `training` of a step with
            its gradients, per example. Counted, and fitted to what is
            measured on a CPU.
        table_memory: the same of the table and of libraries, once for a
            batch.
        seconds: estimate for a batch, of 8 if its size is unknown; a figure
            to compare, not a promise.
        alternatives: the best plan of every other algorithm that `"auto"`
            considers, fastest first.
        intermediate: bytes of the lambdas or scores, per example.

    Examples:
        >>> str(Plan("einsum", operations=3_000_000, memory=2**20))
        'einsum: 3.0 Mop, 1.00 MiB an example'
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A way to compute position outputs, and what it costs.

    Attributes:
        run: function of queries `(batch, n, heads, key_dim)`, values `(batch,
            *context, value_dim, intra_depth)`, the table `(*taps, key_dim,
            intra_depth)`, already cropped, and the `Geometry` or its
            `Blocks`. Returns `(batch, n, heads, value_dim)`.
        costs: function of a static geometry, `Dims`, and a function that
            makes a `CostModel`; yields a `Plan` for each way to cut it.
        blocked: whether `run` takes the `Blocks` of a plan for the geometry.
        needs_static: whether it needs sizes that are known when it is traced.
        mixes_positions: whether rounding errors of a position reach positions
            outside its scope, also where the geometry is not causal itself.
        ranks: axes of the geometries that it serves.
        devices: names of the `DEVICES` on which `"auto"` considers it.
    """

    run: Callable[..., Any]
    costs: Callable[..., Any]
    blocked: bool = False
    needs_static: bool = True
    mixes_positions: bool = False
    ranks: tuple[int, ...] = (1, 2, 3)
    devices: tuple[str, ...] = ()


class CostModel:
    """Adds up what an algorithm costs for a batch.

    Args:
        algorithm: key of `ALGORITHMS`.
        device: a `Device`, of `DEVICES` or not.
        training: bool. Whether gradients count.
        batch: int. Examples of a batch.
    """

    def __init__(self, algorithm, device, training, batch):
        self.algorithm = algorithm
        self.device = device
        self.training = training
        self.batch = batch
        self.operations = self.table_operations = 0
        self.memory = self.table_memory = 0
        self.seconds = 0.0

    def product(self, rows, inner, columns, share=1.0):
        """A matrix product: `(rows, inner)` by `(inner, columns)`."""
        times = self.batch
        self.operations += self._multiply(times, rows, inner, columns, share)

    def product_of_table(self, rows, inner, columns):
        """The same of the table, once for a batch."""
        self.table_operations += self._multiply(1, rows, inner, columns)

    def _multiply(self, times, rows, inner, columns, share=1.0):
        """Returns the operations of one of so many products."""
        operations = 2 * rows * inner * columns
        narrow = min(inner, columns)
        slowdown = (narrow + self.device.inner) / (narrow * share)
        seconds = (
            self._passes * times * operations * slowdown / self.device.flops
        )
        self.seconds += seconds + self.device.launch
        return operations

    @property
    def _passes(self):
        """A product or transform, and the two of its gradients."""
        return 3 if self.training else 1

    def launch(self, times):
        """Operations that are small."""
        self._wait(times * self.device.launch)

    def transform(self, points, rows, table_rows):
        """Fast Fourier transforms of real numbers, each of so many points."""
        each = 5 * points * (points.bit_length() - 1) // 2
        self.operations += rows * each
        self.table_operations += table_rows * each
        total = self._passes * (self.batch * rows + table_rows) * each
        rate = self.device.fourier
        self.seconds += total / rate + self.device.launch if rate else math.inf

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

    def move_table(self, floats, times, bandwidth=None):
        """Intermediates of the table, once for a batch."""
        self.table_memory += math.ceil(1.5 * floats * _FLOAT)
        self._move(floats, times, bandwidth or self.device.bandwidth)

    def gather_table(self, floats):
        """The table of all pairs of a block, once for a batch."""
        self.move_table(floats, 4, self.device.gathering)

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
        times = training if self.training else forward
        self.memory += math.ceil(times * floats * _FLOAT)

    def hold_spectra(self, columns, rows, windows, lambdas):
        """As `hold`, for a transform of the first axis.

        Args:
            columns: real and imaginary parts.
            rows: queries along the first axis.
            windows: floats of the context of all blocks in one column.
            lambdas: floats of lambdas in one row.
        """
        # The gradient adds up a window's shifted windows, each padded.
        self.hold(columns * windows, 2, 5.4)
        self.hold((columns + rows) * lambdas, 0.7, 1.75)

    def plan(self, sizes, floats, workspace=_WORKSPACE):
        """Returns the `Plan`.

        Args:
            sizes: queries of a block per axis; empty where nothing is cut.
            floats: numbers of the lambdas or scores of an example.
            workspace: bytes that libraries hold.
        """
        return Plan(
            self.algorithm,
            sizes,
            self.operations,
            self.table_operations,
            self.memory,
            self.table_memory + workspace,
            self.seconds,
            intermediate=floats * _FLOAT,
        )
