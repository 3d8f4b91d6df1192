"""Compiles training steps of networks that people would choose between.

    make comparison-tpu    what is missing, hours
    python -m benchmarks.tpu.comparison --only DeiTSmall

The networks of `benchmarks.networks.comparison` by a TPU's compiler: 32 images
on one core of TPUv3, mixed bfloat16. The step is the same for all: forward
pass, gradients, SGD with momentum. Needs no TPU, but the compiler of
`make tpu-compile`. Each program is compiled in a process of its own.
"""

import tensorflow as tf

from benchmarks import records
from benchmarks.networks import comparison
from benchmarks.networks.speed import compiled_steps
from benchmarks.tpu import compile as tpu_compile
from benchmarks.tpu.lowering import stablehlo
from benchmarks.tpu.programs import BATCH
from benchmarks.tpu.programs import POLICY
from lambdanet_tf.ops import planning_for


def main(arguments=None):
    parser = records.parser(__doc__, chips=("v3",), timeout=1800)
    options = parser.parse_args(arguments)
    programs = {
        key: ({"network": key}, comparison.NETWORKS[key].facts)
        for key in comparison.CHOSEN
    }
    module = "benchmarks.tpu.comparison"
    tpu_compile.compile_all("comparison_tpu", module, programs, options)


def lower(key, batch=BATCH):
    """The StableHLO of a network's training step, and facts about it."""
    network = comparison.NETWORKS[key]
    tf.keras.mixed_precision.set_global_policy(POLICY)
    with planning_for("tpu"):
        model = network.model()
        _, training = compiled_steps(
            model, batch, network.image_size, jit_compile=True
        )
        text = stablehlo(training, [])
    return text, {"images": batch, "parameters": model.count_params()}


if __name__ == "__main__":
    main()
