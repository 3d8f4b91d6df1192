"""Holds the TPU compiler's estimates against what a step must at least cost.

    python -m benchmarks.tpu_floor --write docs

A floor under every program: the products of each layer at the rate of the
matrix units, or the bytes of its inputs, outputs and lambdas at that of the
memory, whichever takes longer, as if all else were free.
"""

import argparse
import json
import math
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks import report
from benchmarks import tpu_calibration
from benchmarks.tpu_lowering import PASSES
from benchmarks.tpu_lowering import program_analysis
from benchmarks.tpu_programs import CHIPS
from benchmarks.tpu_programs import NETWORKS
from benchmarks.tpu_programs import TIMED
from benchmarks.tpu_report import estimate

DOCUMENT = "tpu_compile.md"
CHIP = "v3"
# Written and read forward; read again, its gradient written and read backward.
MOVES = 5
BFLOAT16 = 2  # bytes


def floor(analysis, program, chip):
    """Seconds that a training step takes at least.

    Args:
        analysis: `Analysis` of the program's network.
        program: `Program`.
        chip: `Chip`.

    Returns:
        A dict: the sum over all layers, and `lambda`, that of lambda layers.
    """
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


def table(results, programs, floors):
    """A line per network: estimate, floor, and throughput beside CCCC's.

    Args:
        results: dict from "PROGRAM on CHIP" to the result.
        programs: list of `Program`, compiled ones; CCCC among them.
        floors: dict from the programs' keys to what `floor` returns.
    """
    lines = [
        "| network | px | estimate, ms | floor, ms | estimate / floor | floor "
        "of its lambda layers, ms | throughput over CCCC's: paper | by the "
        "estimates | this floor, CCCC's estimate |",
        "|" + "---|" * 9,
    ]
    seconds = {
        program.key: estimate(results[f"{program.key} on {CHIP}"])
        for program in programs
    }
    (plain,) = (x.key for x in programs if x.name == "ResNet50 CCCC")
    throughputs = tpu_calibration.throughputs(results)
    for program in programs:
        least = floors[program.key]
        cells = [
            program.name,
            str(program.image_size),
            f"{1e3 * seconds[program.key]:.1f}",
            f"{1e3 * least['all']:.1f}",
            f"{seconds[program.key] / least['all']:.2f}",
            f"{1e3 * least['lambda']:.1f}",
        ]
        pattern = program.name.removeprefix("ResNet50 ")
        shares = ["", "", ""]
        if pattern in throughputs:
            shares = [f"{share:.2f}" for share in throughputs[pattern][:2]]
            shares.append(f"{seconds[plain] / least['all']:.2f}")
        lines.append("| " + " | ".join([*cells, *shares]) + " |")
    return "\n".join(lines)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", default="docs", help="folder of the results")
    folder = pathlib.Path(parser.parse_args(arguments).write)
    results = json.loads((folder / "tpu_compile.json").read_text())
    programs = [
        program
        for program in NETWORKS
        if program.batch == TIMED
        and results.get(f"{program.key} on {CHIP}", {}).get("status") == "ok"
    ]
    floors = {
        program.key: floor(program_analysis(program), program, CHIPS[CHIP])
        for program in programs
    }
    text = table(results, programs, floors)
    report.insert(folder, "floor", text, DOCUMENT)
    print(text)


if __name__ == "__main__":
    main()
