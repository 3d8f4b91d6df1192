"""Measures accuracy over the size of test images, with global lambda layers.

    python -m benchmarks.studies.image_sizes                    # 10 minutes
    python -m benchmarks.studies.image_sizes --steps 20 --seeds 1

The 8x8 digits of scikit-learn, drawn at other sizes, and a small network whose
lambda layers have a table of all distances. Trained at one size, and with the
same number of updates at three in turns, which share all weights. At a smaller
test size the table is cropped, at a larger one interpolated.
"""

import numpy as np
import tensorflow as tf

from benchmarks import records
from benchmarks.studies import runs
from lambdanet_tf import models
from lambdanet_tf.layers import LambdaLayer

TRAINED = {"16 px": (16,), "16, 12, 8 px": (16, 12, 8)}
TESTED = (6, 8, 10, 12, 14, 16, 20, 24)
BATCH, HELD_OUT, STEPS = 64, 500, 900


def digits():
    """Training and test images in [0, 1], and their labels."""
    images, labels = runs.digits()
    order = np.random.default_rng(0).permutation(len(labels))
    parts = order[HELD_OUT:], order[:HELD_OUT]
    return [(images[part], labels[part]) for part in parts]


def networks(sizes):
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


def accuracies(model):
    """Of a network, in percent, at each of `TESTED`."""
    _, (images, labels) = digits()
    found = []
    for size in TESTED:
        network = models.resize_embeddings(model, (size, size, 1))
        logits = network.predict(resized(images, size), verbose=0)
        found.append(100 * float(np.mean(logits.argmax(-1) == labels)))
    return found


def main(arguments=None):
    recorder, options = records.start(
        "image_sizes", __doc__, arguments, seeds=3, steps=STEPS
    )
    is_usual = options.steps == STEPS

    def measure(case):
        sizes = TRAINED[case["trained"]]
        found = accuracies(train(sizes, options.steps, case["seed"]))
        return {"accuracies": found, "pixels": list(TESTED)}

    cases = [
        {"trained": name, "seed": seed}
        | ({} if is_usual else {"steps": options.steps})
        for seed in range(options.seeds)
        for name in TRAINED
    ]
    recorder.fill(cases, measure)


if __name__ == "__main__":
    main()
