"""Draws the picture that `engine.md` opens with, from stored figures.

    python -m benchmarks.opening --write docs

On CPUs every line of `benchmarks.engine` against the best other way; on TPUs
the compiler's estimates for the networks of Table 12 beside what the paper
measured.
"""

import argparse
import json
import pathlib

from benchmarks import report
from benchmarks import tpu_calibration

PICTURE = "engine.png"
_GROUPS = {
    "einsum, conv2d, depthwise in TensorFlow: the best": report.NAIVE,
    "timm, lucidrains in PyTorch: the best": report.PEERS,
}
_TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)


def write(folder):
    """Draws the picture from `engine.json` and `tpu_compile.json`."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figures = json.loads((folder / "engine.json").read_text())
    results = json.loads((folder / "tpu_compile.json").read_text())
    others = set().union(*_GROUPS.values())
    rows = [
        row
        for row in figures["rows"][::-1]
        if report.ratio(row, "forward", others)  # else nothing to draw
    ]
    figure = plt.figure(
        figsize=(15, 0.36 * len(rows) + 1.8), layout="constrained"
    )
    left, right = figure.subfigures(1, 2, width_ratios=[2.6, 1])
    _draw_lines(left, rows)
    _draw_networks(right, tpu_calibration.throughputs(results))
    figure.savefig(folder / PICTURE, dpi=110)
    plt.close(figure)


def _draw_lines(figure, rows):
    """Bars of the time of other ways relative to auto, for every line."""
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    largest = 1.0
    for axis, phase in zip(axes, ("forward", "training"), strict=True):
        for index, (label, names) in enumerate(_GROUPS.items()):
            ratios = [report.ratio(row, phase, names) or 0 for row in rows]
            largest = max(largest, *ratios)
            places = [i + 0.2 - 0.4 * index for i in range(len(rows))]
            axis.barh(places, ratios, 0.38, label=label)
        axis.axvline(1.0, color="black", linewidth=1)
        axis.set_xscale("log")
        axis.set_xlabel(f"{phase} time, as a multiple of auto's (log scale)")
        axis.grid(axis="x", alpha=0.3)
    end = next(tick for tick in _TICKS if tick >= largest)
    ticks = _TICKS[: _TICKS.index(end) + 1]
    axes[0].set_xlim(_TICKS[0], end)
    axes[0].set_ylim(-0.6, len(rows) - 0.4)
    axes[0].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    labels = [f"{row['line']}  [{row['algorithm']}]" for row in rows]
    axes[0].set_yticks(range(len(rows)), labels)
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(_GROUPS),
    )
    figure.suptitle("CPU, measured: how much longer others take than `auto`")


def _draw_networks(figure, throughputs):
    """Bars of the throughput of Table 12's networks, relative to CCCC's."""
    axis = figure.subplots()
    patterns = [name for name in throughputs if name != "CCCC"][::-1]
    groups = {
        "paper": "C2",
        "estimate": "C3",
        "cycles": "#ee9999",
    }
    for index, (label, color) in enumerate(groups.items()):
        shares = [throughputs[name][index] or 0 for name in patterns]
        places = [i + 0.27 - 0.27 * index for i in range(len(patterns))]
        bars = axis.barh(places, shares, 0.25, label=label, color=color)
        texts = [f"{s:.2f}" if s else "not compiled" for s in shares]
        # On white, for the line of CCCC runs through some of them.
        axis.bar_label(
            bars,
            texts,
            padding=3,
            fontsize=8,
            zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )
    axis.axvline(1.0, color="black", linewidth=1)
    axis.set_xlim(0, 1.2)
    axis.set_yticks(range(len(patterns)), patterns)
    axis.set_xlabel("training images per second, relative to CCCC")
    axis.grid(axis="x", alpha=0.3)
    handles = axis.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(groups))
    figure.suptitle("ResNet-50 on TPUv3: paper, compiler")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", default="docs", help="folder of the figures")
    folder = pathlib.Path(parser.parse_args().write)
    write(folder)
    print(f"Wrote {folder / PICTURE}")


if __name__ == "__main__":
    main()
