"""The table of training."""

import statistics

from benchmarks import views


def loops(found):
    """Records of the loop, with its time over that of bare steps.

    The ratio is the median of the epochs, the least and the most.
    """
    rows = [row for row in found["training"] if row.part == "loop"]
    for row in rows:
        pairs = zip(row.seconds["loop"], row.seconds["fed"], strict=True)
        ratios = [loop / bare for loop, bare in pairs]
        row["ratio"] = statistics.median(ratios), min(ratios), max(ratios)
        row["times"] = views.interval(row.ratio, digits=3)
    return rows


@views.view("training.md#overhead")
def overhead(found):
    columns = {
        "network": "{network}",
        "bare step, one batch held, ms": "{seconds[held]:.1f/ms}",
        "bare step, batches of the pipeline, ms": "{seconds[fed]:.1f/ms}",
        "the loop of `train.py`, ms": "{seconds[loop]:.1f/ms}",
        "loop / bare on the pipeline (epochs: least to most)": "{times}",
    }
    return views.listing(loops(found), columns)
