"""The results of the detectors: a table and a picture for the docs."""

import json
import statistics

import numpy as np
import tensorflow as tf
from official.vision.ops import mask_ops

from benchmarks import detection_scenes
from benchmarks import report
from benchmarks.views import studies
from lambdanet_tf.environment import require

EXPORT = "export"
FACTS_FILE = "benchmark.json"
DOCUMENT = "detection.md"
METRICS = {
    "boxes AP": "AP",
    "AP50": "AP50",
    "AP75": "AP75",
    "masks AP": "mask_AP",
    "mask AP50": "mask_AP50",
    "mask AP75": "mask_AP75",
}
SCENES = 6  # of the picture: the first held-out ones
THRESHOLD = 0.5  # of the scores that are drawn
_COLORS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#00a0a0")


def read(folder):
    """What is known about a finished run; None if it is not finished."""
    return report.stored(folder / FACTS_FILE, None)


def text_row(row):
    """One line about a run."""
    figures = [f"{k} {row['metrics'][v]:.3f}" for k, v in METRICS.items()]
    return f"{row['pictures']}, {row['network']}, seed {row['seed']}: " + (
        ", ".join(figures)
    )


def write(runs, folder):
    """Writes the table, the picture and the figures behind them.

    Args:
        runs: folder of the runs.
        folder: where `detection.md` is.
    """
    found = {
        path.parent: read(path.parent) for path in runs.glob(f"*/{FACTS_FILE}")
    }
    order = sorted(found, key=lambda f: (found[f]["pictures"], f.name))
    rows = [found[run] for run in order]
    text = json.dumps(rows, indent=1, sort_keys=True) + "\n"
    (folder / "detection.json").write_text(text)
    report.insert(folder, "results", table(rows), DOCUMENT)
    pictures = rows[0]["pictures"]
    firsts = {
        found[run]["network"]: run
        for run in reversed(order)
        if found[run]["pictures"] == pictures
    }
    picture(
        runs / "scenes" / pictures,
        dict(sorted(firsts.items(), reverse=True)),
        folder / "detection.png",
    )


def table(rows):
    """Every run, and what they ran on."""
    heads = ["pictures", "network", "parameters", "backbone", "seed", "steps"]
    heads += [*METRICS, "minutes", "CPU minutes"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in rows:
        times = [row.get("seconds"), row.get("cpu_seconds")]
        cells = [
            row["pictures"],
            row["network"],
            f"{row['parameters']:,}",
            f"{row['backbone_parameters']:,}",
            str(row["seed"]),
            f"{row['steps']:,}",
            *(f"{100 * row['metrics'][name]:.1f}" for name in METRICS.values()),
            *("" if time is None else f"{time / 60:.0f}" for time in times),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    versions = rows[0]["versions"]
    least = min(100 * row["metrics"]["mask_AP50"] for row in rows)
    lines += [
        "",
        f"AP in per cent, of {detection_scenes.PARTS['heldout']} held-out "
        f"scenes; the least mask AP50 is {least:.1f}. {versions['keras']}, "
        f"TensorFlow {versions['tensorflow']}, Python {versions['python']}.",
        *differences(rows),
    ]
    return "\n".join(lines)


def differences(rows):
    """How far the networks are apart in AP, seed by seed: a list of lines."""
    lines = []
    for pictures in sorted({row["pictures"] for row in rows}):
        for kind in ("boxes AP", "masks AP"):
            by_seed = [
                {
                    row["seed"]: 100 * row["metrics"][METRICS[kind]]
                    for row in rows
                    if (row["pictures"], row["network"]) == (pictures, network)
                }
                for network in ("lambda", "convolution")
            ]
            pairs = studies.seed_by_seed(*by_seed)
            half = studies.interval(pairs)
            if half is not None:
                lines += [
                    "",
                    f"{kind}, {pictures}, lambda layers less convolutions, "
                    f"seed by seed: {statistics.mean(pairs):+.1f} points on "
                    f"average ({', '.join(f'{x:+.1f}' for x in pairs)}; the "
                    f"95 % t-interval of the mean: ±{half:.1f}).",
                ]
    return lines


def picture(records, exports, path):
    """Draws the truth and what each export detects in held-out scenes.

    Args:
        records: folder of the scenes.
        exports: dict from names to folders of runs.
        path: to write to.
    """
    names = (records / detection_scenes.CLASS_FILE).read_text().split("\n")
    scenes = detection_scenes.read_scenes(
        str(records / "heldout.tfrecord"), SCENES
    )
    figure = require("matplotlib.figure", extra="plot").Figure(
        figsize=(2.2 * SCENES, 2.3 * (1 + len(exports))), layout="constrained"
    )
    axes = figure.subplots(1 + len(exports), SCENES, squeeze=False)
    for axis, scene in zip(axes[0], scenes, strict=True):
        draw(axis, scene, [names[label - 1] for label in scene.labels])
    for line, run in zip(axes[1:], exports.values(), strict=True):
        detect = tf.saved_model.load(str(run / EXPORT / "saved_model"))
        for axis, scene in zip(line, scenes, strict=True):
            found, scores = detections(detect, scene.image)
            texts = [
                f"{names[label - 1]} {score:.2f}"
                for label, score in zip(found.labels, scores, strict=True)
            ]
            draw(axis, found, texts)
    for axis, title in zip(axes[:, 0], ["truth", *exports], strict=True):
        axis.set_ylabel(title)
    figure.savefig(path, dpi=90)


def detections(detect, image):
    """What an export finds in an image, as a scene, and the scores."""
    outputs = detect.signatures["serving_default"](tf.constant(image[None]))
    outputs = {name: value.numpy()[0] for name, value in outputs.items()}
    chosen = outputs["detection_scores"] >= THRESHOLD
    chosen[int(outputs["num_detections"]) :] = False
    boxes = outputs["detection_boxes"][chosen]
    boxes = boxes / np.tile(outputs["image_info"][2], 2)  # to image pixels
    top, left, bottom, right = boxes.T
    masks = mask_ops.paste_instance_masks(
        outputs["detection_masks"][chosen],
        np.stack([left, top, right - left, bottom - top], axis=-1),
        *image.shape[:2],
    )
    scene = detection_scenes.Scene(
        image,
        np.reshape(masks, (-1, *image.shape[:2])) > 0,
        outputs["detection_classes"][chosen].astype(int),
        boxes,
    )
    return scene, outputs["detection_scores"][chosen]


def draw(axis, scene, texts):
    """Draws a scene: its masks, boxes and texts on the image in grey."""
    image = scene.image.mean(axis=-1, keepdims=True) / 255
    image = np.repeat(image, 3, axis=-1)
    colors = require("matplotlib.colors", extra="plot")
    for number, (mask, box, text) in enumerate(
        zip(scene.masks, scene.boxes, texts, strict=True)
    ):
        color = _COLORS[number % len(_COLORS)]
        image[mask] = 0.5 * image[mask] + 0.5 * np.array(colors.to_rgb(color))
        top, left, bottom, right = box
        axis.plot(
            [left, right, right, left, left],
            [top, top, bottom, bottom, top],
            color=color,
            linewidth=1.5,
        )
        axis.text(
            left, top, text, fontsize=7, color="white", va="bottom",
            bbox={"facecolor": color, "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip
    axis.imshow(image, extent=(0, image.shape[1], image.shape[0], 0))
    axis.set(xticks=[], yticks=[], xlim=(0, image.shape[1]))
    axis.set_ylim(image.shape[0], 0)
