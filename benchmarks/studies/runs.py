"""Training runs of the studies: each in a folder, gone on with if stopped."""

import json

import tensorflow as tf

from lambdanet_tf import training
from lambdanet_tf.environment import require

METRICS = (
    *("accuracy", "loss", "best_epoch"),
    *("test_images", "seconds", "device"),
)


def digits(scale=1.0):
    """scikit-learn's digits `(n, 8, 8, 1)` in [0, scale], and their labels."""
    found = require("sklearn.datasets", extra="data").load_digits()
    images = found.images[..., None].astype("float32") * (scale / 16)
    return images, found.target


def train(recipe, folder, **options):
    """Trains a recipe in a folder, unless that is done; `metrics` of it."""
    path = folder / "run.json"
    is_there = path.exists()
    if not is_there or json.loads(path.read_text())["status"] != "finished":
        tf.keras.utils.set_random_seed(recipe.seed)
        training.train(
            recipe,
            training.RunOptions(run_dir=str(folder), **options),
            print_fn=lambda text: None,
        )
        tf.keras.backend.clear_session()
    return metrics(folder)


def untried(grid, rate, tried):
    """The rates of a grid next to one, but those that were tried."""
    place = grid.index(rate)
    near = *grid[max(place - 1, 0) : place], *grid[place + 1 : place + 2]
    return [x for x in near if x not in tried]


def search(grid, rates, starts, score, best):
    """The best rate and initial weights."""
    tried = {
        (rate, start): score(rate, start) for start in starts for rate in rates
    }
    while True:
        scores = {x: y for x, y in tried.items() if y is not None}
        # Of equal ones the lower rate, which was tried first.
        rate, start = best(scores, key=scores.get)
        beyond = untried(grid, rate, [x for x, y in tried if y == start])
        if not beyond:
            return rate, start
        tried[beyond[0], start] = score(beyond[0], start)


def metrics(folder):
    found = json.loads((folder / "run.json").read_text())["metrics"]
    return {name: found[name] for name in METRICS}


def slug(*words):
    text = "-".join(map(str, words)).lower()
    return text.replace(", ", "-").replace(" ", "_")
