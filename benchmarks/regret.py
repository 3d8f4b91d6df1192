"""Draws geometries at random and compares `auto` with the best algorithm.

    python -m benchmarks.regret --write docs
    python -m benchmarks.regret --seed 1 --file runs/regret.json
    python -m benchmarks.regret --fit runs/regret.json

The regret of a geometry is the time of `auto` divided by that of the fastest
algorithm: the largest median of the ratios turn by turn, whole layers, float32,
CPU; the same algorithm counts 1. All algorithms of a geometry take turns, a few
at first; those that are not far behind the fastest go on. What is in the file
is kept, unless `auto` chooses otherwise by now: a draw that was stopped is
continued. `--fit` measures nothing: it fits
the row of CPUs to a file, and says what it would choose in the other one.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from benchmarks import device_fit
from benchmarks import report
from benchmarks import timing
from benchmarks.engine import Line
from benchmarks.engine import is_hopeless
from benchmarks.engine import steps
from lambdanet_tf import ops

SEED = 5  # The row of CPUs was fitted to this draw and to that of 6.
NUMBER = 60
PHASES = ("forward", "training")
FILE = pathlib.Path("docs/regret.json")
CPU = ops.DEVICES["cpu"]
LARGEST = 2.5e7  # floats of position lambdas in a batch
FIRST_TURNS = 2
SLOW = 0.2  # seconds; slower than this, a few turns are enough
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


def time_line(line, repetitions):
    """Times every algorithm of a line; returns figures by phase."""
    layer, _, _ = steps(line, "auto")
    chosen = {layer.plan.algorithm, layer.inference_plan.algorithm}
    built = {}
    for name in sorted({*line.contestants(), *chosen} - {"auto"}):
        contestant, forward, training = steps(line, name)
        if name in chosen or not is_hopeless(contestant.plan, layer.plan):
            built[name] = (forward, training)
    figures = {}
    for phase, index, plan in (
        ("forward", 0, layer.inference_plan),
        ("training", 1, layer.plan),
    ):
        functions = {name: pair[index] for name, pair in built.items()}
        figures[phase] = _compare(functions, plan.algorithm, repetitions)
    return figures


def _compare(functions, chosen, repetitions):
    """Figures of a phase: the algorithms of `functions` take turns."""
    first = timing.turns(functions, FIRST_TURNS)
    medians = {name: statistics.median(taken) for name, taken in first.items()}
    limit = BEHIND * min(medians.values())
    near = {
        name: function
        for name, function in functions.items()
        if medians[name] <= limit or name == chosen
    }
    again = timing.turns(near, repetitions, slow=SLOW)
    medians |= {name: statistics.median(taken) for name, taken in again.items()}
    ratios = {
        name: statistics.median(
            ours / other
            for ours, other in zip(again[chosen], taken, strict=False)
        )
        for name, taken in again.items()
    }
    best = max(ratios, key=ratios.__getitem__)
    return {
        "auto": chosen,
        "best": best,
        "regret": ratios[best],
        "milliseconds": {name: 1e3 * taken for name, taken in medians.items()},
    }


def picture(regrets, path):
    """Draws the distribution of the regret.

    Args:
        regrets: dict from the name of a curve to the regret of every layer.
        path: of the picture.
    """
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axis = plt.subplots(figsize=(7, 3.8))
    for label, values in regrets.items():
        share = [(i + 1) / len(values) for i in range(len(values))]
        label = f"{label}, {len(values)} layers"
        axis.step(sorted(values), share, where="post", label=label)
    axis.set(
        xlabel="time of auto / time of the fastest algorithm",
        ylabel="share of layers",
        title="Layers drawn at random",
        ylim=(0, 1.02),
    )
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def sentences(rows):
    """The figures in words, and the geometries of the largest regret."""
    lines = []
    for phase in PHASES:
        values = [row[phase]["regret"] for row in rows]
        worst = max(rows, key=lambda row: row[phase]["regret"])
        same = sum(value == 1.0 for value in values)
        lines.append(
            f"{phase.capitalize()}: the choice is the fastest in {same} of "
            f"{len(rows)} geometries; median {statistics.median(values):.2f}, "
            f"worst {max(values):.2f} ({worst['line']}, batch "
            f"{worst['batch']}: {worst[phase]['auto']} for "
            f"{worst[phase]['best']})."
        )
    return "\n".join(lines)


def measured(row, phase):
    """A geometry in one phase, for `device_fit`."""
    layer = {**row["layer"], "grid": tuple(row["layer"]["grid"])}
    line = Line(**layer)
    times = row[phase]["milliseconds"]
    return device_fit.Measured(
        line.geometry, line.dims, phase == "training", line.batch, times
    )


def fit(rows, others):
    """Fits the row of CPUs; returns it and what it chooses, in words."""
    fitted = device_fit.fit(
        [measured(row, phase) for row in rows for phase in PHASES], CPU
    )
    lines = [f"{CPU}", f"{fitted}"]
    for name, drawn in (("fitted", rows), ("the other draw", others)):
        for phase in PHASES:
            texts = []
            for device in (CPU, fitted):
                values = [measured(row, phase).regret(device) for row in drawn]
                mean = statistics.geometric_mean(values)
                texts.append(
                    f"median {statistics.median(values):.3f}, mean "
                    f"{mean:.3f}, worst {max(values):.2f}"
                )
            lines.append(f"{name}, {phase}: {' -> '.join(texts)}")
    return fitted, "\n".join(lines)


def draw(seed, number, repetitions, file):
    """Measures geometries and keeps each; returns all rows of the file."""
    rows = report.stored(file, [])
    generator = random.Random(seed)
    for index in range(number):
        line = draw_line(generator)
        if index < len(rows):
            if rows[index]["layer"] != json.loads(json.dumps(_fields(line))):
                raise SystemExit(f"{file} is of another draw: move it away.")
            if _is_current(rows[index]):
                continue
        row = {"line": line.name, "batch": line.batch, "layer": _fields(line)}
        row |= time_line(line, repetitions)
        rows[index : index + 1] = [row]
        file.write_text(json.dumps(rows, indent=1) + "\n")
        tf.keras.backend.clear_session()
        texts = [
            f"{phase} {row[phase]['auto']} {row[phase]['regret']:.2f} "
            f"({row[phase]['best']})"
            for phase in PHASES
        ]
        print(index, line.name, f"batch {line.batch}:", *texts, flush=True)
    return rows


def _is_current(row):
    """Whether `auto` would choose as it did when a row was measured."""
    return all(
        measured(row, phase).choice(CPU) == row[phase]["auto"]
        for phase in PHASES
    )


def _fields(line):
    return dataclasses.asdict(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", help="folder of engine.md")
    parser.add_argument("--seed", type=int, default=SEED, help="of the draw")
    parser.add_argument("--file", type=pathlib.Path, default=FILE)
    parser.add_argument("--fit", type=pathlib.Path, help="a file of a draw")
    parser.add_argument("--number", type=int, default=NUMBER)
    parser.add_argument("--repetitions", type=int, default=11)
    arguments = parser.parse_args()
    tf.get_logger().setLevel("ERROR")  # It warns of many functions.
    if arguments.fit:
        files = arguments.fit, arguments.file
        print(fit(*(json.loads(file.read_text()) for file in files))[1])
        return
    rows = draw(
        arguments.seed, arguments.number, arguments.repetitions, arguments.file
    )
    print(sentences(rows))
    if arguments.write:
        folder = pathlib.Path(arguments.write)
        regrets = {
            phase: [row[phase]["regret"] for row in rows] for phase in PHASES
        }
        picture(regrets, folder / "regret.png")
        text = f"![Distribution](regret.png)\n\n{sentences(rows)}"
        report.insert(folder, "regret", text)


if __name__ == "__main__":
    main()
