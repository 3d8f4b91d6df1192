"""Measures Table 4: memory and time of attention and of lambda layers.

    python -m benchmarks.layers.attention --memory      10 minutes
    python -m benchmarks.layers.attention --time        10 minutes
    python -m benchmarks.layers.attention --time --only axial --seconds 1

Memory is what XLA's compiler for CPUs assigns to one training step in float32:
inputs, weights, gradients and everything in between, with buffers reused. The
program is compiled, not executed, so that a step of terabytes has a figure
too. A training step is the gradient of a sum of squares with respect to inputs
and weights, with batch statistics, of the layers of one stage in a row, each
with a shortcut.
"""

import functools
import itertools
import os
import pathlib
import tempfile
from typing import NamedTuple

import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from lambdanet_tf.layers import RelativePositionEmbedding

KEY_DIM = 16
EINSUM = {"implementation": "einsum"}
# What makes the layers of a place, and the arguments of each. Those of a stage
# may share their table of relative positions.
LAYERS = {
    "global attention": (RelativeAttention, {}),
    "axial attention": (RelativeAttention, {"axis": 1}, {"axis": 2}),
    "local attention 7x7": (RelativeAttention, {"scope": 7}),
    "lambda, all pairs": (LambdaLayer, EINSUM),
    "lambda, all pairs, shared": (LambdaLayer, EINSUM),
    "lambda": (LambdaLayer, {}),
    "lambda, shared": (LambdaLayer, {}),
    "lambda convolution 7x7": (LambdaLayer, {"scope": 7}),
}
SHARED = tuple(name for name in LAYERS if name.endswith("shared"))
BATCHES = (1, 8, 32, 128, 512)
SIDES = (16, 24, 32, 48, 64, 96)
PAPER_BATCH = 128
GIB = 2**30
LIMITS = (16, 80)  # GiB: a core of a TPU v3, an A100 or H100


class Case(NamedTuple):
    """A stage: so many layers in a row, on square maps."""

    batch: int
    side: int
    filters: int
    layers: int = 1

    @property
    def shape(self):
        return (self.batch, self.side, self.side, self.filters)

    def case(self, name, figure):
        """What is recorded as the case of a figure of a layer."""
        return {
            "layer": name,
            "figure": figure,
            "layers": self.layers,
            "map": f"{self.side}x{self.side}x{self.filters}",
            "batch": self.batch,
        }


def image(batch, side=64):
    """One layer on a map of 64 channels."""
    return Case(batch, side, 64)


def stages(batch):
    """The stages of ResNet-50 at 224 px."""
    rows = ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3))
    return [Case(batch, *row) for row in rows]


def memory_cases(name):
    """The cases of a layer's tables and curves."""
    cases = stages(PAPER_BATCH)
    if name not in SHARED:  # One layer has nothing to share with.
        cases += [image(batch) for batch in BATCHES]
        cases += [image(PAPER_BATCH, side) for side in SIDES]
    return list(dict.fromkeys(cases))


def training_step(name, case, jit_compile):
    """A function of a map: its gradient and that of all weights."""
    shared, (kind, *places) = {}, LAYERS[name]
    if name in SHARED:
        table = RelativePositionEmbedding(key_dim=KEY_DIM)
        table.build([None, case.side, case.side, KEY_DIM])
        shared = {"position_embedding": table}
    rows = [
        [kind(case.filters, **arguments, **shared) for arguments in places]
        for _ in range(case.layers)
    ]
    weights = {}  # A table that layers share is a weight of each of them.
    for layer in itertools.chain(*rows):
        layer.build(case.shape)
        weights |= {id(weight): weight for weight in layer.trainable_variables}

    @tf.function(autograph=False, jit_compile=jit_compile)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for row in rows:
                residual = y
                for layer in row:
                    y = layer(y, training=True)
                y = residual + y
            loss = tf.reduce_sum(tf.square(y))
        return tape.gradient(loss, [x, *weights.values()])

    return step


def assigned_bytes(function, shape, folder):
    """Returns what XLA's compiler for CPUs assigns, by its dump in a folder."""
    for path in folder.iterdir():
        path.unlink()
    compiler = function.experimental_get_compiler_ir(tf.TensorSpec(shape))
    compiler(stage="optimized_hlo")
    (report,) = folder.glob("*memory-usage-report.txt")
    first = report.read_text().splitlines()[0]
    return int(first.removeprefix("Total bytes used: ").split()[0])


def largest_batch(bytes_of, limit):
    """The largest batch whose step fits."""
    low, high, guess = 0, None, 1
    while high is None or high - low > 1:
        used = bytes_of(guess)
        if used <= limit:
            low, below = guess, used
        else:
            high, above = guess, used
        if high is None:
            guess = max(int(low * limit / below), low + 1)
        elif low:
            share = (limit - below) / (above - below)
            guess = low + round(share * (high - low))
            guess = min(max(guess, low + 1), high - 1)
    return low


def measure_memory(recorder, names, folder):
    """Compiles what is not known, and finds where each stops fitting."""
    # Read when the first program is compiled.
    flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"

    @functools.cache
    def used(name, case):
        def compiled(_):
            tf.keras.backend.clear_session()
            step = training_step(name, case, jit_compile=True)
            used = assigned_bytes(step, case.shape, pathlib.Path(folder))
            return {"value": used}

        return recorder.get(case.case(name, "bytes"), compiled)["value"]

    def largest(case):
        def used_by(batch):
            return used(case["layer"], image(batch))

        return {"value": largest_batch(used_by, case["GiB"] * GIB)}

    for name in names:
        for case in memory_cases(name):
            used(name, case)
        for gib in () if name in SHARED else LIMITS:
            case = {"layer": name, "figure": "largest batch", "GiB": gib}
            recorder.get(case, largest)


def measure_time(recorder, names, seconds, batch):
    """Times a training step of each stage, the layers taking turns."""
    for case in [image(1), *stages(batch)]:
        inputs = tf.random.stateless_normal(case.shape, (0, 1))
        functions = {
            name: functools.partial(
                training_step(name, case, jit_compile=False), inputs
            )
            for name in names
            if name not in SHARED or case.layers > 1
        }
        for name, times in timing.turns(functions, seconds).items():
            recorder.append(case.case(name, "seconds"), seconds=times)
        tf.keras.backend.clear_session()


@records.script("attention", seconds=30.0, memory=False, time=False, batch=2)
def main(recorder, options):
    names = [name for name in LAYERS if options.only in name]
    if options.memory:
        with tempfile.TemporaryDirectory() as folder:
            measure_memory(recorder, names, folder)
    if options.time:
        measure_time(recorder, names, options.seconds, options.batch)
