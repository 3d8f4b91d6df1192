"""Training runs of the studies: each in a folder, gone on with if stopped."""

import json

import numpy as np
import tensorflow as tf

from lambdanet_tf import training
from lambdanet_tf.environment import require

METRICS = ["accuracy", "loss", "best_epoch", "test_images", "seconds", "device"]


def digits(scale=1.0):
    """scikit-learn's digits `(n, 8, 8, 1)` in [0, scale], and their labels."""
    found = require("sklearn.datasets", extra="data").load_digits()
    images = found.images[..., None].astype("float32") * (scale / 16)
    return images, found.target


def digit_parts():
    """Which digits train, validate and test, where a study divides them."""
    order = np.random.default_rng(0).permutation(1797)
    parts = np.split(order, [1100, 1400])
    return dict(zip(("training", "validation", "test"), parts, strict=True))


def train(recipe, folder):
    path = folder / "run.json"
    is_there = path.exists()
    if not is_there or json.loads(path.read_text())["status"] != "finished":
        tf.keras.utils.set_random_seed(recipe.seed)
        options = training.RunOptions(run_dir=str(folder))
        training.train(recipe, options, print_fn=lambda text: None)
        tf.keras.backend.clear_session()
    return metrics(folder)


def search(grid, rates, score, best=max, starts=(None,)):
    """The best rate and initial weights; of equal ones the first tried.

    While a neighbor of the best rate in the grid is untried, it is tried.
    """
    tried = {(x, start): score(x, start) for start in starts for x in rates}
    while True:
        scores = {x: y for x, y in tried.items() if y is not None}
        rate, start = best(scores, key=scores.get)
        place = grid.index(rate)
        beyond = [
            x
            for x in (*grid[max(place - 1, 0) : place], *grid[place + 1 :][:1])
            if (x, start) not in tried
        ]
        if not beyond:
            return rate, start
        tried[beyond[0], start] = score(beyond[0], start)


def metrics(folder):
    found = json.loads((folder / "run.json").read_text())["metrics"]
    return {name: found[name] for name in METRICS}


def slug(*words):
    text = "-".join(map(str, words)).lower()
    return text.replace(", ", "-").replace(" ", "_")
