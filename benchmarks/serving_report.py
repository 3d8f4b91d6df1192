"""Figures of the exports as tables, and as a picture.

    python -m benchmarks.serving_report     draws docs/serving_speed.png anew

from the tables of docs/serving_speed.md.
"""

import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from benchmarks import report
from examples.serving.load import Measurement

DOCUMENT, SECTION = "serving_speed.md", "exports"
HEAD = """\
Written by `python -m benchmarks.serving --write docs` (in `make bench`), all
in one run: {cores} CPU cores, TensorFlow {version}, float32. The machine is
shared and noisy: read ratios rather than milliseconds, and no ratio within
10 % of 1 as a difference.

![Throughput of the exports](serving_speed.png)

A dot is the throughput of the tables; its line ends where it would be if every
call took as long as the 95th percentile.
"""
BASELINE = "Keras, tf.function"
EXPORT, REMOTE = "export", "export, gRPC"
COLORS = {
    "Keras, predict_on_batch": "C0",
    EXPORT: "C1",
    "export, bfloat16 weights": "C2",
    "export, not folded": "C3",
    REMOTE: "C4",
}
# What the picture compares with the baseline.
ALONE = tuple(name for name in COLORS if name != REMOTE)
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
            "gRPC: through the example's mock server, written in "
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
    """Puts the tables into `serving_speed.md`, draws `serving_speed.png`."""
    head = HEAD.format(cores=os.cpu_count(), version=tf.__version__)
    section = f"{head}\n{text(figures)}"
    report.insert(folder, SECTION, section, DOCUMENT)
    picture(section, folder / "serving_speed.png")
    print(f"Wrote {folder / DOCUMENT} and the picture beside it")


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


def picture(markdown, path):
    """Draws the tables of `serving_speed.md`: throughput relative to Keras.

    A line goes from each dot to the slowest calls: what the
    throughput would be if all took as long as the 95th percentile.
    """
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    alone, together = _tables(markdown)[:2]
    most = max(int(row["clients"]) for row in together)
    crowd = [row for row in together if int(row["clients"]) == most]
    figure, axes = plt.subplots(
        1, 2, figsize=(12, 7.5), sharex=True, sharey=True
    )
    _draw_ratios(axes[0], alone, ALONE, 1)
    axes[0].set_title("One client in the same process")
    _draw_ratios(axes[1], crowd, TOGETHER, most)
    axes[1].set_title(f"{most} clients at the same time")
    axes[0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _tables(markdown):
    """The tables of a page: lists of rows, dicts from column to text."""
    tables, head = [], None
    for line in markdown.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = cells
            tables.append([])
        elif not set(line) <= set("|- "):
            tables[-1].append(dict(zip(head, cells, strict=True)))
    return tables


def _draw_ratios(axis, rows, names, clients):
    """Dots of throughputs relative to the baseline's, with their tails."""
    cells = list(dict.fromkeys((r["network"], r["batch"]) for r in rows))
    base = {
        (row["network"], row["batch"]): float(row["images/s"])
        for row in rows
        if row["what"] == BASELINE
    }
    for index, what in enumerate(names):
        dots, tails, places = [], [], []
        for row in (row for row in rows if row["what"] == what):
            cell = row["network"], row["batch"]
            slow = 1e3 * clients * int(row["batch"]) / float(row["p95 ms"])
            dots.append(float(row["images/s"]) / base[cell])
            tails.append(slow / base[cell])
            offset = (index - (len(names) - 1) / 2) * 0.8 / len(names)
            places.append(cells.index(cell) + offset)
        axis.hlines(places, tails, dots, color=COLORS[what], linewidth=1.5)
        axis.plot(dots, places, "o", color=COLORS[what], label=what)
    axis.axvline(1.0, color="black", linewidth=1)
    for border in range(1, len(cells)):
        axis.axhline(border - 0.5, color="black", alpha=0.1, linewidth=1)
    labels = [f"{network}\nbatch {batch}" for network, batch in cells]
    axis.set_yticks(range(len(cells)), labels)
    axis.set_xlabel(f'throughput, as a multiple of "{BASELINE}"')
    axis.grid(axis="x", alpha=0.3)
    axis.legend(  # below, where it hides no figure
        fontsize=8,
        ncols=2,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.1),
        frameon=False,
    )


if __name__ == "__main__":
    page = pathlib.Path(__file__).parents[1] / "docs" / DOCUMENT
    picture(page.read_text(encoding="utf-8"), page.with_suffix(".png"))
