"""Draws layers at random and compares `auto` with the best algorithm.

    python -m benchmarks.layers.regret                       60 layers, an hour
    python -m benchmarks.layers.regret --number 2 --seconds 0.1 --draw 9
    python -m benchmarks.layers.regret --fit 5 6             measures nothing

The regret of a layer is the time of `auto` divided by that of the fastest
algorithm: the largest median of the ratios turn by turn, whole layers, float32,
CPU; the same algorithm counts 1. All algorithms of a layer take turns, a few
at first; those that are not far behind the fastest go on. Layers whose record
has the algorithm that `auto` takes now are not measured again. `--fit` fits
the row of CPUs to draws, and says what it would choose in all others.
"""

import dataclasses
import random

import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from benchmarks.layers import device_fit
from benchmarks.layers.speed import Line
from benchmarks.layers.speed import is_hopeless
from benchmarks.layers.speed import steps
from lambdanet_tf import ops

DRAW = 5  # The row of CPUs was fitted to this draw and to that of 6.
NUMBER = 60
PHASES = ("forward", "training")
CPU = ops.DEVICES["cpu"]
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
        size = line.batch * line.positions * line.key_dim * value_dim
        if size <= LARGEST:
            return line


def time_line(line, seconds):
    """Times every algorithm of a line; returns what is recorded, by phase."""
    layer, _, _ = steps(line, "auto")
    chosen = {layer.plan.algorithm, layer.inference_plan.algorithm}
    built = {}
    for name in sorted({*line.algorithms(), *chosen} - {"auto"}):
        other, forward, training = steps(line, name)
        if name in chosen or not is_hopeless(other.plan, layer.plan):
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


def measured(record):
    """A record of a layer and phase, for `device_fit`."""
    layer = {**record["layer"], "grid": tuple(record["layer"]["grid"])}
    seconds = {x: timing.median(y) for x, y in record["seconds"].items()}
    is_training = record["case"]["phase"] == "training"
    return Line(**layer).measured(is_training, seconds)


def fit(rows, draws):
    """Fits the row of CPUs to draws, and prints what it chooses in all."""
    groups, chosen = {}, []
    for row in rows:
        is_chosen, layer = row["case"]["draw"] in draws, measured(row)
        part = "fitted" if is_chosen else "the other draws"
        name = f"{part}, {row['case']['phase']}"
        groups.setdefault(name, []).append(layer)
        chosen += [layer] * is_chosen
    fitted = device_fit.fit(chosen, CPU)
    print(CPU, fitted, sep="\n")
    for name, group in groups.items():
        texts = [device_fit.choices(group, row) for row in (CPU, fitted)]
        print(f"{name}: {' -> '.join(texts)}")


def is_known(record):
    """Whether `auto` would choose as it did when a record was made."""
    return measured(record).choice(CPU) == record["auto"]


def main(arguments=None):
    parser = records.parser(__doc__, seconds=3.0, draw=DRAW, number=NUMBER)
    parser.add_argument("--fit", type=int, nargs="+", metavar="DRAW")
    options = parser.parse_args(arguments)
    tf.get_logger().setLevel("ERROR")  # It warns of many functions.
    rows = records.latest("regret", options.results)
    if options.fit:
        fit(rows, options.fit)
        return
    known = {records.key(row["case"]): row for row in rows}
    recorder = records.Recorder("regret", options)
    generator = random.Random(options.draw)
    for number in range(options.number):
        line = draw_line(generator)
        case = {"draw": options.draw, "number": number}
        found = [known.get(records.key({**case, "phase": x})) for x in PHASES]
        if options.only not in line.name:
            continue
        if all(found) and all(map(is_known, found)) and not options.again:
            continue
        facts = {"line": line.name, "layer": dataclasses.asdict(line)}
        for phase, figures in time_line(line, options.seconds).items():
            recorder.append({**case, "phase": phase}, **facts, **figures)
            regret = f"{figures['auto']} {figures['regret']:.2f}"
            print(f"{number} {line.name}, {phase}: {regret}", flush=True)
        tf.keras.backend.clear_session()


if __name__ == "__main__":
    main()
