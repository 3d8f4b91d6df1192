"""Trains on handwritten digits: the default recipe, and variants of it.

    python -m benchmarks.digits --budgets default      # about 6 minutes
    python -m benchmarks.digits --budgets few short    # about an hour
    python -m benchmarks.digits --report docs          # what there is so far

Each run has a folder of its own; those that are finished are not repeated, one
that was interrupted is continued. The runs of the default recipe are commands,
`python train.py --seed 0`, timed as a whole.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from benchmarks import digits_report
from benchmarks import finished_runs
from lambdanet_tf import models
from lambdanet_tf import training

ROOT = pathlib.Path(__file__).parents[1]
SEEDS = (0, 1, 2)

# What a run may use; everything else is the recipe's. Few images: a tenth of
# those that are not test images, in small batches, so that there are nearly as
# many updates as in `short`; the other nine tenths choose the epoch.
BUDGETS = {
    "default": {},
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--budgets", nargs="*", choices=BUDGETS, default=())
    parser.add_argument("--variants", nargs="+", choices=VARIANTS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--runs", default="runs/digits", metavar="FOLDER")
    parser.add_argument("--report", metavar="FOLDER", help="of digits.md")
    options = parser.parse_args()
    runs = pathlib.Path(options.runs)
    plan = [
        (budget, variant, seed)
        for budget in options.budgets
        for seed in options.seeds
        for variant in variants(budget, options.variants)
    ]
    for number, (budget, variant, seed) in enumerate(plan, start=1):
        row = run(runs, budget, variant, seed)
        print(f"{number}/{len(plan)}  {text_row(row)}", flush=True)
    if options.report:
        rows = [finished_runs.read(folder) for folder in runs.glob("*")]
        rows = [row for row in rows if row is not None]
        digits_report.write(rows, parameters(), pathlib.Path(options.report))


def variants(budget, chosen=None):
    """The names of the networks that are trained with a budget."""
    return (DEFAULT,) if budget == "default" else chosen or tuple(VARIANTS)


def parameters():
    """The size of every variant."""
    return {
        variant: models.LambdaResNetSmall(**arguments).count_params()
        for variant, arguments in VARIANTS.items()
    }


def run(runs, budget, variant, seed):
    """Trains one network, unless that is done; returns its row."""
    slug = variant.lower().replace(", ", "-").replace(" ", "_")
    folder = runs / f"{budget}-{slug}-{seed}"
    row = finished_runs.read(folder)
    if row is not None:
        return row
    facts = {"budget": budget, "variant": variant, "seed": seed}
    if budget == "default":
        facts["whole_seconds"] = command(folder, seed)
    else:
        fields = {"seed": seed, **BUDGETS[budget]}
        fields["model_arguments"] = VARIANTS[variant]
        training.train(
            training.resolve("digits", fields),
            training.RunOptions(run_dir=str(folder)),
            print_fn=lambda text: None,
        )
        tf.keras.backend.clear_session()
    return finished_runs.write(folder, facts)


def command(folder, seed):
    """Runs train.py; returns its seconds, None if it only went on."""
    is_new = not (folder / "run.json").exists()
    words = [sys.executable, str(ROOT / "train.py")]
    words += ["--run-dir", str(folder), "--seed", str(seed)]
    start = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"train.py failed:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - start if is_new else None


def text_row(row):
    """One line about a run."""
    whole = row.get("whole_seconds")
    return (
        f"{row['budget']}, {row['variant']}, seed {row['seed']}: "
        f"{row['accuracy']:.2%}, loss {row['loss']:.4f}, best epoch "
        f"{row['best_epoch']}, {row['seconds']:.0f} s"
        + (f" ({whole:.0f} s with the start)" if whole else "")
    )


if __name__ == "__main__":
    main()
