"""Tables and the picture of layers compared by one protocol."""

import functools

from benchmarks.views import Row
from benchmarks.views import crossed
from benchmarks.views import figure
from benchmarks.views import joined
from benchmarks.views import listing
from benchmarks.views import page
from benchmarks.views import runs
from benchmarks.views import view
from benchmarks.views.studies import mean
from benchmarks.views.studies import seed_by_seed

SCORES = {  # what is scored, and the digits that are shown
    "segmentation": ("mean IoU, %", 1),
    "forecast": ("mean absolute error, ppm", 3),
    "bytes": ("bits a byte", 3),
    "decoder": ("bits a byte", 3),
}
_FIRST_STEPS = 300  # updates, in records that do not name them


def _parts(found, task):
    """A task's records by their number of updates, the most first.

    Those of the search, and those of the final runs by variant and seed.
    """
    parts = {}
    for row in found["mixers"]:
        if row.task != task:
            continue
        steps = row.steps or _FIRST_STEPS
        search, final = parts.setdefault(steps, ([], {}))
        if row.part == "search":
            search.append(row)
        else:
            final.setdefault(row.variant, {})[row.seed] = row
    return dict(sorted(parts.items(), reverse=True))


def _start(row):
    """Initial weights in words."""
    return "default" if row.start is None else str(row.start)


def _searched(search, final, digits):
    """A line for a variant and its initial weights, a column for a rate."""
    chosen = {
        (row.variant, row.rate, row.start)
        for rows in final.values()
        for row in rows.values()
    }
    cells = {}
    for row in sorted(search, key=lambda row: (row.variant, row.rate)):
        text = "none" if row.score is None else f"{row.score:.{digits}f}"
        if (row.variant, row.rate, row.start) in chosen:
            text = f"**{text}**"
        line = f"{row.variant}; {_start(row)}"
        cells[line, f"{row.rate:g}"] = text
    return crossed(cells, "validation; initial weights")


def _compared(final, digits, score):
    """A line for each variant's final runs."""
    lambdas = [name for name in final if name.startswith("lambda")]
    scores = {
        name: {seed: row.score for seed, row in rows.items()}
        for name, rows in final.items()
    }
    rows = []
    for name, group in final.items():
        first = next(iter(group.values()))
        row = Row(
            first,
            first_weights=_start(first),
            scores=joined(scores[name].values(), f".{digits}f"),
            mean=mean(scores[name].values(), digits),
            seconds=[run.seconds for run in group.values()],
        )
        for other in lambdas[:1]:
            pairs = seed_by_seed(scores[name], scores[other])
            row["less"] = "" if name == other else mean(pairs, digits, "+")
        rows.append(row)
    columns = {
        "layer": "{variant}",
        "rate": "{rate:g}",
        "initial weights": "{first_weights}",
        "parameters": "{parameters:,}",
        "training MFLOPs": "{flops:.1f/M}",
        f"{score}, by seed": "{scores}",
        "mean": "{mean}",
        **{f"less {name}": "{less}" for name in lambdas[:1]},
        "seconds a run": "{seconds:.0f}",
    }
    return listing(rows, columns)


def _tables(task, found):
    score, digits = SCORES[task]
    texts = []
    for steps, (search, final) in _parts(found, task).items():
        rows = [row for group in final.values() for row in group.values()]
        if rows:
            texts += [
                f"{len(rows)} final runs of {steps} updates, "
                f"{rows[0].examples:,} test examples each:",
                _compared(final, digits, score),
            ]
        if search:
            texts += [
                f"The search with {steps} updates, {len(search)} runs; "
                f"validation, {score}, by rate; what the final runs have is "
                "bold:",
                _searched(search, final, digits),
            ]
    note = "± is half of the 95 % t-interval over seeds. FLOPs are of one "
    return page(*texts, f"{note}example.")


for _task in SCORES:
    view(f"mixers.md#{_task}")(functools.partial(_tables, _task))


@view("mixers.png")
def picture(found):
    """A point for each final run, a line for each mean."""
    panels = []
    for task in SCORES:
        finals = {x: y for x, (_, y) in _parts(found, task).items() if y}
        panels += [(task, *x) for x in list(finals.items())[:1]]
    tallest = max(len(final) for *_, final in panels)
    made, (axes,) = figure(
        4.4 * len(panels), 0.4 * tallest + 1.4, columns=len(panels)
    )
    for axis, (task, steps, final) in zip(axes, panels, strict=True):
        runs(
            axis,
            {x: [row.score for row in y.values()] for x, y in final.items()},
        )
        title = f"{task}, {steps} updates"
        axis.set(title=title, xlabel=f"test: {SCORES[task][0]}")
    return made
