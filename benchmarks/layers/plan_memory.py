"""Measures the memory that a process takes beside what plans promise.

    python -m benchmarks.layers.plan_memory             two minutes
    python -m benchmarks.layers.plan_memory --only "[28, 28]"

Each shape and pass is a process of its own.
"""

import math

import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from lambdanet_tf import ops

MIB = 2**20
DIMS = ops.Dims(num_heads=4, key_dim=16, value_dim=16)
# Maps and scopes, from the smallest; one example.
SHAPES = (
    ((28, 28), None),
    ((56, 56), 23),
    ((64, 64), 23),
    ((64, 64), None),
    ((128, 128), None),
    ((256, 256), None),
)
# What no factor was fitted to: of every rank and algorithm that is chosen.
HELD_OUT = (
    ((96, 40), 15),
    ((40, 40), None),
    ((30, 50), 11),
    ((120, 80), 9),
    ((20, 20, 20), 7),
    ((2500,), 47),
    ((5000,), None),
)
PASSES = ("forward", "training")


def measure(grid, scope, direction):
    """What the plan says, and the peak of a first call, in MiB.

    A small map goes first, so that libraries and threads do not count.
    """
    for sizes in ([8] * len(grid), grid):
        plan, run = program(sizes, scope, direction)
        peak = timing.peak_megabytes(run)
    return {
        "plan": str(plan).partition(":")[0],
        "planned": (plan.memory + plan.table_memory) / MIB,
        "peak": peak,
    }


def program(grid, scope, direction):
    """The position output of a map, or its gradients, and its plan."""
    taps = [2 * size - 1 if scope is None else scope for size in grid]
    geometry = ops.Geometry.of(map(ops.same_axis, grid, taps))
    training = direction == "training"
    plan = ops.plan_for(geometry, DIMS, "auto", "cpu", training, batch=1)
    positions = math.prod(grid)
    shapes = (
        [1, positions, DIMS.num_heads, DIMS.key_dim],
        [1, positions, DIMS.value_dim, 1],
        [*taps, DIMS.key_dim, 1],
    )
    inputs = [tf.random.stateless_normal(shape, (0, 1)) for shape in shapes]

    def forward():
        queries, values, table = inputs
        values = tf.expand_dims(values, 2)
        return ops.lambda_output(queries, None, values, table, geometry, plan)

    def train():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(tf.square(forward()))
        return tape.gradient(loss, inputs)

    return plan, tf.function(train if training else forward, autograph=False)


def main(arguments=None):
    recorder, _ = records.start("plan_memory", __doc__, arguments)
    cases = [
        {"map": list(grid), "scope": scope, "pass": direction}
        for grid, scope in SHAPES + HELD_OUT
        for direction in PASSES
    ]
    child = "benchmarks.layers.plan_memory:measure"
    recorder.fill(cases, lambda case: timing.in_child(child, *case.values()))


if __name__ == "__main__":
    main()
