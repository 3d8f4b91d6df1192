"""Memory: what plans promise, what a served export takes, the size of files."""

import statistics

from benchmarks import views
from benchmarks.layers import plan_memory
from benchmarks.serving.formats import EPOCHS
from benchmarks.serving.formats import FORMATS

SMALL = 7  # MiB: below, libraries hold most of it
FITTED = [[list(grid), scope] for grid, scope in plan_memory.SHAPES]


@views.view("engine.md#memory")
def planned(found):
    """Plans over measurements: of what they were fitted to, and of others."""
    rows = [row for row in found["plan_memory"] if row.peak >= SMALL]
    for row in rows:
        is_fitted = [row.map, row.scope] in FITTED
        row["shapes"] = "fitted to" if is_fitted else "others"
    lines = []
    for (shapes,), group in views.grouped(rows, "shapes").items():
        ratios = [row.planned / row.peak for row in group]
        figures = statistics.median(ratios), min(ratios), max(ratios)
        line = {"passes": len(ratios), "ratio": views.interval(figures)}
        lines.append(views.Row(line, shapes=shapes))
    columns = {
        **views.fields("shapes", "passes"),
        "planned / measured: median (least to most)": "{ratio}",
    }
    return views.listing(lines, columns)


served = views.table(
    "serving.md#memory",
    "serving_memory",
    {"LambdaResNet-50 at 224 px": "{moment}", "MiB": "{mebibytes:.0f}"},
    where=lambda row: row.export == "LambdaResNet50",
)


@views.view("serving.md#formats")
def formats(found):
    """Accuracy and size of a network of the digits, by format."""
    cells = {}
    for row in (row for row in found["formats"] if row.epochs == EPOCHS):
        accuracy = f"accuracy, {row.test_images} test images"
        for head, name in {"Keras": "Keras", **FORMATS}.items():
            text = views.text(row.accuracies[name], ".2f/%")
            cells[accuracy, head] = f"{text} %"
            size = views.text(row.bytes.get(name), ".2f/MiB")
            cells["size, MiB", head] = size
    return views.crossed(cells, "")
