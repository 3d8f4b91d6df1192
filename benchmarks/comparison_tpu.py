"""Compiles training steps of networks that people would choose between.

    make comparison-tpu    # compiles what is missing, then writes the page

The networks of `benchmarks.comparison` by the estimate of a TPU's compiler:
32 images on one core of TPUv3, mixed bfloat16. The step is the same for all:
forward pass, gradients, SGD with momentum. Needs no TPU, but the compiler of
`make tpu-compile`. Each program is compiled in a process of its own, and what
is done is not repeated.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from benchmarks import comparison
from benchmarks import comparison_report
from benchmarks import tpu_compile
from benchmarks.networks import compiled_steps
from benchmarks.tpu_lowering import stablehlo
from benchmarks.tpu_programs import BATCH
from lambdanet_tf.ops import planning_for

CHIP = "v3"
CHILD = (
    *("env", "TF_USE_LEGACY_KERAS=1"),  # what training on a TPU runs on
    *(sys.executable, "-m", "benchmarks.comparison_tpu", "--child"),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument(
        "--networks",
        nargs="+",
        choices=comparison.NETWORKS,
        default=comparison.CHOSEN,
        metavar="NETWORK",
    )
    parser.add_argument("--timeout", type=int, default=1800, help="seconds")
    parser.add_argument("--write", default="docs", help="folder of the results")
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    tpu_compile.compile_all(
        options.networks,
        (CHIP,),
        options.timeout,
        pathlib.Path(options.write) / comparison_report.ESTIMATES,
        CHILD,
    )


def child(key, chip):
    """Compiles the step of a network; prints the result as JSON."""
    # Only here, where the compiler is installed.
    from benchmarks import tpu_child  # noqa: PLC0415

    network = comparison.NETWORKS[key]
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    tpu_child.compile_and_print(lambda: lower(network, BATCH), chip)


def lower(network, batch):
    """The StableHLO of a network's training step, and facts about it."""
    with planning_for("tpu"):
        model = network.model()
        _, training = compiled_steps(
            model, batch, network.image_size, jit_compile=True
        )
        text = stablehlo(training, [])
    return text, {"images": batch, "parameters": model.count_params()}


if __name__ == "__main__":
    main()
