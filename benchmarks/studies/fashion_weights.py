"""Trains the weights of Fashion-MNIST that come with the package.

    python -m benchmarks.studies.fashion_weights --data FOLDER

FOLDER is that of `benchmarks.studies.fashion`. The hash that is recorded is
that of `best.weights.npz`, which is `lambdanet_tf/models/fashion_mnist.npz`.
"""

import hashlib
import pathlib

from benchmarks import records
from benchmarks.studies import digits
from benchmarks.studies import fashion
from benchmarks.studies import runs
from lambdanet_tf import training
from lambdanet_tf.models.weights import RUN_WEIGHTS

RECIPE = "fashion_mnist"
DEFAULTS = {"seeds": 1, "data": fashion.DATA, "runs": "runs/fashion_mnist"}
EPOCHS = training.resolve(RECIPE).epochs


@records.script("fashion_weights", epochs=EPOCHS, **DEFAULTS)
def main(recorder, options):
    images = pathlib.Path(options.runs, "fashion_mnist.npz")
    images.parent.mkdir(parents=True, exist_ok=True)
    fashion.write_set(images, *fashion.read_files(options.data))
    flags = "--recipe", RECIPE, "--data", f"arrays:{images}"

    def measure(case):
        folder = pathlib.Path(options.runs, runs.slug(*case.values()))
        digits.command(folder, case["seed"], case["epochs"], *flags)
        content = (folder / RUN_WEIGHTS).read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        return {**runs.metrics(folder), "sha256": sha256}

    seeds = range(options.seeds)
    recorder.fill(records.cases(epochs=[options.epochs], seed=seeds), measure)
