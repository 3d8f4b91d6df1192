"""Draws which algorithm serves which geometry, and how time grows.

    python -m benchmarks.growth --write docs

The maps of choices come from the cost model alone; the curves are
measured (training step of a whole layer, CPU, float32, medians).
"""

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.engine import Line
from benchmarks.engine import steps
from benchmarks.timing import interleaved
from lambdanet_tf import ops

MAPS = (7, 10, 14, 20, 28, 40, 56)
SCOPES = (3, 5, 7, 9, 13, 17, 23, 31, 45)
FILTERS, BATCH = 128, 2
ALGORITHMS = ("query_first", "lambda_first", "fourier", "conv2d")
CONTESTANTS = ("auto", "einsum", "conv2d")
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
SLOWEST = 1.0  # seconds; beyond, a curve ends


def choice(size, scope, filters, training):
    """The algorithm that `auto` takes for a square map, on a CPU."""
    geometry = ops.Geometry.of([ops.same_axis(size, scope)] * 2)
    dims = ops.Dims(4, 16, filters // 4)
    plan = ops.plan_for(geometry, dims, device="cpu", training=training)
    return plan.algorithm


def curve(lines, repetitions):
    """Training times of the contestants on each line."""
    times = {name: [] for name in CONTESTANTS}
    for line in lines:
        names = [
            name
            for name in CONTESTANTS
            if name in line.contestants()
            and (not times[name] or times[name][-1][1] < SLOWEST)
        ]
        functions = {name: steps(line, name)[2] for name in names}
        for name, taken in interleaved(functions, repetitions).items():
            times[name].append((line, taken[0]))
        print(
            line.name, {n: f"{t[-1][1]:.4f} s" for n, t in times.items() if t}
        )
    return times


def draw(by_map, by_scope, by_length, path):
    """Draws what `auto` chooses for images, and measured curves."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(2, 3, figsize=(16, 8.5))
    for axis, filters in zip(axes[0], (64, 256), strict=False):
        _draw_choices(axis, filters, plt)
    panels = (
        (axes[0][2], by_map, "map side, scope 23", _side),
        (axes[1][0], by_scope, "scope, 28x28 map", lambda line: line.scope),
        (axes[1][1], by_length[False], "sequence length, global", _side),
        (axes[1][2], by_length[True], "sequence length, causal", _side),
    )
    for axis, times, label, position in panels:
        for name, points in times.items():
            xs = [position(line) for line, _ in points]
            axis.plot(xs, [1e3 * t for _, t in points], "o-", label=name)
        if "sequence" in label:
            axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel(label)
        axis.set_ylabel("training step, ms (log scale)")
        line = next(iter(times.values()))[0][0]
        axis.set_title(f"Measured, d={line.filters}, batch {line.batch}")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _side(line):
    return line.grid[0]


def _draw_choices(axis, filters, plt):
    colors = plt.get_cmap("Set2", len(ALGORITHMS))
    cells = [
        [ALGORITHMS.index(choice(size, scope, filters, True)) for size in MAPS]
        for scope in SCOPES
    ]
    axis.imshow(
        cells,
        origin="lower",
        aspect="auto",
        cmap=colors,
        vmin=-0.5,
        vmax=len(ALGORITHMS) - 0.5,
    )
    axis.set_xticks(range(len(MAPS)), MAPS)
    axis.set_yticks(range(len(SCOPES)), SCOPES)
    axis.set_xlabel("map side")
    axis.set_ylabel("scope")
    axis.set_title(f"What auto chooses for training, d={filters}")
    handles = [
        plt.Rectangle((0, 0), 1, 1, color=colors(i))
        for i in range(len(ALGORITHMS))
    ]
    chosen = sorted({cell for row in cells for cell in row})
    axis.legend(
        [handles[i] for i in chosen],
        [ALGORITHMS[i] for i in chosen],
        loc="upper right",
        fontsize=8,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", default="docs", help="folder of the picture")
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    by_map = curve(
        [Line((n, n), FILTERS, 23, BATCH) for n in MAPS], arguments.repetitions
    )
    by_scope = curve(
        [Line((28, 28), FILTERS, r, BATCH) for r in SCOPES],
        arguments.repetitions,
    )
    by_length = {
        causal: curve(
            [Line((n,), 64, None, 1, causal=causal) for n in LENGTHS],
            arguments.repetitions,
        )
        for causal in (False, True)
    }
    path = pathlib.Path(arguments.write) / "engine_growth.png"
    draw(by_map, by_scope, by_length, path)
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
