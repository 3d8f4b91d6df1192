"""Trains the default recipe on handwritten digits, by its command.

    python -m benchmarks.studies.digits                         six minutes
    python -m benchmarks.studies.digits --seeds 1 --epochs 2    a first look

Each run has a folder of its own; one that was interrupted is continued. The
runs are commands, `python train.py --seed 0`, timed as a whole.
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
    words += ["--epochs", str(epochs)]
    start = time.perf_counter()
    if code := subprocess.run(words, check=False).returncode:
        sys.exit(code)
    return time.perf_counter() - start if is_new else None


EPOCHS = training.resolve("digits").epochs


@records.script("digits", seeds=3, epochs=EPOCHS, runs="runs/digits")
def main(recorder, options):
    def measure(case):
        folder = pathlib.Path(options.runs, runs.slug(*case.values()))
        whole = command(folder, **case)
        return {**runs.metrics(folder), "whole_seconds": whole}

    seeds = range(options.seeds)
    recorder.fill(records.cases(epochs=[options.epochs], seed=seeds), measure)
