"""Tables, a picture and a fit from what `measure.py` wrote.

    python -m benchmarks.gpu.report gpu.json --write docs

The programs are TensorFlow's, compiled by XLA through JAX, on one card.
"""

import argparse
import json
import pathlib
import shutil

from benchmarks import report
from benchmarks.gpu.programs import Layer
from benchmarks.layers import device_fit
from benchmarks.layers.speed import Line
from lambdanet_tf import ops

DOCUMENT = "gpu.md"
GPU = ops.DEVICES["gpu"]
ALGORITHMS = ("lambda_first", "query_first")
PEERS = ("timm", "lucidrains")


def measured(group):
    """The algorithms of a layer that were timed, as `Measured`."""
    layer = group["layer"]
    grid = (layer["image_size"],) * 2
    line = Line(grid, layer["filters"], layer["scope"], group["batch"])
    return device_fit.Measured(
        line.geometry,
        line.dims,
        group["training"],
        line.batch,
        {
            line["contestant"]: line["median"]
            for line in group["lines"]
            if line["contestant"] in ops.ALGORITHMS
        },
    )


def seconds(group, name):
    for line in group["lines"]:
        if line["contestant"] == name:
            return line["median"]
    return None


def _milliseconds(value):
    return "" if value is None else f"{1e3 * value:.3f}"


def _best_peer(group, kind):
    times = [seconds(group, f"{name}, {kind}") for name in PEERS]
    return min((time for time in times if time is not None), default=None)


def _precision(group):
    return "bfloat16" if group["bfloat16"] else "float32 (TF32)"


def layer_table(figures, device=GPU):
    """A line per layer: what would be chosen, the best, and the peers."""
    head = ["layer", "phase", "precision", "`auto`", "ms", *ALGORITHMS]
    head += ["einsum", "conv2d", "`auto` / best", "best peer, eager"]
    head += ["compiled", "temporaries, MiB"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for group in _layers(figures):
        row = measured(group)
        chosen = row.choice(device)
        memory = next(
            line["temporaries"]
            for line in group["lines"]
            if line["contestant"] == chosen
        )
        names = (*ALGORITHMS, "einsum", "conv2d")
        cells = [
            Layer(**group["layer"]).name,
            "training" if group["training"] else "forward",
            _precision(group),
            chosen,
            _milliseconds(seconds(group, chosen)),
            *(_milliseconds(seconds(group, name)) for name in names),
            f"{row.regret(device):.2f}",
            _milliseconds(_best_peer(group, "eager")),
            _milliseconds(_best_peer(group, "compiled")),
            f"{memory / 2**20:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def network_table(figures):
    """A line per training step, in images per second."""
    head = ["step", "ms", "images/s", "temporaries, GiB"]
    head += ["timm, eager", "timm, compiled"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, group in figures["groups"].items():
        time = seconds(group, "step")
        if group["layer"] is not None or time is None:
            continue
        (step,) = (x for x in group["lines"] if x["contestant"] == "step")
        peers = [seconds(group, f"timm, {k}") for k in ("eager", "compiled")]
        cells = [
            name,
            _milliseconds(time),
            f"{group['batch'] / time:.0f}",
            f"{step['temporaries'] / 2**30:.2f}",
            *(f"{group['batch'] / x:.0f}" if x else "" for x in peers),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _layers(figures):
    """Groups of layers of which an algorithm was measured."""
    return [
        group
        for group in figures["groups"].values()
        if group["layer"] is not None and measured(group).expected(GPU)
    ]


def section(figures):
    """The text of docs/gpu.md between its marks."""
    machine, groups = figures["machine"], _layers(figures)
    packages = [f"{k} {v}" for k, v in machine["packages"].items()]
    where = ", ".join([f"jax {machine['jax']}", *packages])
    rows = [measured(group) for group in groups]
    fitted = device_fit.fit(rows, GPU)
    worst = [
        max(row.regret(device) for row in rows) for device in (GPU, fitted)
    ]
    texts = [
        f"One {machine['device']}; {where}. TensorFlow's programs, compiled "
        "by XLA through JAX; PyTorch's layers by PyTorch.",
        "![Time against the best peer](gpu.png)",
        layer_table(figures),
        network_table(figures),
        f"With the row of `DEVICES` the choice takes at most {worst[0]:.2f} "
        f"times as long as the fastest algorithm, with a fitted row "
        f"{worst[1]:.2f}: `{fitted}`.",
    ]
    if figures["skipped"]:
        texts.append(f"No time was left for: {'; '.join(figures['skipped'])}.")
    failures = [
        f"{name}, {contestant}: {message}"
        for name, group in figures["groups"].items()
        for contestant, message in group["failures"].items()
    ]
    if failures:
        texts.append("Failed:\n\n" + "\n".join(f"- {x}" for x in failures))
    return "\n\n".join(texts)


def picture(figures, path):
    """Bars: the best peer's time as a multiple of the choice's."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    groups = _layers(figures)[::-1]
    figure, axis = plt.subplots(figsize=(9, 0.36 * len(groups) + 1.4))
    for index, kind in enumerate(("eager", "compiled")):
        ratios = [
            (_best_peer(group, kind) or 0)
            / seconds(group, measured(group).choice(GPU))
            for group in groups
        ]
        rows = [i + 0.2 - 0.4 * index for i in range(len(groups))]
        axis.barh(rows, ratios, 0.38, label=f"best peer, {kind}")
    axis.axvline(1.0, color="black", linewidth=1)
    names = [
        f"{Layer(**group['layer']).name}, "
        f"{'training' if group['training'] else 'forward'}"
        for group in groups
    ]
    axis.set_yticks(range(len(groups)), names, fontsize=7)
    axis.set_xlabel("time as a multiple of that of `auto`")
    axis.grid(axis="x", alpha=0.3)
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", help="the file of measure.py")
    parser.add_argument("--write", default="docs", help="folder of gpu.md")
    options = parser.parse_args(arguments)
    folder = pathlib.Path(options.write)
    figures = json.loads(pathlib.Path(options.results).read_text())
    text = section(figures)
    report.insert(folder, "gpu", text, DOCUMENT)
    picture(figures, folder / "gpu.png")
    if pathlib.Path(options.results).resolve() != folder / "gpu.json":
        shutil.copyfile(options.results, folder / "gpu.json")
    print(text)


if __name__ == "__main__":
    main()
