"""Tables and the picture of layers compared over long distances."""

import statistics

from benchmarks import views
from benchmarks.views.studies import by_seed

# By kind of task: what is scored, and what the page calls its sizes.
KINDS = {
    "copying": ("symbols that are right, %", "{} positions"),
    "adding": ("sums within 0.04, %", "{} positions"),
    "recall": ("values that are right, %", "{} pairs"),
    "keys": ("values that are right, %", "{} pairs"),
    "digits": ("digits that are right, %", "64 positions"),
    "pathfinder": ("images that are right, %", "{} px, paths of {} pixels"),
}
DRAWN = "pathfinder", "copying", "adding", "recall"
SEEDS = 3


def finished(found, kind):
    """Returns sizes, layer and rows of what has all seeds, in order."""
    groups = views.grouped(found["long_range"], "task", "variant")
    # The last of each seed: another search may have chosen another rate.
    groups = {k: {x.seed: x for x in rows} for k, rows in groups.items()}
    return sorted(
        ([*map(int, task.split(", ")[1:])], variant, [*rows.values()])
        for (task, variant), rows in groups.items()
        if task.partition(",")[0] == kind and len(rows) >= SEEDS
    )


@views.view("long_range.md#tasks", part="final", task="[!k]*")  # not keys
@views.view("long_range.md#keys", part="final", task="keys, *")
def scores(found):
    """A line for each task, a column for each layer."""
    cells = {}
    for kind, (score, size) in KINDS.items():
        for sizes, variant, rows in finished(found, kind):
            line = f"{kind}, {size.format(*sizes)}: {score}"
            cells[line, variant] = by_seed(rows)
    return views.crossed(cells, "task")


@views.view("long_range.md#costs", part="cost", task="[cp]*", variant="*[!)]")
def costs(found):  # of copying and paths, without N(0, 1)
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
    several = {kind: finished(found, kind) for kind in DRAWN}
    several = {k: x for k, x in several.items() if x and x[0][0] != x[-1][0]}
    layers = dict.fromkeys(x for rows in several.values() for _, x, _ in rows)
    colors = {layer: f"C{number}" for number, layer in enumerate(layers)}
    figure, axes = views.figure(2 + 3.5 * len(several), 4, len(several))
    for axis, (kind, groups) in zip(axes, several.items(), strict=True):
        curves = {}
        for sizes, variant, rows in groups:
            score = statistics.mean(row.score for row in rows)
            curves.setdefault(variant, []).append((sizes[-1], score))
        score, size = KINDS[kind]
        ticks = sorted({sizes[-1] for sizes, _, _ in groups})
        views.lines(axis, curves, colors, xlabel=size.rpartition("{} ")[2])
        axis.set_xscale("log", base=2)
        axis.set_xticks(ticks, ticks)
        axis.set(title=f"{kind}:\n{score}", ylim=(0, 105))
        axis.get_legend().remove()
    drawn = {x.get_label(): x for axis in axes for x in axis.get_lines()}
    handles = [drawn[layer] for layer in layers]
    figure.legend(handles=handles, loc="outside right center", frameon=False)
    return figure
