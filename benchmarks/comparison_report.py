"""Speed and published accuracy of networks: the table and the picture."""

import math
import statistics

from benchmarks import report
from benchmarks import tpu_calibration
from benchmarks import tpu_report
from lambdanet_tf.environment import require
from lambdanet_tf.specs import TABLE_20

DOCUMENT = "comparison.md"
ROUNDS = "comparison.json"
ESTIMATES = "comparison_tpu.json"
PHASES = ("training", "inference")
# Where the accuracies are from: ImageNet alone, no further images.
SOURCES = {
    "LambdaResNet": "the paper, Table 20 (350 epochs)",
    "ResNet-RS": "README of models/official/resnet/resnet_rs in "
    "github.com/tensorflow/tpu (350 epochs)",
    "EfficientNet": "Tan and Le, 2019, arXiv:1905.11946, Table 2",
    "EfficientNetV2": "Tan and Le, 2021, arXiv:2104.00298, Table 7",
    "ViT": "Touvron et al., 2021, arXiv:2012.12877, Table 5 (DeiT, 300 epochs, "
    "without distillation)",
}
COLORS = {
    "LambdaResNet": "#3366aa",
    "ResNet-RS": "#777777",
    "EfficientNet": "#cc3311",
    "EfficientNetV2": "#ee9955",
    "ViT": "#228833",
}
# Seconds of a training step of 1024 images on 8 TPUv3 cores, bfloat16: the
# paper's Table 20, and the same README (its batch is 128 a core).
RESNET_RS_STEPS = {
    "ResNetRS50, 160 px": 0.070,
    "ResNetRS101, 160 px": 0.120,
    "ResNetRS101, 192 px": 0.170,
    "ResNetRS152, 192 px": 0.240,
    "ResNetRS152, 224 px": 0.320,
    "ResNetRS152, 256 px": 0.410,
    "ResNetRS200, 256 px": 0.570,
    "ResNetRS270, 256 px": 0.780,
    "ResNetRS350, 256 px": 1.100,
    "ResNetRS350, 320 px": 1.630,
    "ResNetRS420, 320 px": 2.090,
}
STEP_IMAGES = 1024


def published_steps():
    """Seconds an image of training on TPUs, by the key of a network."""
    steps = {
        f"LambdaResNet{row.depth}, {row.image_size} px": row.step_seconds
        for row in TABLE_20
    }
    steps |= RESNET_RS_STEPS
    return {key: seconds / STEP_IMAGES for key, seconds in steps.items()}


def medians(rounds, phase):
    """Seconds an image, by the key of a network: the median of the rounds."""
    keys = dict.fromkeys(key for found in rounds for key in found["networks"])
    return {
        key: statistics.median(
            found["networks"][key][phase][0]
            for found in rounds
            if key in found["networks"]
        )
        for key in keys
    }


def seconds_at(points, top1):
    """Seconds an image of a family at an accuracy, between its networks.

    Args:
        points: list of (top1, seconds) of a family.
        top1: accuracy.

    Returns:
        Seconds, between the fastest networks that are at least as good as
        each accuracy, on a line in the logarithm; None outside of them.
    """
    best = []
    for accuracy, seconds in sorted(points, reverse=True):
        if not best or seconds < best[-1][1]:
            best.append((accuracy, seconds))
    best.reverse()
    for (a, slow), (b, fast) in zip(best, best[1:], strict=False):
        if a <= top1 <= b:
            share = (top1 - a) / (b - a)
            return math.exp(
                (1 - share) * math.log(slow) + share * math.log(fast)
            )
    return None


def stored_rounds(folder):
    """What `benchmarks.comparison` has measured: a list of rounds."""
    return report.stored(folder / ROUNDS, [])


def estimated_steps(folder, figure, chip="v3"):
    """Seconds an image of training on 8 cores, by the compiler.

    Args:
        folder: path of the page.
        figure: from a result of a compilation to seconds of its step.
        chip: key of `CHIPS`.
    """
    results = report.stored(folder / ESTIMATES, {})
    return {
        key.removesuffix(f" on {chip}"): figure(result)
        / (result["images"] * tpu_calibration.CORES)
        for key, result in results.items()
        if key.endswith(f" on {chip}") and result["status"] == "ok"
    }


def write(networks, folder):
    """Writes the tables into `comparison.md` and draws `comparison.png`.

    Args:
        networks: dict from keys to `Network`.
        folder: path of the page, and of what was measured and estimated.
    """
    rounds = stored_rounds(folder)
    figures = {
        "the estimate": estimated_steps(folder, tpu_report.estimate),
        "its cycles": estimated_steps(folder, tpu_calibration.listed),
    }
    panels = {"training, 8 TPUv3 cores, published": published_steps()}
    if any(figures.values()):
        text = estimates_table(networks, figures)
        text += "\n\n" + ratios(networks, figures)
        report.insert(folder, "estimated", text, DOCUMENT)
        panels["training, TPUv3, the compiler's cycles"] = figures["its cycles"]
    if rounds:
        found = {phase: medians(rounds, phase) for phase in PHASES}
        text = f"{table(networks, rounds)}\n\n{ratios(networks, found)}"
        report.insert(folder, "measured", text, DOCUMENT)
        panels |= {f"{phase}, this CPU": found[phase] for phase in PHASES}
    picture(networks, panels, folder / "comparison.png")


def estimates_table(networks, figures):
    """Every network: images per second by the compiler, and as published.

    Args:
        networks: dict from keys to `Network`.
        figures: dict from a figure of the compiler to seconds an image, by
            key.
    """
    columns = {"published": published_steps(), **figures}
    lines = [
        "| network | top-1 | "
        + " | ".join(f"{name}, images/s" for name in columns)
        + " | "
        + " | ".join(f"published / {name}" for name in figures)
        + " |",
        "|---" * (2 + len(columns) + len(figures)) + "|",
    ]
    for key, network in networks.items():
        if not any(key in seconds for seconds in figures.values()):
            continue
        rates = {
            name: 1 / seconds[key] if key in seconds else None
            for name, seconds in columns.items()
        }
        known = rates["published"]
        cells = [key, f"{network.top1:.1f}"]
        cells += [f"{rate:,.0f}" if rate else "" for rate in rates.values()]
        cells += [f"{known / rates[x]:.2f}" if known else "" for x in figures]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table(networks, rounds):
    """Every network: size, accuracy, images per second."""
    found = {phase: medians(rounds, phase) for phase in PHASES}
    lines = [
        "| network | parameters, M | top-1 | training, images/s | inference, "
        "images/s |",
        "|---|---|---|---|---|",
    ]
    for key, network in networks.items():
        if key not in found["training"]:
            continue
        own = [r["networks"][key] for r in rounds if key in r["networks"]]
        cells = [
            key,
            f"{own[0]['parameters'] / 1e6:.1f}",
            f"{network.top1:.1f}",
        ]
        for phase in PHASES:
            fast = min(row[phase][1] for row in own)
            slow = max(row[phase][2] for row in own)
            cells.append(
                f"{1 / found[phase][key]:.2f} ({1 / slow:.2f}-{1 / fast:.2f})"
            )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ratios(networks, columns):
    """How many times faster LambdaResNets are at equal accuracy.

    Args:
        networks: dict from keys to `Network`.
        columns: dict from what was timed to seconds an image, by key.
    """
    lines = [
        "| at the accuracy of | "
        + " | ".join(f"{name}: LambdaResNet is faster by" for name in columns)
        + " |",
        "|---" * (1 + len(columns)) + "|",
    ]
    for key, network in networks.items():
        if network.family == "LambdaResNet":
            continue
        if not any(key in seconds for seconds in columns.values()):
            continue
        cells = []
        for seconds in columns.values():
            ours = family_points(networks, seconds, "LambdaResNet")
            at = seconds_at(ours, network.top1)
            if key not in seconds:
                cells.append("")
            elif at is None:
                cells.append("no such accuracy")
            else:
                cells.append(f"{seconds[key] / at:.2f}")
        lines.append(f"| {key} ({network.top1}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def family_points(networks, seconds, family):
    """(top1, seconds an image) of the networks of a family."""
    return [
        (network.top1, seconds[key])
        for key, network in networks.items()
        if network.family == family and key in seconds
    ]


def picture(networks, panels, path):
    """Accuracy over time for an image, in panels.

    Args:
        networks: dict from keys to `Network`.
        panels: dict from a title to seconds an image, by key.
        path: of the picture.
    """
    ticker = require("matplotlib.ticker", extra="plot")
    figure = require("matplotlib.figure", extra="plot").Figure(
        figsize=(4.6 * len(panels) + 0.6, 4.8), layout="constrained"
    )
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (title, seconds) in zip(axes, panels.items(), strict=True):
        for family, color in COLORS.items():
            points = family_points(networks, seconds, family)
            if points:
                top1, times = zip(*sorted(points), strict=True)
                times = [1e3 * time for time in times]
                axis.plot(times, top1, "o-", c=color, label=family)
        axis.set(xscale="log", xlabel="milliseconds an image", title=title)
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(ticker.NullFormatter())
        axis.grid(alpha=0.3, which="both")
        axis.spines[["top", "right"]].set_visible(False)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(loc="lower right", frameon=False)
    axes[0].set_ylabel("published top-1 accuracy on ImageNet, %")
    figure.savefig(path, dpi=110)
