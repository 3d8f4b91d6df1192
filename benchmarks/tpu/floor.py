"""Adds up what a training step must at least cost on a TPU.

    python -m benchmarks.tpu.floor                       five minutes
    python -m benchmarks.tpu.floor --only CCCC

A floor under every program: the products of each layer at the rate of the
matrix units, or the bytes of its inputs, outputs and lambdas at that of the
memory, whichever takes longer, as if all else were free.
"""

import math

from benchmarks import records
from benchmarks.tpu.lowering import PASSES
from benchmarks.tpu.lowering import program_analysis
from benchmarks.tpu.programs import CHIPS
from benchmarks.tpu.programs import NETWORKS
from benchmarks.tpu.programs import TIMED

CHIP = "v3"
# Written and read forward; read again, its gradient written and read backward.
MOVES = 5
BFLOAT16 = 2  # bytes


def floor(analysis, program, chip):
    """Seconds that a training step takes at least, all and in lambda layers."""
    seconds = {"all": 0.0, "lambda": 0.0}
    for layer in analysis.layers:
        if not layer.executed_flops:
            continue  # A compiler may compute it on the way.
        products = PASSES * program.batch * layer.executed_flops
        kept = layer.activation_bytes
        if layer.algorithm == "query_first":  # It forms no lambdas.
            kept = BFLOAT16 * math.prod(layer.output_shape)
        moved = MOVES * program.batch * kept
        least = max(products / chip.flops, moved / chip.bandwidth)
        seconds["all"] += least
        seconds["lambda"] += least if layer.algorithm else 0.0
    return seconds


def main(arguments=None):
    recorder, _ = records.start("tpu_floor", __doc__, arguments)
    programs = {x.name: x for x in NETWORKS if x.batch == TIMED}

    def measure(case):
        program = programs[case["name"]]
        analysis = program_analysis(program)
        return {"floor": floor(analysis, program, CHIPS[CHIP])}

    recorder.fill([x.case(chip=CHIP) for x in programs.values()], measure)


if __name__ == "__main__":
    main()
