"""Draws layers at random and compares `auto` with the best algorithm.

    python -m benchmarks.layers.regret                       60 layers, an hour
    python -m benchmarks.layers.regret --number 2 --seconds 0.1 --draw 9

The regret of a layer is the time of `auto` divided by that of the fastest
algorithm: the largest median of the ratios turn by turn, whole layers, float32,
CPU; the same algorithm counts 1. All algorithms of a layer take turns, a few
at first; those that are not far behind the fastest go on.
"""

import dataclasses
import math
import random

import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from benchmarks.layers.speed import PHASES
from benchmarks.layers.speed import Line
from benchmarks.layers.speed import is_hopeless
from benchmarks.layers.speed import steps

DRAW = 5  # what `auto` was fitted to
NUMBER = 60
LARGEST = 2.5e7  # floats of position lambdas in a batch
FIRST_TURNS = 2
BEHIND = 1.4  # times the fastest after these, and no more turns


def draw_line(generator):
    """Draws a layer: rank, sizes, scope, depths, heads, batch."""
    while True:
        rank = generator.choice([1, 2, 2, 3])
        low, high = {1: (16, 4096), 2: (4, 64), 3: (3, 16)}[rank]
        grid = tuple(
            round(low * (high / low) ** generator.random()) for _ in range(rank)
        )
        heads = generator.choice([1, 2, 4, 8])
        value_dim = generator.choice([8, 16, 32, 64, 128])
        line = Line(
            grid,
            heads * value_dim,
            generator.choice([None, 3, 5, 7, 9, 15, 23, 31]),
            generator.choice([1, 2, 4, 8]),
            key_dim=generator.choice([8, 16, 16, 32]),
            intra_depth=generator.choice([1, 1, 1, 2, 4]),
            causal=rank == 1 and generator.random() < 0.5,
            num_heads=heads,
        )
        size = line.batch * math.prod(grid) * line.key_dim * value_dim
        if size <= LARGEST:
            return line


def time_line(line, seconds):
    """Times every algorithm of a line; returns what is recorded, by phase."""
    layer, _, auto = steps(line, "auto")
    chosen = {layer.plan.algorithm, layer.inference_plan.algorithm}
    built = {}
    for name in sorted({*line.algorithms(), *chosen} - {"auto"}):
        _, forward, training = steps(line, name)
        if name in chosen or not is_hopeless(training, auto):
            built[name] = (forward, training)
    figures, plans = {}, (layer.inference_plan, layer.plan)
    for index, (phase, plan) in enumerate(zip(PHASES, plans, strict=True)):
        functions = {name: pair[index] for name, pair in built.items()}
        figures[phase] = compare(functions, plan.algorithm, seconds)
    return figures


def compare(functions, chosen, seconds):
    """Figures of a phase: the algorithms of `functions` take turns."""
    taken = timing.turns(functions, 0, least=FIRST_TURNS)
    limit = BEHIND * min(map(timing.median, taken.values()))
    near = {
        name: function
        for name, function in functions.items()
        if timing.median(taken[name]) <= limit or name == chosen
    }
    again = timing.turns(near, seconds)
    ratios = {
        name: timing.ratio(each, again[chosen])[0]
        for name, each in again.items()
    }
    best = max(ratios, key=ratios.__getitem__)
    return {
        "auto": chosen,
        "best": best,
        "regret": ratios[best],
        "seconds": taken | again,
    }


@records.script("regret", seconds=3.0, draw=DRAW, number=NUMBER)
def main(recorder, options):
    tf.get_logger().setLevel("ERROR")  # It warns of many functions.
    generator = random.Random(options.draw)
    lines = [draw_line(generator) for _ in range(options.number)]

    def measure(case):
        line = lines[case["number"]]
        facts = {"line": line.name, "layer": dataclasses.asdict(line)}
        found = time_line(line, options.seconds)
        tf.keras.backend.clear_session()
        return {phase: facts | figures for phase, figures in found.items()}

    cases = records.cases(draw=[options.draw], number=range(options.number))
    recorder.fill(cases, measure, PHASES)
