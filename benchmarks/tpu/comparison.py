"""Compiles training steps of networks that people would choose between.

    make comparison-tpu    what is missing, hours
    python -m benchmarks.tpu.comparison --only DeiTSmall

The networks of `benchmarks.networks.comparison` by a TPU's compiler: 32 images
on one core of TPUv3, mixed bfloat16. The step is the same for all: forward
pass, gradients, SGD with momentum. Needs no TPU, but the compiler of
`make tpu-compile`. Each program is compiled in a process of its own.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from benchmarks import records
from benchmarks.networks import comparison
from benchmarks.networks.speed import compiled_steps
from benchmarks.tpu import compile as tpu_compile
from benchmarks.tpu.lowering import stablehlo
from benchmarks.tpu.programs import BATCH
from lambdanet_tf.ops import planning_for

CHILD = (
    *("env", "TF_USE_LEGACY_KERAS=1"),  # what training on a TPU runs on
    *(sys.executable, "-m", "benchmarks.tpu.comparison", "--child"),
)


def main(arguments=None):
    parser = tpu_compile.chips_parser(__doc__)
    parser.set_defaults(chips=["v3"], timeout=1800)
    parser.add_argument("--child", nargs=2, help="a child process")
    options = parser.parse_args(arguments)
    if options.child:
        child(*options.child)
        return
    jobs = [
        (
            {"network": key, "chip": chip},
            key,
            chip,
            comparison.NETWORKS[key].facts,
        )
        for chip in options.chips
        for key in comparison.CHOSEN
        if options.only in key
    ]
    recorder = records.Recorder("comparison_tpu", options)
    tpu_compile.compile_all(recorder, jobs, options.timeout, CHILD)


def child(key, chip):
    """Compiles the step of a network; prints the result as JSON."""
    # Only here, where the compiler is installed.
    from benchmarks.tpu import child as tpu_child  # noqa: PLC0415

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
