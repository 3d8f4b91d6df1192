"""Trains the default recipe on handwritten digits, by its command.

    python -m benchmarks.studies.digits         six minutes

A run that was interrupted is continued.
"""

import pathlib
import subprocess
import sys
import time

from benchmarks import records
from benchmarks.studies import runs
from lambdanet_tf import training


def command(case, options, *flags):
    """Runs train.py; returns its folder, and seconds unless it went on."""
    folder = pathlib.Path(options.runs, runs.slug(*case.values()))
    is_new = not (folder / "run.json").exists()
    words = [sys.executable, str(records.ROOT / "train.py"), *flags]
    words += ["--run-dir", str(folder), "--seed", str(case["seed"])]
    words += ["--epochs", str(case["epochs"])]
    start = time.perf_counter()
    subprocess.run(words, check=True)
    return folder, time.perf_counter() - start if is_new else None


EPOCHS = training.resolve("digits").epochs


@records.script("digits", seeds=3, epochs=EPOCHS, runs="runs/digits")
def main(recorder, options):
    def measure(case):
        folder, seconds = command(case, options)
        return {**runs.metrics(folder), "whole_seconds": seconds}

    seeds = range(options.seeds)
    recorder.fill(records.cases(epochs=[options.epochs], seed=seeds), measure)
