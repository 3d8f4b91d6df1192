"""Tables of training."""

import statistics

from benchmarks.views import crossed
from benchmarks.views import fields
from benchmarks.views import listing
from benchmarks.views import milliseconds
from benchmarks.views import scaled
from benchmarks.views import view


def _part(found, part):
    return [x for x in found["training"] if x["case"]["part"] == part]


@view("training_speed.md#overhead")
def overhead(found):
    def ratio(row):
        if "ratio" in row:
            values = row["ratio"]
        else:
            loop, fed = (row["seconds"][name] for name in ("loop", "fed"))
            ratios = [a / b for a, b in zip(loop, fed, strict=True)]
            values = statistics.median(ratios), min(ratios), max(ratios)
        return "{:.3f} ({:.3f} to {:.3f})".format(*values)

    columns = {
        "network": "{network}",
        "bare step, one batch held, ms": milliseconds("held"),
        "bare step, batches of the pipeline, ms": milliseconds("fed"),
        "the loop of `train.py`, ms": milliseconds("loop"),
        "loop / bare on the pipeline (epochs: least to most)": ratio,
    }
    return listing(_part(found, "loop"), columns)


@view("training_speed.md#pipelines")
def pipelines(found):
    cells = {}
    for row in _part(found, "pipeline"):
        cores = row["case"]["cores"]
        head = f"images/s, {cores} core{'s' * (cores > 1)}"
        rate = f"{row['images_per_second']:,.0f}"
        cells[row["case"]["pipeline"], head] = rate
    return crossed(cells, "pipeline")


@view("training_speed.md#scaling")
def scaling(found):
    rows = _part(found, "replicas")
    first = rows[0]["images_per_second"]
    columns = {
        **fields("replicas", "cores", "batch"),
        "for each replica": lambda row: (
            row["case"]["batch"] // row["case"]["replicas"]
        ),
        "images/s": "{images_per_second:,.0f}",
        "to the first line": scaled("images_per_second", first, digits=2),
    }
    return listing(rows, columns)
