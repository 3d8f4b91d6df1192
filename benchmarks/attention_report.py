"""The figures of `benchmarks.attention`: tables and a picture."""

from benchmarks import report
from benchmarks.paper_memory import GIB
from benchmarks.paper_memory import table_4_gib
from lambdanet_tf.environment import require

DOCUMENT = "attention.md"
LIMITS = (16, 80)
# The paper's rows: memory in GB by its formula for a whole ResNet-50, examples
# per second on 8 TPUv3 cores and top-1 accuracy on ImageNet (Table 4).
PAPER = {
    "global attention": ("global self-attention", None, None),
    "axial attention": ("axial self-attention", 960, 77.5),
    "local attention 7x7": (None, 440, 77.4),
    "lambda, all pairs": ("lambda", 1160, 78.4),
    "lambda, all pairs, shared": ("lambda shared embeddings", 1210, 78.0),
    "lambda": ("lambda", 1160, 78.4),
    "lambda, shared": ("lambda shared embeddings", 1210, 78.0),
    "lambda convolution 7x7": (None, 1100, 78.1),
}
COLORS = {
    "global attention": "#cc3311",
    "axial attention": "#ee7733",
    "local attention 7x7": "#bb9900",
    "lambda, all pairs": "#88bbdd",
    "lambda": "#3366aa",
    "lambda convolution 7x7": "#339966",
}
ONE_LAYER = "1 of {side}x{side}x64, batch {batch}"
STAGES = (
    "3 of 56x56x64",
    "4 of 28x28x128",
    "6 of 14x14x256",
    "3 of 7x7x512",
)
_BATCH = 128


def write(figures, folder):
    """Writes the tables into `attention.md` and draws `attention.png`."""
    if figures["bytes"]:
        text = f"{network_table(figures)}\n\n{batch_table(figures)}"
        report.insert(folder, "memory", text, DOCUMENT)
        picture(figures, folder / "attention.png")
    if figures["seconds"]:
        report.insert(folder, "time", time_table(figures), DOCUMENT)


def network_table(figures):
    """Memory of the stages of ResNet-50, beside the paper's formula."""
    heads = [f"{stage.split(' of ')[1]} ({stage[0]})" for stage in STAGES]
    lines = [
        f"| layers | {' | '.join(heads)} | all | the formula | the paper "
        "prints |",
        "|" + "---|" * (len(heads) + 4),
    ]
    formula = table_4_gib()
    printed = {
        "global self-attention": "120",
        "axial self-attention": "4.8",
        "lambda": "1.9",
        "lambda shared embeddings": "0.63",
    }
    for name, (row, _, _) in PAPER.items():
        cells = [
            figures["bytes"].get(f"{name} | {stage}, batch {_BATCH}")
            for stage in STAGES
        ]
        if None in cells:
            continue
        cells = [f"{cell / GIB:.2f}" for cell in [*cells, sum(cells)]]
        cells += [f"{formula[row]:.2f}", printed[row]] if row else ["", ""]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def batch_table(figures):
    """Memory of one layer at 64x64, and the largest batches that fit."""
    batches = (1, 8, 32, 128, 512)
    lines = [
        "| one layer, 64x64 | "
        + " | ".join(f"batch {batch}" for batch in batches)
        + " | "
        + " | ".join(f"largest batch in {gib} GiB" for gib in LIMITS)
        + " |",
        "|" + "---|" * (len(batches) + 1 + len(LIMITS)),
    ]
    for name in COLORS:
        cells = [
            figures["bytes"].get(f"{name} | {_one(64, batch)}")
            for batch in batches
        ]
        if None in cells or name not in figures["largest_batch"]:
            continue
        cells = [_gib(cell) for cell in cells]
        cells += [f"{number:,}" for number in figures["largest_batch"][name]]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def time_table(figures):
    """Milliseconds of a training step, and ratios to the lambda layers."""
    batch = figures["time_batch"]
    cases = [_one(64, 1), *(f"{stage}, batch {batch}" for stage in STAGES)]
    heads = [case.split(" of ")[1] for case in cases]
    heads = [
        f"{head} ({case[0]})" for head, case in zip(heads, cases, strict=True)
    ]
    lines = [
        f"| layers | {' | '.join(heads)} | the paper's images/s, top-1 |",
        "|" + "---|" * (len(heads) + 2),
    ]
    for name, (_, speed, top1) in PAPER.items():
        cells = [
            _milliseconds(figures["seconds"], name, case) for case in cases
        ]
        cells.append(f"{speed}, {top1}" if speed else "does not fit")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _milliseconds(seconds, name, case):
    """Median (fastest to slowest), and the ratio to the lambda layer's."""
    times = seconds.get(f"{name} | {case}")
    if times is None:
        return ""
    middle, fast, slow = (1e3 * time for time in times)
    ratio = times[0] / seconds[f"lambda | {case}"][0]
    return f"{middle:.0f} ({fast:.0f}-{slow:.0f}), {ratio:.2f}"


def picture(figures, path):
    """Memory as the batch and as the map grow; what still fits."""
    figure = require("matplotlib.figure", extra="plot").Figure(
        figsize=(12, 5.2), layout="constrained"
    )
    axes = figure.subplots(1, 2, sharey=True)
    panels = (
        (axes[0], "batch", lambda value: _one(64, value)),
        (axes[1], "map side", lambda value: _one(value, _BATCH)),
    )
    values = {"batch": (1, 8, 32, 128, 512)}
    values["map side"] = (16, 24, 32, 48, 64, 96)
    for axis, label, case in panels:
        for name, color in COLORS.items():
            points = [
                (value, figures["bytes"][f"{name} | {case(value)}"] / GIB)
                for value in values[label]
                if f"{name} | {case(value)}" in figures["bytes"]
            ]
            if points:
                axis.plot(*zip(*points, strict=True), "o-", c=color, label=name)
        for gib in LIMITS:
            axis.axhline(gib, color="black", linewidth=0.8, linestyle="--")
            axis.annotate(
                f"{gib} GiB",
                (0.01, gib),
                xycoords=("axes fraction", "data"),
                va="bottom",
                fontsize=9,
            )
        axis.set(xscale="log", yscale="log", xlabel=label)
        axis.set_xticks(values[label], values[label])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_title("One layer on 64x64 maps of 64 channels")
    axes[1].set_title(f"One layer, batch {_BATCH}, 64 channels")
    axes[0].set_ylabel("memory of a training step, GiB (compiler's figure)")
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    figure.savefig(path, dpi=110)


def _one(side, batch):
    return ONE_LAYER.format(side=side, batch=batch)


def _gib(size):
    gib = size / GIB
    return (
        f"{gib:.3f}"
        if gib < 1
        else f"{gib:.3g}"
        if gib < 100
        else f"{gib:,.0f}"
    )
