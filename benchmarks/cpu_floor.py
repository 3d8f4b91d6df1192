"""Asks how fast a network of lambda layers could be on this CPU at best.

    python -m benchmarks.cpu_floor --write docs

LLLL and CCCC of `benchmarks.networks` in inference, in turns, and LLLL without
its position lambdas; these as if they cost nothing but their products, at the
rate of a large one, and their largest intermediates, at that of a copy.
"""

import argparse
import math
import os
import pathlib
import statistics
import unittest.mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from benchmarks import engine
from benchmarks import networks
from benchmarks import report
from benchmarks import timing
from lambdanet_tf import analysis
from lambdanet_tf import ops
from lambdanet_tf.ops.lambdas import lambda_step

SIZE = 64 * 2**20  # bytes of what is copied to measure the bandwidth
# How often the largest intermediate, or one of its size, is written or read:
# scores, lambdas; with a transform, before and after the inverse.
MOVES = {"fourier": 4}
FEWEST_MOVES = 2


def copy_rate():
    """Bytes per second, read or written, of negating a large array."""
    array = tf.random.normal([SIZE // 4])
    negated = tf.function(lambda: -array, autograph=False)
    return 2 * SIZE / timing.interleaved({"copy": negated}, 9)["copy"][0]


def position_work(model, batch):
    """What the position lambdas of a model cost at least, for a batch.

    Returns:
        The operations of their products, and the bytes of their largest
        intermediates, each written once and read once.
    """
    plans = [layer.inference_plan for layer in analysis.lambda_layers(model)]
    operations = sum(
        batch * plan.operations + plan.table_operations for plan in plans
    )
    moved = sum(
        MOVES.get(plan.algorithm, FEWEST_MOVES) * batch * plan.intermediate
        for plan in plans
    )
    return operations, moved


def without_position_lambdas(queries, keys, values, *others):
    """Takes the place of `ops.lambda_step`."""
    _, _, _, normalization, masks, _, state = others
    return lambda_step(
        *(queries, keys, values, None, None, "auto", normalization, masks),
        state=state,
    )


def table(times, work, rates, batch):
    """The figures as a table.

    Args:
        times: dict from "CCCC", "LLLL" and "rest" to the seconds of a batch.
        work: of `position_work`.
        rates: operations and bytes per second.
        batch: images.
    """
    least = [amount / rate for amount, rate in zip(work, rates, strict=True)]
    rows = {
        "CCCC": times["CCCC"],
        "LLLL": times["LLLL"],
        "LLLL without position lambdas": times["rest"],
        f"their products: {work[0] / 1e9:.1f} Gop at {rates[0] / 1e9:.0f} "
        "Gop/s": least[0],
        f"their largest intermediates: {work[1] / 1e9:.2f} GB at "
        f"{rates[1] / 1e9:.1f} GB/s": least[1],
        "LLLL, if they cost no more": times["rest"] + sum(least),
    }
    lines = [
        f"| {batch} images in inference | ms | throughput beside CCCC |",
        "|---|---|---|",
    ]
    for name, seconds in rows.items():
        ratio = ""
        if "LLLL" in name:
            ratio = f"{times['CCCC'] / seconds:.2f}"
        lines.append(f"| {name} | {1e3 * seconds:.0f} | {ratio} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=networks.IMAGE_SIZE)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--write", help="folder of engine.md")
    arguments = parser.parse_args()
    batch, size = arguments.batch, arguments.size
    model = networks.build("LLLL", size)
    functions = {
        "CCCC": networks.steps("CCCC", batch, size)[0],
        "LLLL": networks.compiled_steps(model, batch, size)[0],
        "rest": networks.compiled_steps(model, batch, size)[0],
    }
    with unittest.mock.patch.object(
        ops, "lambda_step", without_position_lambdas
    ):
        functions["rest"]()  # traced with it
    taken = timing.turns(functions, arguments.turns, slow=math.inf)
    times = {name: statistics.median(each) for name, each in taken.items()}
    work = position_work(model, batch)
    text = table(times, work, (engine.matrix_rate(), copy_rate()), batch)
    print(text)
    if arguments.write:
        report.insert(pathlib.Path(arguments.write), "floor", text)


if __name__ == "__main__":
    main()
