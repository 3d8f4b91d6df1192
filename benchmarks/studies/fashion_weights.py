"""Trains the weights of Fashion-MNIST that come with the package.

    python -m benchmarks.studies.fashion_weights --data FOLDER
    python -m benchmarks.studies.fashion_weights --data FOLDER --epochs 1

The second command is a first look. FOLDER has the four IDX files, as for
`benchmarks.studies.fashion`. A run is a command, `python train.py --recipe
fashion_mnist`; one that was stopped goes on. The hash that is recorded is that
of its `best.weights.npz`, which is `lambdanet_tf/models/fashion_mnist.npz`.
"""

import hashlib
import pathlib

from benchmarks import records
from benchmarks.studies import digits
from benchmarks.studies import runs
from benchmarks.studies.fashion import DATA
from benchmarks.studies.fashion import read_files
from benchmarks.studies.fashion import write_set
from lambdanet_tf import training
from lambdanet_tf.models.weights import RUN_WEIGHTS

RECIPE = "fashion_mnist"


@records.script(
    "fashion_weights",
    data=DATA,
    epochs=training.resolve(RECIPE).epochs,
    seeds=1,
    runs="runs/fashion_mnist",
)
def main(recorder, options):
    images = pathlib.Path(options.runs, "fashion_mnist.npz")
    images.parent.mkdir(parents=True, exist_ok=True)
    write_set(images, *read_files(options.data))
    flags = "--recipe", RECIPE, "--data", f"arrays:{images}"

    def measure(case):
        folder = pathlib.Path(options.runs, runs.slug(*case.values()))
        digits.command(folder, case["seed"], case["epochs"], *flags)
        content = (folder / RUN_WEIGHTS).read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        return {**runs.metrics(folder), "sha256": sha256}

    seeds = range(options.seeds)
    recorder.fill(records.cases(epochs=[options.epochs], seed=seeds), measure)
