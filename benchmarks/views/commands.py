"""Tables of training and of exports."""

from statistics import median

from benchmarks import views
from benchmarks.timing import ratio

BASELINE, EXPORT = "Keras, tf.function", "export"
RUNTIMES = ("TensorFlow", "ONNX Runtime", "OpenVINO")
SHOWN = (BASELINE, "Keras, predict_on_batch", EXPORT, "export, not folded")


def loops(found):
    """Records of the loop with its time over bare steps: median, ends."""
    for row in found["training"]:
        pairs = zip(row.seconds["loop"], row.seconds["fed"], strict=True)
        ratios = [loop / bare for loop, bare in pairs]
        row["ratio"] = median(ratios), min(ratios), max(ratios)
        row["times"] = views.interval(row.ratio, digits=3)
    return found["training"]


@views.view("training.md#overhead")
def overhead(found):
    columns = {
        "network": "{network}",
        "bare step, one batch, ms": "{seconds[held]:.1f/ms}",
        "bare step, pipeline, ms": "{seconds[fed]:.1f/ms}",
        "the loop in `train.py`, ms": "{seconds[loop]:.1f/ms}",
        "loop / bare step, pipeline (range over epochs)": "{times}",
    }
    return views.listing(loops(found), columns)


def exports(found):
    """Records with how many times as long as the export the model takes."""
    for row in found["exports"]:
        row["ratio"] = ratio(row.seconds[EXPORT], row.seconds[BASELINE])[0]
    return found["exports"]


@views.view("serving.md#exports")
def table(found):
    cells = {}
    for row in exports(found):
        for what in SHOWN:
            taken = sorted(row.seconds[what])
            p95 = taken[-(-95 * len(taken) // 100) - 1]  # of few the slowest
            text = f"{1e3 * median(taken):.1f} ({1e3 * p95:.1f}) ms"
            if what != BASELINE:
                times = ratio(row.seconds[what], row.seconds[BASELINE])
                text += f", {views.interval(times)}"
            cells[f"{row.network}, batch {row.batch}", what] = text
    return views.crossed(cells, "network")


@views.view("serving.md#runtimes")
def runtimes(found):
    plain, *others = RUNTIMES
    ratios, cells = {name: [] for name in others}, {}
    for row in sorted(found["runtimes"], key=lambda row: row.batch):
        rate = row.batch / median(row.seconds[plain])
        cells[row.network, f"batch {row.batch}: {plain}"] = f"{rate:.1f}"
        for name in others:
            times = ratio(row.seconds[plain], row.seconds[name])
            column = f"batch {row.batch}: {name}'s time"
            cells[row.network, column] = views.interval(times)
            ratios[name].append(times[0])
    sentences = [
        f"- Compared with {plain}, {name} takes {views.summary(times)}, and is "
        f"faster in {sum(x < 1 for x in times)} of them."
        for name, times in ratios.items()
    ]
    return views.page(views.crossed(cells, "network"), "\n".join(sentences))
