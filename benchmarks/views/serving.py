"""Tables and the picture of exports."""

from benchmarks import views
from benchmarks.timing import median
from benchmarks.views.networks import ratio_of

BASELINE, EXPORT = "Keras, tf.function", "export"
RUNTIMES = ("TensorFlow", "ONNX Runtime", "OpenVINO")
SHOWN = (BASELINE, "Keras, predict_on_batch", EXPORT, "export, not folded")


def exports(found):
    """Returns a row for each that classifies the same batches."""
    rows = []
    for row in (x for x in found["exports"] if x.seconds):
        for what in SHOWN:
            taken = sorted(row.seconds[what])
            times = ratio_of(row, what, BASELINE)
            # Of fewer than 20 the slowest.
            p95 = taken[-(-95 * len(taken) // 100) - 1]
            facts = {"what": what, "taken": taken, "p95": p95}
            facts |= {"rate": row.batch / median(taken), "times": times}
            rows.append(views.Row(row, **facts, ratio=times[0]))
    return rows


@views.view("serving.md#exports")
def table(found):
    """A line for each network and batch, with what each way takes."""
    cells = {}
    for row in exports(found):
        line = f"{row.network}, batch {row.batch}"
        text = f"{1e3 * median(row.taken):.1f} ({1e3 * row.p95:.1f}) ms"
        if row.what != BASELINE:
            text += f", {views.interval(row.times)}"
        cells[line, row.what] = text
    return views.crossed(cells, "network")


@views.view("serving.md#runtimes")
def runtimes(found):
    plain, *others = RUNTIMES
    ratios, cells = {name: [] for name in others}, {}
    for row in sorted(found["runtimes"], key=lambda row: row.batch):
        rate = row.batch / median(row.seconds[plain])
        cells[row.network, f"batch {row.batch}: {plain}"] = f"{rate:.1f}"
        for name in others:
            times = ratio_of(row, plain, name)
            column = f"batch {row.batch}: {name}'s time"
            cells[row.network, column] = views.interval(times)
            ratios[name].append(times[0])
    sentences = [
        f"- {name}, {plain} being 1, takes {views.summary(times)} and is "
        f"faster in {sum(x < 1 for x in times)} of them."
        for name, times in ratios.items()
    ]
    return views.page(views.crossed(cells, "network"), "\n".join(sentences))
