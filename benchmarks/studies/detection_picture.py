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
from benchmarks.studies import detection_tfrecords
from benchmarks.studies.detection import EXPORT

SCENES = 6  # of the picture: the first held-out ones
THRESHOLD = 0.5  # of the scores that are drawn


def picture(folder, exports):
    """The truth and what each export, by name, detects in held-out scenes."""
    names = (folder / detection_tfrecords.CLASS_FILE).read_text().split("\n")
    scenes = detection_tfrecords.read_scenes(
        str(folder / "heldout.tfrecord"), SCENES
    )

    def found(run):
        detect = tf.saved_model.load(str(run / EXPORT / "saved_model"))
        for scene in scenes:
            detected, scores = detections(detect, scene.image)
            pairs = zip(detected.labels, scores, strict=True)
            yield detected, [f"{names[x - 1]} {y:.2f}" for x, y in pairs]

    texts = [[names[label - 1] for label in x.labels] for x in scenes]
    lines = {name: list(found(run)) for name, run in exports.items()}
    return detection_scenes.picture(scenes, texts, lines)


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


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenes", type=pathlib.Path)
    parser.add_argument("runs", type=pathlib.Path, nargs="+")
    options = parser.parse_args(arguments)
    exports = {run.name: run for run in options.runs}
    figure = picture(options.scenes, exports)
    figure.savefig(records.ROOT / "docs/detection.png", dpi=90)


if __name__ == "__main__":
    main()
