"""Trains the default recipe on handwritten digits, by its command.

    python -m benchmarks.studies.digits         five minutes

A run that was interrupted is continued.
"""

import pathlib
import subprocess
import sys
import time

from benchmarks import records
from benchmarks.studies import runs
from lambdanet_tf import training


def command(folder, seed, epochs, *flags):
    """Runs train.py; returns its seconds, None if it only went on."""
    is_new = not (folder / "run.json").exists()
    words = [sys.executable, str(records.ROOT / "train.py"), *flags]
    words += ["--run-dir", str(folder), "--seed", str(seed)]
    start = time.perf_counter()
    subprocess.run([*words, "--epochs", str(epochs)], check=True)
    return time.perf_counter() - start if is_new else None


EPOCHS = training.resolve("digits").epochs


@records.script("digits", seeds=3, epochs=EPOCHS, runs="runs/digits")
def main(recorder, options):
    def measure(case):
        folder = pathlib.Path(options.runs, runs.slug(*case.values()))
        seconds = command(folder, case["seed"], case["epochs"])
        return {**runs.metrics(folder), "whole_seconds": seconds}

    seeds = range(options.seeds)
    recorder.fill(records.cases(epochs=[options.epochs], seed=seeds), measure)
