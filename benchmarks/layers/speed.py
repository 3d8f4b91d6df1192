"""Times lambda layers: every algorithm, and other implementations.

    python -m benchmarks.layers.speed                    all lines, 25 minutes
    python -m benchmarks.layers.speed --only 7x7 --seconds 1
    python -m benchmarks.layers.speed --baselines        timm, lucidrains, too

Whole layers in float32 on the CPU: projections, normalization, content and
position part. Forward is a call with `training=False`, training the gradient
of a sum of squares with respect to inputs and weights, batch statistics
included. All algorithms of a line take turns.
"""

import dataclasses
import math

import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from benchmarks.layers import baselines
from benchmarks.layers import device_fit
from lambdanet_tf import ops
from lambdanet_tf.layers import LambdaLayer

EINSUM_LIMIT = 800  # positions; beyond, the paper's table has gigabytes
OPERATIONS_LIMIT = 3e10  # of a convolution, per call
HOPELESS = 20  # times the estimate of `auto`


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

    def measured(self, training, seconds):
        """As `device_fit` takes it, with seconds by algorithm."""
        taps = [self.scope or 2 * size - 1 for size in self.grid]
        axes = map(ops.same_axis, self.grid, taps)
        if self.causal:
            axes = [ops.causal_axis(self.grid[0], taps[0] // 2 + 1)]
        sizes = self.key_dim, self.filters // self.num_heads, self.intra_depth
        dims = ops.Dims(self.num_heads, *sizes)
        place = ops.Geometry.of(axes), dims
        return device_fit.Measured(*place, training, self.batch, seconds)

    def layer(self, implementation):
        settings = dataclasses.asdict(self)
        for name in ("grid", "filters", "batch"):
            del settings[name]
        return LambdaLayer(implementation=implementation, **settings)

    def algorithms(self):
        """The algorithms that can be timed here in sensible time."""
        considered = ops.candidates(ops.DEVICES["cpu"], len(self.grid))
        names = ["auto", *considered]
        names.remove("conv2d")
        taps = [min(self.scope or 2 * n, 2 * n - 1) for n in self.grid]
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


def compiled(model, shape, **arguments):
    """Compiled forward pass and training step of a layer or a model."""
    inputs = tf.random.stateless_normal(shape, (0, 1))
    if not model.built:
        model.build(shape)

    @tf.function(autograph=False)
    def forward():
        return model(inputs, training=False, **arguments)

    @tf.function(autograph=False)
    def training():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = model(inputs, training=True, **arguments)
            loss = tf.reduce_sum(tf.square(outputs))
        weights = [tf.convert_to_tensor(inputs), *model.trainable_variables]
        return tape.gradient(loss, weights)

    return forward, training


def steps(line, implementation):
    """A layer of one algorithm, its forward pass and training step."""
    layer = line.layer(implementation)
    return layer, *compiled(layer, line.shape)


def is_hopeless(plan, chosen):
    """Whether an algorithm would only cost time and memory to be timed."""
    return plan.seconds > HOPELESS * chosen.seconds


def time_line(line, with_baselines, seconds):
    """What is recorded of a line, by phase; all its algorithms take turns."""
    layer, *both = steps(line, "auto")
    functions = {"auto": both}
    for name in line.algorithms()[1:]:
        other, *both = steps(line, name)
        if not is_hopeless(other.plan, layer.plan):
            functions[name] = both
    algorithms = {*functions}
    if with_baselines:
        functions |= baselines.steps(line)
    plans = {"forward": layer.inference_plan, "training": layer.plan}
    found = {}
    for index, (phase, plan) in enumerate(plans.items()):
        chosen = {name: both[index] for name, both in functions.items()}
        found[phase] = {
            "plan": str(plan),
            "operations": plan.operations * line.batch,
            "seconds": timing.turns(chosen, seconds),
        }
    child = "benchmarks.layers.speed:memory"
    found["training"]["mebibytes"] = {
        name: timing.in_child(child, LINES.index(line), name)
        for name in ("auto", "einsum")
        if name in algorithms
    }
    return found


def memory(number, implementation):
    """MiB of the first training step of a line, in a process of its own."""
    return timing.peak_megabytes(steps(LINES[number], implementation)[2])


def matrix_rate():
    """Operations per second of a large float32 product on this machine."""
    size = 2048
    matrix = tf.random.normal([size, size])
    product = tf.function(lambda: tf.matmul(matrix, matrix), autograph=False)
    taken = timing.turns({"product": product}, 0, least=9)["product"]
    return 2 * size**3 / timing.median(taken)


def main(arguments=None):
    recorder, options = records.start(
        "layers", __doc__, arguments, seconds=5.0, baselines=False
    )
    rate = matrix_rate()
    for line in LINES:
        case = {"layer": line.name, "batch": line.batch}
        if options.only not in line.name:
            continue
        if recorder.known({**case, "phase": "training"}):
            continue
        found = time_line(line, options.baselines, options.seconds)
        for phase, row in found.items():
            recorder.note({**case, "phase": phase}, matrix_rate=rate, **row)


if __name__ == "__main__":
    main()
