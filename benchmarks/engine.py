"""Times lambda layers: every algorithm, and other implementations.

    make bench                                      everything, into docs/
    python benchmarks/engine.py --lines 56 --peers  some lines, to the screen

Whole layers in float32 on the CPU: projections, normalisation, content and
position part. Forward is a call with `training=False`, training the gradient
of a sum of squares with respect to inputs and weights, batch statistics
included. Within a line all contestants take turns, and the medians are
compared as ratios.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from benchmarks import opening
from benchmarks import peers
from benchmarks import report
from benchmarks.timing import interleaved
from benchmarks.timing import peak_megabytes
from lambdanet_tf import ops
from lambdanet_tf.layers import LambdaLayer

EINSUM_LIMIT = 800  # positions; beyond, the paper's table has gigabytes
OPERATIONS_LIMIT = 3e10  # of a convolution, per call
HOPELESS = 20  # times the estimate of `auto`
PARTIAL = "engine.partial.json"  # of a run that was stopped


@dataclasses.dataclass(frozen=True)
class Line:
    """One geometry of the table."""

    grid: tuple[int, ...]
    filters: int
    scope: int | None
    batch: int
    key_dim: int = 16
    intra_depth: int = 1
    causal: bool = False
    num_heads: int = 4

    @property
    def name(self):
        parts = ["x".join(map(str, self.grid)), f"d={self.filters}"]
        parts.append(f"scope {self.scope or 'global'}")
        if self.key_dim != 16:
            parts.append(f"k={self.key_dim}")
        if self.intra_depth > 1:
            parts.append(f"u={self.intra_depth}")
        return ", ".join(parts) + (", causal" if self.causal else "")

    @property
    def positions(self):
        return math.prod(self.grid)

    @property
    def shape(self):
        return (self.batch, *self.grid, self.filters)

    @property
    def geometry(self):
        """How the table of the layer lies over its grid."""
        taps = [self.scope or 2 * size - 1 for size in self.grid]
        if self.causal:
            past = taps[0] // 2 + 1
            return ops.Geometry.of([ops.causal_axis(self.grid[0], past)])
        return ops.Geometry.of(map(ops.same_axis, self.grid, taps))

    @property
    def dims(self):
        """The channel sizes of its position lambdas."""
        value_dim = self.filters // self.num_heads
        return ops.Dims(
            self.num_heads, self.key_dim, value_dim, self.intra_depth
        )

    def layer(self, implementation):
        """A lambda layer of this package."""
        return LambdaLayer(
            num_heads=self.num_heads,
            key_dim=self.key_dim,
            intra_depth=self.intra_depth,
            scope=self.scope,
            causal=self.causal,
            implementation=implementation,
        )

    def contestants(self):
        """The algorithms that can be timed here in sensible time."""
        considered = ops.candidates(ops.DEVICES["cpu"], len(self.grid))
        names = ["auto", *considered]
        names.remove("conv2d")
        taps = [
            2 * n - 1 if self.scope is None else min(self.scope, 2 * n - 1)
            for n in self.grid
        ]
        operations = 2 * self.batch * self.positions * math.prod(taps)
        operations *= self.key_dim * self.intra_depth * self.filters
        if operations / self.num_heads < OPERATIONS_LIMIT:
            names.append("conv2d")
            if len(self.grid) < 3:
                names.append("depthwise")
        if self.positions <= EINSUM_LIMIT:
            names.append("einsum")
        return names


LINES = (
    Line((56, 56), 64, 23, 2),
    Line((56, 56), 64, 7, 2),
    Line((56, 56), 128, 23, 2),
    Line((28, 28), 128, 23, 4),
    Line((28, 28), 128, 7, 4),
    Line((28, 28), 128, None, 4),
    Line((28, 28), 256, 23, 4),
    Line((28, 28), 256, None, 4),
    Line((14, 14), 256, 23, 8),
    Line((14, 14), 256, 7, 8),
    Line((14, 14), 256, None, 8),
    Line((14, 14), 512, 23, 8),
    Line((7, 7), 512, None, 16),
    Line((64, 64), 256, 23, 2),
    Line((15, 21), 256, 9, 4),
    Line((14, 14), 256, 7, 8, intra_depth=4),
    Line((14, 14), 64, 5, 8, key_dim=32),
    Line((1024,), 256, 63, 4),
    Line((1024,), 256, 63, 4, causal=True),
    Line((4096,), 256, 63, 2),
    Line((4096,), 256, 63, 2, causal=True),
    Line((512,), 256, None, 4),
    Line((2048,), 256, None, 2),
    Line((2048,), 256, None, 2, causal=True),
    Line((16384,), 64, None, 1),
    Line((16384,), 64, None, 1, causal=True),
    Line((8, 14, 14), 128, 7, 2),
)


def steps(line, implementation):
    """Compiled forward and training step of one contestant."""
    inputs = tf.random.stateless_normal(line.shape, (0, 1))
    layer = line.layer(implementation)
    layer.build(line.shape)

    @tf.function(autograph=False)
    def forward():
        return layer(inputs, training=False)

    @tf.function(autograph=False)
    def training():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(tf.square(layer(inputs, training=True)))
        weights = [tf.convert_to_tensor(inputs), *layer.trainable_variables]
        return tape.gradient(loss, weights)

    return layer, forward, training


def is_hopeless(plan, chosen):
    """Whether an algorithm would only cost time and memory to be timed."""
    return plan.seconds > HOPELESS * chosen.seconds


def time_line(line, with_peers, repetitions):
    """All contestants of one line, interleaved."""
    layers, forward, training = {}, {}, {}
    for name in line.contestants():
        layer, *functions = steps(line, name)
        if name != "auto" and is_hopeless(layer.plan, layers["auto"].plan):
            continue
        layers[name], (forward[name], training[name]) = layer, functions
    if with_peers:
        for name, (run, train) in peers.steps(line).items():
            forward[name], training[name] = run, train
    plan, inference = layers["auto"].plan, layers["auto"].inference_plan
    return {
        "line": line.name,
        "grid": line.grid,
        "batch": line.batch,
        "plan": str(plan),
        "algorithm": plan.algorithm,
        "inference": str(inference),
        "operations": inference.operations * line.batch,
        "forward": interleaved(forward, repetitions),
        "training": interleaved(training, repetitions),
        "memory": {
            name: memory_of(line, name)
            for name in ("auto", "einsum")
            if name in layers
        },
    }


def memory_of(line, implementation):
    """Peak memory of a training step, in a process of its own, in MiB."""
    command = [sys.executable, "-m", "benchmarks.engine", "--memory-of"]
    command += [str(LINES.index(line)), implementation]
    output = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(output.stdout.split()[-1])


def print_memory(index, implementation):
    """Child process: what one training step adds to the peak."""
    _, _, training = steps(LINES[index], implementation)
    print(peak_megabytes(training))


def matrix_rate():
    """Operations per second of a large float32 product on this machine."""
    size = 2048
    matrix = tf.random.normal([size, size])
    product = tf.function(lambda: tf.matmul(matrix, matrix), autograph=False)
    return 2 * size**3 / interleaved({"product": product}, 9)["product"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", help="only lines whose name contains this")
    parser.add_argument(
        "--peers", action="store_true", help="time timm and lucidrains too"
    )
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--write", help="folder for table, picture and figures")
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        index, implementation = arguments.memory_of
        print_memory(int(index), implementation)
        return
    rate = matrix_rate()
    print(f"A 2048 x 2048 product: {rate / 1e9:.0f} Gop/s", flush=True)
    partial = pathlib.Path(arguments.write or ".", PARTIAL)
    rows = report.stored(partial, []) if arguments.write else []
    done = {(row["line"], row["batch"]) for row in rows}
    for line in LINES:
        if arguments.lines and arguments.lines not in line.name:
            continue
        if (line.name, line.batch) in done:
            continue
        rows.append(time_line(line, arguments.peers, arguments.repetitions))
        print(report.text_row(rows[-1]), flush=True)
        if arguments.write:
            partial.write_text(json.dumps(rows))
    if arguments.write:
        folder = pathlib.Path(arguments.write)
        order = [(line.name, line.batch) for line in LINES]
        rows.sort(key=lambda row: order.index((row["line"], row["batch"])))
        figures = {"matrix_rate": rate, "rows": rows}
        (folder / "engine.json").write_text(json.dumps(figures, indent=1))
        text = f"{report.table(figures)}\n\n{report.summary(figures)}"
        report.insert(folder, "bench", text)
        opening.write(folder)
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
