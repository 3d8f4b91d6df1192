"""Draws layers at random and compares `auto` with the best algorithm.

    python -m benchmarks.layers.regret          60 layers, an hour

The regret of a layer is the time of `auto` over that of the fastest algorithm:
the largest median of the ratios turn by turn, whole layers, float32, CPU. All
take a few turns; those that are not far behind the fastest go on.
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
        _, *both = steps(line, name)
        if name in chosen or not is_hopeless(both[1], auto):
            built[name] = both
    plans, found = (layer.inference_plan, layer.plan), {}
    for index, plan in enumerate(plans):
        functions = {name: both[index] for name, both in built.items()}
        found[PHASES[index]] = compare(functions, plan.algorithm, seconds)
    return found


def compare(functions, chosen, seconds):
    """Figures of a phase: the algorithms of `functions` take turns."""
    taken = timing.turns(functions, 0, least=FIRST_TURNS)
    middle = {name: timing.median(each) for name, each in taken.items()}
    limit = BEHIND * min(middle.values())
    near = {x: functions[x] for x in functions if middle[x] <= limit}
    again = timing.turns(near | {chosen: functions[chosen]}, seconds)
    ratios = {x: timing.ratio(again[x], again[chosen])[0] for x in again}
    best = max(ratios, key=ratios.get)
    figures = {"auto": chosen, "best": best, "regret": ratios[best]}
    return {**figures, "seconds": taken | again}


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
