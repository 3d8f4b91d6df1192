"""The table of training."""

import statistics

from benchmarks import views


def ratio(row):
    """The loop's time over that of bare steps: median, least and most."""
    loop, fed = (row.seconds[name] for name in ("loop", "fed"))
    ratios = [a / b for a, b in zip(loop, fed, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


views.table(
    "training.md#overhead",
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
