"""Tables and the picture of layers compared over long distances."""

import statistics

from benchmarks import views
from benchmarks.views.studies import mean

# By kind of task: what is scored, and what the page calls its sizes.
KINDS = {
    "copying": ("symbols that are right, %", "{} positions"),
    "adding": ("sums within 0.04, %", "{} positions"),
    "recall": ("values that are right, %", "{} pairs"),
    "digits": ("digits that are right, %", "64 positions"),
    "pathfinder": ("images that are right, %", "{} px, paths of {} px"),
}
DRAWN = "copying", "adding", "recall"
SEEDS = 3


def by_kind(found):
    """Rows by kind of task, then by layer and sizes."""
    groups = {kind: {} for kind in KINDS}
    for row in found["long_range"]:
        kind, *sizes = row.task.split(", ")
        key = row.variant, tuple(map(int, sizes))
        groups[kind].setdefault(key, []).append(row)
    finished = {
        kind: {key: rows for key, rows in group.items() if len(rows) >= SEEDS}
        for kind, group in groups.items()
    }
    return {kind: group for kind, group in finished.items() if group}


@views.view("long_range.md#tasks", part="final")
def tasks(found):
    """A line for each task, a column for each layer."""
    cells = {}
    for kind, groups in by_kind(found).items():
        score, size = KINDS[kind]
        for (variant, sizes), rows in sorted(groups.items()):
            scores = [row.score for row in rows]
            text = f"{mean(scores, 1)} ({views.joined(scores, '.0f')})"
            cells[f"{kind}, {size.format(*sizes)}: {score}", variant] = text
    return views.crossed(cells, "task")


@views.view("long_range.md#costs", part="cost")
def costs(found):
    columns = {
        **{"task": "{task}", "layer": "{variant}"},
        "parameters": "{parameters:,}",
        "training MFLOPs": "{flops:.1f/M}",
        "a training step, ms": "{seconds:.0f/ms}",
    }
    return views.listing(found["long_range"], columns)


@views.view("long_range.png", part="final")
def over_length(found):
    """The mean score over lengths or pairs, of kinds that have several."""
    groups = by_kind(found)
    drawn = [x for x in DRAWN if len({y for _, y in groups.get(x, ())}) > 1]
    figure, axes = views.figure(2 + 4.5 * len(drawn), 4, len(drawn))
    for axis, kind in zip(axes, drawn, strict=True):
        curves = {}
        for (variant, sizes), rows in sorted(groups[kind].items()):
            score = statistics.mean(row.score for row in rows)
            curves.setdefault(variant, []).append((*sizes, score))
        score, size = KINDS[kind]
        ticks = sorted({x for _, (x,) in groups[kind]})
        views.lines(axis, curves, xlabel=size.removeprefix("{} "))
        axis.set_xscale("log", base=2)
        axis.set_xticks(ticks, ticks)
        axis.set(title=f"{kind}: {score}", ylim=(0, 105))
        axis.get_legend().remove()
    labels = axes[-1].get_legend_handles_labels()
    figure.legend(*labels, loc="outside right center", frameon=False)
    return figure
