"""Trains on a tenth of the digits' labels, without and with pseudo-labels.

    python -m benchmarks.studies.pseudo_labels  ten minutes

The teacher trains on a tenth of the images of each class, a fifth of which
choose the epoch. It labels the others, files without labels. A student trains
on both, in as many steps, with as many labelled images in each.
"""

import pathlib

import numpy as np
import tensorflow as tf

from benchmarks import records
from benchmarks.studies import runs as finished
from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.arguments import UserError
from lambdanet_tf.data.sets import split_by_class
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.training import teacher

LABELLED = 0.1
EPOCHS = 60  # passes over the labelled images
BATCH_SIZE = 16  # labelled images of a step
RATIO = 7
THRESHOLD = 0.8
TEACHER = "labelled images alone (the teacher)"
STUDENT = "with pseudo-labels (the student)"


def digits():
    """Images `(number, 8, 8, 1)`, uint8, and their labels."""
    images, labels = finished.digits(255.0)
    return np.round(images).astype(np.uint8), labels


def write_images(folder):
    images, labels = digits()
    train, _, test = split_by_class(labels, 0.0)
    rest, kept, _ = split_by_class(labels[train], LABELLED, 0.0)
    unlabelled = folder / "unlabelled"
    unlabelled.mkdir(parents=True, exist_ok=True)
    for number in train[rest]:
        encoded = tf.io.encode_png(images[number]).numpy()
        (unlabelled / f"{number:04d}.png").write_bytes(encoded)
    np.savez(
        folder / "labelled.npz",
        x_train=images[train[kept]],
        y_train=labels[train[kept]],
        x_test=images[test],
        y_test=labels[test],
    )


def run(runs, arm, seed, epochs):
    fields = {
        "data": f"arrays:{runs / 'data' / 'labelled.npz'}",
        "validation_split": 0.2,
        "epochs": epochs,
        "batch_size": BATCH_SIZE,
        "seed": seed,
    }
    teachers, labels = runs / f"teacher-{seed}", runs / f"labels-{seed}"
    if arm == TEACHER:
        return finished.train(training.resolve("digits", fields), teachers)
    facts = label(teachers, runs / "data" / "unlabelled", labels)
    fields["batch_size"] *= 1 + RATIO
    fields["pseudo_label_ratio"] = float(RATIO)
    fields["pseudo_labels"] = str(labels)
    recipe = training.resolve("digits", fields)
    return finished.train(recipe, runs / f"student-{seed}") | facts


def label(teachers, images, folder):
    """Labels images by the teacher of a run; returns how many, how right."""
    if not (folder / teacher.REPORT_FILE).exists():
        try:
            training.label_images(
                RunFolder(teachers).read(),
                str(images),
                str(folder),
                training.LabelOptions(threshold=THRESHOLD),
                print_fn=lambda text: None,
            )
        except UserError as error:  # Of a first look that is too short.
            raise SystemExit(f"{error} Give --epochs more.") from error
    pairs = zip(*digits(), strict=True)
    truth = {image.tobytes(): label for image, label in pairs}
    classes = tuple(map(str, range(10)))
    source = data.read_pseudo_labels(str(folder), classes, channels=1)
    pairs = [source.decode(item) for _, item in source.scan()]
    right = [
        truth[image.decode().numpy().tobytes()] == row.numpy().argmax()
        for image, row in pairs
    ]
    return {"pseudo_labels": len(right), "right": sum(map(int, right))}


@records.script(
    "pseudo_labels", seeds=3, epochs=EPOCHS, runs="runs/pseudo_labels"
)
def main(recorder, options):
    runs = pathlib.Path(f"{options.runs}-{options.epochs}")
    write_images(runs / "data")
    cases = [
        {"arm": arm, "seed": seed, "epochs": options.epochs}
        for seed in range(options.seeds)
        for arm in (TEACHER, STUDENT)
    ]
    recorder.fill(cases, lambda case: run(runs, *case.values()))
