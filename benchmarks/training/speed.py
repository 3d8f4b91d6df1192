"""Times the loop of train.py against bare compiled steps.

    python -m benchmarks.training.speed                   three minutes

Every case is measured in a process of its own.
"""

import os
import tempfile
import time

import numpy as np
import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from lambdanet_tf.training import RunOptions
from lambdanet_tf.training import resolve
from lambdanet_tf.training import train
from lambdanet_tf.training.loop import set_up
from lambdanet_tf.training.steps import update_step

PAUSE = 1.0  # seconds, in which the pipelines of the others fill their buffers
NETWORKS = {
    "LambdaResNetSmall, digits, 8 px, batch 64": {"epochs": 12},
    "LambdaResNet50, 64 px, batch 16": {
        "model": "LambdaResNet50",
        "image_size": 64,
        "batch_size": 16,
        "epochs": 5,
        "augmentation": "pad_crop",
    },
}


def write_images(path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, [72, 64, 64, 3]).astype(np.uint8)
    parts = np.split(images, [64]), np.split(np.arange(72) % 4, [64])
    (train, test), (train_labels, test_labels) = parts
    arrays = {"x_train": train, "y_train": train_labels}
    np.savez(path, x_test=test, y_test=test_labels, **arrays)


def overhead(name):
    """Returns seconds of a step, of the loop and of bare steps, each epoch."""
    times = {"loop": [], "fed": [], "held": []}

    def seconds_of(next_batch):
        time.sleep(PAUSE)
        start = time.perf_counter()
        sums = [
            step(*next_batch(), tf.constant(number, tf.int64))
            for number in range(pipeline.steps_per_epoch)
        ]
        tf.add_n(sums).numpy()
        return (time.perf_counter() - start) / pipeline.steps_per_epoch

    def take_turns(model, row):
        times["loop"].append(recipe.batch_size / row["images_per_second"])
        times["fed"].append(seconds_of(lambda: next(fed)))
        times["held"].append(seconds_of(lambda: held))
        time.sleep(PAUSE)

    with tempfile.TemporaryDirectory() as folder:
        write_images(os.path.join(folder, "tiny.npz"))
        fields = dict(NETWORKS[name])
        if "model" in fields:
            fields["data"] = f"arrays:{folder}/tiny.npz"
        recipe = resolve("digits", fields)
        # The checkpoint after each epoch stops the clock of the loop.
        options = RunOptions(runs_dir=folder)
        pipeline, state = set_up(recipe, options, tf.distribute.get_strategy())
        step = tf.function(update_step(state, recipe))
        fed = iter(pipeline.training())
        held = next(fed)
        train(recipe, options, lambda text: None, take_turns)
    # The first epoch compiles; the second may still fill buffers.
    return {name: taken[2:] for name, taken in times.items()}


@records.script("training")
def main(recorder, _):
    child = "benchmarks.training.speed:overhead"
    recorder.fill(
        records.cases(part=["loop"], network=NETWORKS),
        lambda case: {"seconds": timing.in_child(child, case["network"])},
    )
