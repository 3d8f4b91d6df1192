"""Trains on handwritten digits: the default recipe, and variants of it.

    python -m benchmarks.studies.digits --budgets default      six minutes
    python -m benchmarks.studies.digits --budgets few short    an hour
    python -m benchmarks.studies.digits --budgets look --seeds 1

Each run has a folder of its own; one that was interrupted is continued. The
runs of the default recipe are commands, `python train.py --seed 0`, timed as a
whole.
"""

import pathlib
import subprocess
import sys
import time

from benchmarks import records
from benchmarks.studies import runs
from lambdanet_tf import models
from lambdanet_tf import training

# What a run may use; everything else is the recipe's. Few images: a tenth of
# those that are not test images, in small batches, so that there are nearly as
# many updates as in `short`; the other nine tenths choose the epoch.
BUDGETS = {
    "default": {},
    "look": {"epochs": 2},
    "short": {"epochs": 12},
    "few": {"epochs": 20, "validation_split": 0.9, "batch_size": 16},
}
DEFAULT = "LambdaResNetSmall"
_LAMBDA = {"stages": ["LL", "LL", "LL"]}
_CONVOLUTION = {"stages": ["CC", "CC", "CC"]}
VARIANTS = {
    "lambda layers": _LAMBDA,
    "convolutions, as wide": _CONVOLUTION,
    "convolutions, as many parameters": {
        **_CONVOLUTION,
        "widths": [25, 50, 100],
    },
    "content only": {**_LAMBDA, "use_position": False},
    "position only": {**_LAMBDA, "use_content": False},
    "softmax of keys and queries": {
        **_LAMBDA,
        "query_normalization": "softmax",
    },
    "L2 of keys": {**_LAMBDA, "key_normalization": "l2"},
    "no normalization of keys": {**_LAMBDA, "key_normalization": None},
    "no batch norm of queries, values": {**_LAMBDA, "use_batch_norm": False},
}


def run(folder, budget, variant, seed):
    """Trains one network, unless that is done; returns what is recorded."""
    folder = pathlib.Path(folder, runs.slug(budget, variant, seed))
    if budget == "default":
        whole = command(folder, seed)
        return {**runs.metrics(folder), "whole_seconds": whole}
    fields = {"seed": seed, **BUDGETS[budget]}
    fields["model_arguments"] = VARIANTS[variant]
    return runs.train(training.resolve("digits", fields), folder)


def command(folder, seed):
    """Runs train.py; returns its seconds, None if it only went on."""
    is_new = not (folder / "run.json").exists()
    words = [sys.executable, str(records.ROOT / "train.py")]
    words += ["--run-dir", str(folder), "--seed", str(seed)]
    start = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"train.py failed:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - start if is_new else None


def main(arguments=None):
    parser = records.parser(__doc__, seeds=3)
    parser.add_argument(
        "--budgets", nargs="+", choices=BUDGETS, default=["default"]
    )
    parser.add_argument("--runs", default="runs/digits", metavar="FOLDER")
    options = parser.parse_args(arguments)

    def measure(case):
        found = run(options.runs, *case.values())
        changes = VARIANTS.get(case["variant"], {})
        found["parameters"] = models.LambdaResNetSmall(**changes).count_params()
        return found

    cases = [
        {"budget": budget, "variant": variant, "seed": seed}
        for budget in options.budgets
        for seed in range(options.seeds)
        for variant in ([DEFAULT] if budget == "default" else VARIANTS)
    ]
    records.Recorder("digits", options).fill(cases, measure)


if __name__ == "__main__":
    main()
