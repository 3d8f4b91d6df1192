"""Tables and the picture of layers compared by one protocol."""

from benchmarks import views
from benchmarks.views.studies import by_seed
from benchmarks.views.studies import mean
from benchmarks.views.studies import seed_by_seed

SCORES = {  # what is scored, and the digits that are shown
    "segmentation, residual": ("mean IoU, %", 1),
    "forecast": ("mean absolute error, ppm", 3),
    "bytes": ("bits per byte", 3),
    "decoder": ("bits per byte", 3),
}
_FIRST_STEPS = 300  # updates, in records that do not name them


def _searched(search, digits):
    """What the search found for each variant, by initial weights and rate."""
    found = {}
    for row in sorted(search, key=lambda row: (row.first, row.rate)):
        text = "none" if row.score is None else f"{row.score:.{digits}f}"
        starts = found.setdefault(row.variant, {})
        starts.setdefault(row.first, []).append(f"{row.rate:g}: {text}")
    return {
        variant: "; ".join(
            f"{', '.join(texts)} ({first})" for first, texts in starts.items()
        )
        for variant, starts in found.items()
    }


def _compared(final, searched, digits, score):
    """A line for each variant's last runs, which are of the same seeds."""
    groups = views.grouped(final, "variant")
    scores = {
        name: {row.seed: row.score for row in group}
        for (name,), group in groups.items()
    }
    other = next((name for name in scores if name.startswith("lambda")), None)
    rows = []
    for (name,), (*_, row) in groups.items():
        row["searched"] = searched.get(name)
        row["scores"] = views.joined(scores[name].values(), f".{digits}f")
        row["mean"] = mean(scores[name].values(), digits)
        if other not in (None, name):
            pairs = seed_by_seed(scores[name], scores[other])
            row["less"] = mean(pairs, digits, "+")
        rows.append(row)
    columns = {
        "layer": "{variant}",
        "validation score by rate (initial weights)": "{searched}",
        "rate": "{rate:g}",
        "initial weights": "{first}",
        "parameters": "{parameters:,}",
        "training MFLOPs": "{flops:.1f/M}",
        f"{score}, by seed": "{scores}",
        "mean": "{mean}",
        f"difference from {other}": "{less}",
    }
    return views.listing(rows, columns)


def _tables(found):
    rows = found["mixers"]
    score, digits = SCORES[rows[0].task]
    for row in rows:
        row["first"] = "default" if row.start is None else str(row.start)
    steps = max(row.steps or _FIRST_STEPS for row in rows)
    longest = [x for x in rows if (x.steps or _FIRST_STEPS) == steps]
    search = [row for row in longest if row.part == "search"]
    final = [row for row in longest if row.part == "final"]
    return views.page(
        f"{steps} updates per run, and {len(search)} search runs. ± is half "
        "the 95% confidence interval over seeds. FLOPs are for one example.",
        _compared(final, _searched(search, digits), digits, score),
    )


@views.view("study.md#blocks", part="final", task="segmentation, *")
def blocks(found):
    """A line for each layer of segmentation, a column for each U-Net."""
    groups, cells = views.grouped(found["mixers"], "task", "variant"), {}
    for (task, variant), rows in groups.items():
        cells[variant, task.partition(", ")[2]] = by_seed(rows)
    return views.crossed(cells, "layer")


for _task in SCORES:
    _section = _task.partition(",")[0]
    views.view(f"study.md#{_section}", task=_task)(_tables)
