"""Tables of training."""

import statistics

from benchmarks import views


def ratio(row):
    """The loop's time over that of bare steps: median, least and most."""
    loop, fed = (row.seconds[name] for name in ("loop", "fed"))
    ratios = [a / b for a, b in zip(loop, fed, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


overhead = views.table(
    "training_speed.md#overhead",
    "training",
    {
        "network": "{network}",
        "bare step, one batch held, ms": "{seconds[held]:.1f/ms}",
        "bare step, batches of the pipeline, ms": "{seconds[fed]:.1f/ms}",
        "the loop of `train.py`, ms": "{seconds[loop]:.1f/ms}",
        "loop / bare on the pipeline (epochs: least to most)": (
            lambda row: views.interval(ratio(row), digits=3)
        ),
    },
    where=lambda row: row.part == "loop",
)


@views.view("training_speed.md#pipelines")
def pipelines(found):
    cells = {}
    for row in (row for row in found["training"] if row.part == "pipeline"):
        head = f"images/s, {row.cores} core{'s' * (row.cores > 1)}"
        cells[row.pipeline, head] = f"{row.images_per_second:,.0f}"
    return views.crossed(cells, "pipeline")


@views.view("training_speed.md#scaling")
def scaling(found):
    rows = [row for row in found["training"] if row.part == "replicas"]
    first = rows[0].images_per_second
    columns = {
        **views.fields("replicas", "cores", "batch"),
        "for each replica": lambda row: row.batch // row.replicas,
        "images/s": "{images_per_second:,.0f}",
        "to the first line": lambda x: f"{x.images_per_second / first:.2f}",
    }
    return views.listing(rows, columns)
