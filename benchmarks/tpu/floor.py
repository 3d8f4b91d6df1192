"""Adds up what a training step must at least cost on a TPU.

    python -m benchmarks.tpu.floor                       five minutes

A floor under every program: the products of each layer at the rate of the
matrix units, or the bytes of its inputs, outputs and lambdas at that of the
memory, whichever takes longer, as if all else were free.
"""

import math

from benchmarks import records
from benchmarks.tpu.lowering import PASSES
from benchmarks.tpu.lowering import recipe_and_network
from benchmarks.tpu.programs import PATTERNS
from benchmarks.tpu.programs import vanilla
from lambdanet_tf.analysis import analyze
from lambdanet_tf.ops import planning_for

# Of a core of v3: operations a second in bfloat16, bytes a second of memory.
FLOPS, BANDWIDTH = 61.5e12, 450e9
# Written and read forward; read again, its gradient written and read backward.
MOVES = 5
BFLOAT16 = 2  # bytes


def floor(program):
    """Seconds that a training step takes at least, all and in lambda layers."""
    with planning_for("tpu"):
        _, network = recipe_and_network(program)
        analysis = analyze(network, batch_size=program.batch)
    seconds = {"all": 0.0, "lambda": 0.0}
    for layer in analysis.layers:
        if not layer.executed_flops:
            continue  # A compiler may compute it on the way.
        products = PASSES * program.batch * layer.executed_flops
        kept = layer.activation_bytes
        if layer.algorithm == "query_first":  # It forms no lambdas.
            kept = BFLOAT16 * math.prod(layer.output_shape)
        moved = MOVES * program.batch * kept
        least = max(products / FLOPS, moved / BANDWIDTH)
        seconds["all"] += least
        seconds["lambda"] += least if layer.algorithm else 0.0
    return seconds


def main(arguments=None):
    recorder, _ = records.start("tpu_floor", __doc__, arguments)
    programs = {x.name: x for x in map(vanilla, PATTERNS)}
    recorder.fill(
        [x.case(chip="v3") for x in programs.values()],
        lambda case: {"floor": floor(programs[case["name"]])},
    )


if __name__ == "__main__":
    main()
