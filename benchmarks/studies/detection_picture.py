"""Draws held-out scenes, and what the exports of detectors find in them.

    python -m benchmarks.studies.detection_picture SCENES RUN RUN

SCENES is the folder of the scenes, a RUN that of a run; writes
`docs/detection.png`.
"""

import argparse
import pathlib

import numpy as np
import tensorflow as tf
from official.vision.ops import mask_ops

from benchmarks import records
from benchmarks.studies import detection_scenes
from benchmarks.studies.detection import EXPORT
from lambdanet_tf.environment import require

SCENES = 6  # of the picture: the first held-out ones
THRESHOLD = 0.5  # of the scores that are drawn
_COLORS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#00a0a0")


def picture(scenes_folder, exports, path):
    """Draws the truth and what each export detects in held-out scenes.

    Args:
        scenes_folder: of the scenes.
        exports: dict from names to folders of runs.
        path: to write to.
    """
    names = (
        (scenes_folder / detection_scenes.CLASS_FILE).read_text().split("\n")
    )
    scenes = detection_scenes.read_scenes(
        str(scenes_folder / "heldout.tfrecord"), SCENES
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


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenes", type=pathlib.Path)
    parser.add_argument("runs", type=pathlib.Path, nargs="+")
    options = parser.parse_args(arguments)
    exports = {run.name: run for run in options.runs}
    picture(options.scenes, exports, records.ROOT / "docs/detection.png")


if __name__ == "__main__":
    main()
