"""Measures Table 4: memory and time of attention and of lambda layers.

    python -m benchmarks.layers.attention --memory --time      20 minutes

Memory is what XLA's compiler for CPUs assigns to a training step in float32; it
is not executed, so that a step of terabytes has a figure, too. The step is the
gradient of a sum of squares with respect to inputs and weights, of the layers
of one stage in a row, each with a shortcut.
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
# The layers of a place, and the arguments of each.
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
PAPER_BATCH = 128


class Case(NamedTuple):
    """A stage: so many layers in a row, on square maps."""

    batch: int
    side: int = 64
    filters: int = 64
    layers: int = 1

    @property
    def shape(self):
        return (self.batch, self.side, self.side, self.filters)

    def case(self, name, figure):
        place = f"{self.side}x{self.side}x{self.filters}"
        case = {"layer": name, "figure": figure, "layers": self.layers}
        return {**case, "map": place, "batch": self.batch}


def stages(batch):
    """The stages of ResNet-50 at 224 px."""
    rows = ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3))
    return [Case(batch, *row) for row in rows]


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


def measure_memory(recorder, names, folder):
    """Compiles what is not known."""
    # Read when the first program is compiled.
    flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    for name in names:
        cases = stages(PAPER_BATCH)
        if name not in SHARED:  # One layer has nothing to share with.
            cases += map(Case, BATCHES)
        for case in cases:
            tf.keras.backend.clear_session()

            def compiled(_, name=name, case=case):
                step = training_step(name, case, jit_compile=True)
                used = assigned_bytes(step, case.shape, pathlib.Path(folder))
                return {"value": used}

            recorder.get(case.case(name, "bytes"), compiled)


def measure_time(recorder, names, seconds, batch):
    for case in [Case(1), *stages(batch)]:
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
