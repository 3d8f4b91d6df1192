"""The figures of the exports as tables, and as a picture."""

import os

import numpy as np
import tensorflow as tf

from examples.serving.load import Measurement

HEAD = """\
# The speed of exports

Written by `python -m benchmarks.serving --write docs` (in `make bench`), all
in one run: {cores} CPU cores, TensorFlow {version}, float32. The machine is
shared and noisy: read ratios rather than milliseconds, and no ratio within
10 % of 1 as a difference.

![Throughput of the exports](serving_speed.png)
"""
BASELINE = "Keras, tf.function"
EXPORT, REMOTE = "export", "export, gRPC"
COLOURS = {
    "Keras, predict_on_batch": "C0",
    EXPORT: "C1",
    "export, bfloat16 weights": "C2",
    "export, not folded": "C3",
    REMOTE: "C4",
}
# What the picture compares with the baseline.
ALONE = tuple(name for name in COLOURS if name != REMOTE)
TOGETHER = (EXPORT, REMOTE)
LAMBDA, PLAIN = "LambdaResNet50", "ResNetRS50-SE"


def text(figures):
    """All tables, as markdown."""
    parts = [
        _section(
            "One client in the same process",
            "How many calls, p50 and p95 of one in milliseconds (the slowest "
            "where there are fewer than 20), images per second at p50, and "
            f'how many times as fast that is as "{BASELINE}". A call gives '
            "logits to arrays of pixels; the exports add probabilities and "
            "names. Not folded: the Keras model, saved as it is.",
            f"{_latency_table(figures)}\n\n{_summary(figures, _alone)}",
        ),
        _section(
            "Clients at the same time",
            "Each client asks again when it has its answer; p50 and p95 are "
            "what it waits, in milliseconds. Calls in this process, except "
            "gRPC: through the stand-in server of the tests, written in "
            "Python, in a process that shares the cores with the clients; "
            "TF Serving itself could not be run. Below the table: the largest "
            "number of clients.",
            f"{_concurrent_table(figures)}\n\n{_summary(figures, _together)}",
        ),
        _section(
            "Loading, and size",
            "Loading and the first answer (batch 1) in a process that has "
            "imported TensorFlow; the size of the version folder, in MiB of "
            "2^20 bytes, warm-up requests included.",
            _export_table(figures),
        ),
    ]
    return "\n\n".join(parts)


def write(figures, folder):
    """Writes `serving_speed.md` and `serving_speed.png`."""
    head = HEAD.format(cores=os.cpu_count(), version=tf.__version__)
    file = folder / "serving_speed.md"
    file.write_text(f"{head}\n{text(figures)}\n", encoding="utf-8")
    picture(figures, folder / "serving_speed.png")
    print(f"Wrote {file} and the picture beside it")


def _section(title, explanation, table):
    return f"## {title}\n\n{explanation}\n\n{table}"


def _table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _latency_table(figures):
    head = ["network", "batch", "what", "calls", "p50 ms", "p95 ms"]
    rows = []
    for name, figure in figures.items():
        for batch, taken in figure["latencies"].items():
            base = np.median(taken[BASELINE])
            for what, seconds in taken.items():
                middle = np.median(seconds)
                high = Measurement("", 1, batch, 0, seconds).percentile(95)
                numbers = [f"{1e3 * middle:.1f}", f"{1e3 * high:.1f}"]
                numbers += [f"{batch / middle:.1f}", f"{base / middle:.2f}"]
                calls = str(len(seconds))
                rows.append([name, str(batch), what, calls, *numbers])
    return _table([*head, "images/s", "ratio"], rows)


def _alone(figures, name, what, batch):
    """Images per second for one client."""
    return batch / np.median(figures[name]["latencies"][batch][what])


def _together(figures, name, what, batch):
    """Images per second for the largest number of clients."""
    cells = figures[name]["concurrent"]
    return cells[what, batch, _most_clients(cells)].images_per_second


def _most_clients(cells):
    """The largest number of clients that was measured."""
    return max(clients for _, _, clients in cells)


def _summary(figures, throughput):
    """What a table says, in a few sentences.

    Args:
        figures: those of all networks.
        throughput: `_alone` or `_together`.
    """

    def compared(name, what, rival, other):
        ratios = []
        for batch in figures[name]["latencies"]:
            ratio = throughput(figures, name, what, batch)
            ratio /= throughput(figures, rival, other, batch)
            ratios.append(f"{ratio:.2f} (batch {batch})")
        return ", ".join(ratios)

    sentences = [
        f"{name}, throughput of the export to that of the compiled Keras "
        f"model: {compared(name, EXPORT, name, BASELINE)}."
        for name in figures
    ]
    if {LAMBDA, PLAIN} <= set(figures):
        sentences.append(
            f"Exports, throughput of {LAMBDA} to that of {PLAIN}: "
            f"{compared(LAMBDA, EXPORT, PLAIN, EXPORT)}."
        )
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _concurrent_table(figures):
    head = ["network", "batch", "what", "clients", "answers"]
    rows = []
    for name, figure in figures.items():
        for (what, batch, clients), measured in figure["concurrent"].items():
            times = [1e3 * measured.percentile(p) for p in (50, 95)]
            numbers = [measured.images_per_second, *times]
            answers = len(measured.latencies)
            rows.append(
                [name, str(batch), what, str(clients), str(answers)]
                + [f"{n:.1f}" for n in numbers]
            )
    return _table([*head, "images/s", "p50 ms", "p95 ms"], rows)


def _export_table(figures):
    head = ["network", "what", "load s", "first answer s", "MiB"]
    rows = []
    for name, figure in figures.items():
        for what, found in figure["exports"].items():
            times = [f"{found[key]:.2f}" for key in ("load", "first")]
            rows.append([name, what, *times, f"{found['bytes'] / 2**20:.1f}"])
    return _table(head, rows)


def picture(figures, path):
    """Throughput relative to Keras, for one client and for several."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, 2, figsize=(12, 5.6), sharey=True)
    most = _most_clients(next(iter(figures.values()))["concurrent"])
    for axis, title, throughput, names in (
        (axes[0], "One client in the same process", _alone, ALONE),
        (axes[1], f"{most} clients at the same time", _together, TOGETHER),
    ):
        _draw_ratios(axis, figures, throughput, names)
        axis.set_title(title)
    axes[0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_ratios(axis, figures, throughput, names):
    """Bars of a throughput, relative to the baseline's."""
    cells = [(n, b) for n, f in figures.items() for b in f["latencies"]]
    height = 0.8 / len(names)
    for index, what in enumerate(names):
        ratios = [
            throughput(figures, name, what, batch)
            / throughput(figures, name, BASELINE, batch)
            for name, batch in cells
        ]
        places = np.arange(len(cells)) + height * index - 0.4 + height / 2
        axis.barh(places, ratios, height, color=COLOURS[what], label=what)
    axis.axvline(1.0, color="black", linewidth=1)
    labels = [f"{name}\nbatch {batch}" for name, batch in cells]
    axis.set_yticks(range(len(cells)), labels)
    axis.set_xlabel(f'throughput, as a multiple of "{BASELINE}"')
    axis.grid(axis="x", alpha=0.3)
    axis.legend(  # below, where it hides no figure
        fontsize=8,
        ncols=2,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.12),
        frameon=False,
    )
