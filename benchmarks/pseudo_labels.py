"""Trains on a tenth of the digits' labels, without and with pseudo-labels.

    python -m benchmarks.pseudo_labels                 # about 10 minutes
    python -m benchmarks.pseudo_labels --write docs    # what there is so far

A tenth of the training images of each class keep their labels, a fifth of
those choose the epoch; the other nine tenths are files without labels. The
teacher trains on the labelled images, labels the others, and a student trains
on both, in as many steps, with as many labelled images in each. Each run has a
folder of its own; those that are finished are not repeated.
"""

import argparse
import os
import pathlib
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

from benchmarks import finished_runs
from benchmarks import report
from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.data.sets import three_parts
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.training import teacher

SEEDS = (0, 1, 2)
LABELLED = 0.1
EPOCHS = 60  # passes over the labelled images
BATCH_SIZE = 16  # labelled images of a step
RATIO = 7
THRESHOLD = 0.8
ARMS = {
    "labelled images alone (the teacher)": {},
    "with pseudo-labels (the student)": {
        "batch_size": BATCH_SIZE * (1 + RATIO),
        "pseudo_label_ratio": float(RATIO),
    },
}
TEACHER, STUDENT = ARMS


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument(
        "--runs", default="runs/pseudo_labels", metavar="FOLDER"
    )
    parser.add_argument("--write", metavar="DOCS", help="of training.md")
    options = parser.parse_args()
    runs = pathlib.Path(options.runs)
    write_images(runs / "data")
    rows = []
    for seed in options.seeds:
        for arm in ARMS:
            rows.append(run(runs, arm, seed))
            print(text_row(rows[-1]), flush=True)
    print(table(rows))
    if options.write:
        folder = pathlib.Path(options.write)
        report.insert(folder, "pseudo_labels", table(rows), "training.md")


def digits():
    """Images `(number, 8, 8, 1)`, uint8, and their labels."""
    found = load_digits()
    images = np.round(found.images * (255 / 16)).astype(np.uint8)
    return images[..., np.newaxis], found.target


def run_folder(runs, arm, seed):
    """The folder of a run."""
    return runs / f"{'teacher' if arm == TEACHER else 'student'}-{seed}"


def write_images(folder):
    """Writes `labelled.npz` and a folder of images without labels."""
    if (folder / "labelled.npz").exists():
        return
    images, labels = digits()
    train, _, test = three_parts(labels, 0.0)
    rest, kept, _ = three_parts(labels[train], LABELLED, 0.0)
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


def run(runs, arm, seed):
    """Trains one network, unless that is done; returns its row."""
    folder = run_folder(runs, arm, seed)
    row = finished_runs.read(folder)
    if row is not None:
        return row
    fields = {
        "data": f"arrays:{runs / 'data' / 'labelled.npz'}",
        "validation_split": 0.2,
        "epochs": EPOCHS,
        "batch_size": BATCH_SIZE,
        "seed": seed,
        **ARMS[arm],
    }
    facts = {"arm": arm, "seed": seed}
    if arm == STUDENT:
        fields["pseudo_labels"] = str(runs / f"labels-{seed}")
        facts |= label(runs, seed)
    training.train(
        training.resolve("digits", fields),
        training.RunOptions(run_dir=str(folder), checkpoint_epochs=EPOCHS),
        print_fn=lambda text: None,
    )
    tf.keras.backend.clear_session()
    return finished_runs.write(folder, facts)


def label(runs, seed):
    """Labels the other images by the teacher; returns how many, how right."""
    folder = runs / f"labels-{seed}"
    if not (folder / teacher.REPORT_FILE).exists():
        training.label_images(
            RunFolder(run_folder(runs, TEACHER, seed)).read(),
            str(runs / "data" / "unlabelled"),
            str(folder),
            training.LabelOptions(threshold=THRESHOLD),
            print_fn=lambda text: None,
        )
    images, labels = digits()
    truth = {
        image.tobytes(): label
        for image, label in zip(images, labels, strict=True)
    }
    source = data.read_pseudo_labels(
        str(folder), tuple(map(str, range(10))), channels=1
    )
    pairs = [source.decode(item) for _, item in source.scan()]
    right = [
        truth[image.decode().numpy().tobytes()] == row.numpy().argmax()
        for image, row in pairs
    ]
    return {"pseudo_labels": len(right), "right": sum(map(int, right))}


def text_row(row):
    """One line about a run."""
    labels = ""
    if "pseudo_labels" in row:
        labels = f", {row['right']} of {row['pseudo_labels']} labels right"
    return (
        f"{row['arm']}, seed {row['seed']}: {row['accuracy']:.2%}, "
        f"{row['seconds']:.0f} s{labels}"
    )


def table(rows):
    """The accuracy of each arm and seed, their mean, and the differences."""
    seeds = sorted({row["seed"] for row in rows})
    found = {(row["arm"], row["seed"]): row for row in rows}
    heads = " | ".join(f"seed {seed}" for seed in seeds)
    lines = [f"| | {heads} | mean |", "|" + "---|" * (2 + len(seeds))]
    for arm in ARMS:
        shares = [found[arm, seed]["accuracy"] for seed in seeds]
        cells = [f"{share:.2%}" for share in shares]
        lines.append(
            f"| {arm} | {' | '.join(cells)} | {statistics.mean(shares):.2%} |"
        )
    students = [found[STUDENT, seed] for seed in seeds]
    counts = ", ".join(f"{row['pseudo_labels']:,}" for row in students)
    right = ", ".join(
        f"{row['right'] / row['pseudo_labels']:.1%}" for row in students
    )
    row = students[0]
    lines += [
        "",
        f"Test accuracy on {row['test_images']} images; pseudo-labels kept: "
        f"{counts}; right among them: {right}. {row['versions']['keras']}, "
        f"TensorFlow {row['versions']['tensorflow']}, {row['device']}.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
