"""Times lambda layers: every algorithm, and other implementations.

    python -m benchmarks.layers.speed                    all lines, 25 minutes
    python -m benchmarks.layers.speed --baselines        timm, lucidrains, too
    python -m benchmarks.layers.speed --device GPU:0     on another device
    python -m benchmarks.layers.speed --before HEAD~1    compares two commits

Whole layers in float32, in turns: a call with `training=False`, and the
gradient of a sum of squares with respect to inputs and weights. `--before`
prints ratios to another commit, which has a process of its own.
"""

import dataclasses
import functools
import io
import itertools
import math
import subprocess
import tarfile
import tempfile

import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from benchmarks.layers import baselines
from lambdanet_tf import ops
from lambdanet_tf.layers import LambdaLayer

EINSUM_LIMIT = 800  # positions; beyond, the paper's table has gigabytes
OPERATIONS_LIMIT = 3e10  # of a convolution, per call
HOPELESS = 20  # times what `auto` takes
PHASES = ("forward", "training")


@dataclasses.dataclass(frozen=True)
class Line:
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

    def algorithms(self):
        """The algorithms that can be timed here in sensible time."""
        names = [*ops.implementations(len(self.grid))]
        taps = [min(self.scope or 2 * n, 2 * n - 1) for n in self.grid]
        positions = math.prod(self.grid)
        operations = 2 * self.batch * positions * math.prod(taps)
        operations *= self.key_dim * self.intra_depth * self.filters
        if operations / self.num_heads >= OPERATIONS_LIMIT:
            names = [x for x in names if x not in ("conv2d", "depthwise")]
        if positions > EINSUM_LIMIT:
            names.remove("einsum")
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
    settings = dataclasses.asdict(line)
    shape = settings.pop("batch"), *settings.pop("grid"), line.filters
    layer = LambdaLayer(implementation=implementation, **settings)
    return layer, *compiled(layer, shape)


def is_hopeless(function, chosen):
    """Returns whether an algorithm takes too long, or too much memory."""
    try:
        taken = timing.turns({"other": function, "auto": chosen}, 0, least=1)
    except tf.errors.ResourceExhaustedError:
        return True
    return taken["other"][0] > HOPELESS * taken["auto"][0]


def time_line(line, options):
    is_gpu = "GPU" in options.device
    layer, *both = steps(line, "auto")
    functions = {"auto": both}
    for name in line.algorithms()[1:]:
        _, *both = steps(line, name)
        if not is_hopeless(both[1], functions["auto"][1]):
            functions[name] = both
    if options.baselines:
        functions |= baselines.steps(line, "cuda" if is_gpu else "cpu")
    found = {}
    for index, plan in enumerate((layer.inference_plan, layer.plan)):
        chosen = {name: both[index] for name, both in functions.items()}
        if is_gpu:
            chosen = {x: synced(y) for x, y in chosen.items()}
        found[PHASES[index]] = {
            "plan": str(plan),
            "operations": plan.operations,
            "seconds": timing.turns(chosen, options.seconds),
        }
    return found


def synced(function):
    """Returns a function that ends when the device has computed it."""

    def call():
        function()
        tf.test.experimental.sync_devices()

    return call


def matrix_rate():
    """Returns operations per second of a large float32 product."""
    size = 2048
    matrix = tf.random.normal([size, size])
    product = tf.function(lambda: tf.matmul(matrix, matrix), autograph=False)
    taken = timing.turns({"product": synced(product)}, 0, least=9)["product"]
    return 2 * size**3 / timing.median(taken)


def steps_of_lines():
    """Returns what the process of a commit runs, see `timing.serve`."""
    built = functools.lru_cache(1)(lambda line: steps(line, "auto")[1:])

    def step_of(request):
        number, phase = map(int, request.split())
        return built(LINES[number])[phase]

    return step_of


def compare_commits(before, only, seconds):
    """Prints how many times as long this checkout takes as a commit."""
    child = "benchmarks.layers.speed:steps_of_lines"
    chosen = [x for x, line in enumerate(LINES) if only in line.name]
    with tempfile.TemporaryDirectory() as folder:
        command = ["git", "archive", before, "lambdanet_tf"]
        archive = subprocess.check_output(command, cwd=records.ROOT)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        former = timing.worker(child, root=folder)
        with former as one, timing.worker(child) as other:
            for number, phase in itertools.product(chosen, range(len(PHASES))):
                request = f"{number} {phase}"
                calls = {x: functools.partial(x, request) for x in (one, other)}
                taken = timing.turns(calls, seconds, timing.FEW, clock=False)
                middle, low, high = timing.ratio(*taken.values())
                name = f"{LINES[number].name}, {PHASES[phase]}"
                text = f"{middle:.3f} ({low:.3f} to {high:.3f})"
                print(f"{name}: {text}", flush=True)


@records.script(
    "layers", seconds=5.0, baselines=False, device="CPU:0", before=""
)
def main(recorder, options):
    if options.before:
        compare_commits(options.before, options.only, options.seconds)
        return
    place = {} if "CPU" in options.device else {"device": options.device}
    lines = {(line.name, line.batch): line for line in LINES}
    rate = functools.cache(matrix_rate)

    def measure(case):
        line = lines[case["layer"], case["batch"]]
        found = time_line(line, options)
        return {x: row | {"matrix_rate": rate()} for x, row in found.items()}

    with tf.device(options.device):
        cases = [{"layer": x, "batch": y} | place for x, y in lines]
        recorder.fill(cases, measure, PHASES)
