"""Measures accuracy over the size of test images, with global lambda layers.

    python -m benchmarks.sizes --write docs             # about 10 minutes
    python -m benchmarks.sizes --steps 20 --seeds 1     # a first look

The 8x8 digits of scikit-learn, drawn at other sizes, and a small network whose
lambda layers have a table of all distances. Trained at one size, and with the
same number of updates at three in turns, which share all weights. At a smaller
test size the table is cropped, at a larger one interpolated. Written are a
record, `sizes.json`, and from it a table and a picture.
"""

import argparse
import json
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from benchmarks import report
from lambdanet_tf import models
from lambdanet_tf.environment import require
from lambdanet_tf.environment import versions
from lambdanet_tf.layers import LambdaLayer

TRAINED = {"one size": (16,), "three sizes": (16, 12, 8)}  # the largest first
TESTED = (6, 8, 10, 12, 14, 16, 20, 24)
BATCH, HELD_OUT = 64, 500


def digits():
    """Training and test images in [0, 1], and their labels."""
    found = require("sklearn.datasets", extra="data").load_digits()
    images, labels = found.images[..., None] / 16, found.target
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order].astype("float32"), labels[order]
    return (
        (images[HELD_OUT:], labels[HELD_OUT:]),
        (images[:HELD_OUT], labels[:HELD_OUT]),
    )


def networks(sizes) -> dict[int, tf.keras.Model]:
    """A network for each size; all have the same layers."""
    layers = tf.keras.layers
    parts = [layers.Conv2D(32, 3, padding="same", activation="relu")]
    for _ in range(2):
        parts += [LambdaLayer(32), layers.Activation("relu")]
    parts += [layers.GlobalAveragePooling2D(), layers.Dense(10)]

    def at(size):
        inputs = x = tf.keras.Input((size, size, 1))
        for part in parts:
            x = part(x)
        return tf.keras.Model(inputs, x)

    return {size: at(size) for size in sizes}


def resized(images, size):
    return tf.image.resize(images, [size, size], antialias=True)


def train(sizes, steps, seed):
    """The largest of the networks of some sizes, trained on all in turns."""
    tf.keras.utils.set_random_seed(seed)
    (images, labels), _ = digits()
    trained = networks(sizes)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for model in trained.values():
        model.compile(tf.keras.optimizers.Adam(3e-3), loss)
    rng = np.random.default_rng(seed)
    for number in range(steps):
        size = sizes[number % len(sizes)]
        chosen = rng.integers(0, len(labels), BATCH)
        batch = resized(images[chosen], size)
        trained[size].train_on_batch(batch, labels[chosen])
    return trained[sizes[0]]


def accuracies(model) -> list[float]:
    """Of a network, in percent, at each of `TESTED`."""
    _, (images, labels) = digits()
    found = []
    for size in TESTED:
        network = models.resize_embeddings(model, (size, size, 1))
        logits = network.predict(resized(images, size), verbose=0)
        found.append(100 * float(np.mean(logits.argmax(-1) == labels)))
    return found


def measure(steps, seeds, print_fn=print) -> dict[str, list]:
    """Returns accuracies `[seeds][tested sizes]` by the way of training."""
    found = {name: [] for name in TRAINED}
    for seed in range(seeds):
        for name, sizes in TRAINED.items():
            found[name].append(accuracies(train(sizes, steps, seed)))
            cells = [f"{x:5.1f}" for x in found[name][-1]]
            print_fn(f"seed {seed}  {name:12} {' '.join(cells)}")
    return found


def table(record):
    """Means over the seeds, and their range."""
    heads = [f"{size} px" for size in TESTED]
    lines = [f"| trained at | {' | '.join(heads)} |"]
    lines.append("|" + "---|" * (1 + len(heads)))
    for name, rows in record["accuracies"].items():
        cells = [
            f"{np.mean(x):.1f} ({min(x):.1f} to {max(x):.1f})"
            for x in zip(*rows, strict=True)
        ]
        lines.append(f"| {_sizes(name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(record):
    """A figure: accuracy over the size of the test images."""
    figures = require("matplotlib.figure", extra="plot")
    figure = figures.Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, rows in record["accuracies"].items():
        rows = np.array(rows)
        label = f"trained at {_sizes(name)}"
        axes.plot(TESTED, rows.mean(axis=0), marker="o", label=label)
        axes.fill_between(TESTED, rows.min(axis=0), rows.max(axis=0), alpha=0.2)
    axes.set(xlabel="pixels of a side, tested", ylabel="test accuracy, %")
    axes.set_xticks(TESTED)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return figure


def _sizes(name):
    return f"{', '.join(map(str, TRAINED[name]))} px"


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", type=pathlib.Path, metavar="FOLDER")
    flags = parser.parse_args()
    print("tested at".ljust(20), *(f"{size:5}" for size in TESTED))
    found = measure(flags.steps, flags.seeds)
    record = {"accuracies": found, "versions": versions()}
    if folder := flags.write:
        text = json.dumps(record, indent=1) + "\n"
        (folder / "sizes.json").write_text(text)
        report.insert(folder, "sizes", table(record), "layers.md")
        picture(record).savefig(folder / "sizes.png", dpi=110)


if __name__ == "__main__":
    main()
