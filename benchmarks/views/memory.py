"""Memory: what plans promise, what a served export takes, the size of files."""

import statistics

from benchmarks import views
from benchmarks.layers import plan_memory
from lambdanet_tf import markdown

SMALL = 7  # MiB: below, libraries hold most of it
FITTED = [[list(grid), scope] for grid, scope in plan_memory.SHAPES]
FORMATS = {"Keras": None, "TFLite": "tflite", "TFLite, int8": "tflite_int8"}


@views.view("engine.md#memory")
def planned(found):
    """Plans over measurements: of what they were fitted to, and of others."""
    ratios = {"fitted to": [], "others": []}
    for row in found["plan_memory"]:
        shapes = "fitted to" if [row.map, row.scope] in FITTED else "others"
        if row.peak >= SMALL:
            ratios[shapes].append(row.planned / row.peak)
    rows = [
        (
            shapes,
            f"{len(values)}",
            f"{statistics.median(values):.2f}",
            f"{min(values):.2f} to {max(values):.2f}",
        )
        for shapes, values in ratios.items()
    ]
    head = ("shapes", "passes", "planned / measured, median", "least to most")
    return markdown.table(rows, head)


served = views.table(
    "serving.md#memory",
    "serving_memory",
    {"LambdaResNet-50 at 224 px": "{moment}", "MiB": "{mebibytes:.0f}"},
    where=lambda row: row.export == "LambdaResNet50",
)


@views.view("serving.md#formats")
def formats(found):
    """Accuracy and size of a network of the digits, by format."""
    [row] = found["formats"]
    cells = {}
    for head, name in FORMATS.items():
        accuracy = row.accuracies[name or head]
        cells[f"accuracy, {row.test_images} test images", head] = (
            f"{accuracy:.2%}".replace("%", " %")
        )
        size = "" if name is None else f"{row.bytes[name] / 2**20:.2f} MiB"
        cells["size", head] = size
    return views.crossed(cells, "")
