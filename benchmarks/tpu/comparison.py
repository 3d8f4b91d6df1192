"""Compiles training steps of networks that people would choose between.

    make comparison-tpu    what is missing, hours
    python -m benchmarks.tpu.comparison --only DeiTSmall

The networks of `benchmarks.networks.comparison` by a TPU's compiler: 32 images
on one core of TPUv3, mixed bfloat16. The step is the same for all: forward
pass, gradients, SGD with momentum. See `benchmarks.tpu.compile`.
"""

import tensorflow as tf

from benchmarks import records
from benchmarks.networks import comparison
from benchmarks.networks.speed import compiled_steps
from benchmarks.tpu.compile import compile_all
from benchmarks.tpu.lowering import stablehlo
from benchmarks.tpu.programs import BATCH
from benchmarks.tpu.programs import POLICY
from lambdanet_tf.ops import planning_for


def main(arguments=None):
    run = records.start(
        "comparison_tpu", __doc__, arguments, chips=("v3",), timeout=1800
    )
    programs = {
        key: ({"network": key}, comparison.NETWORKS[key].facts)
        for key in comparison.NETWORKS
    }
    compile_all(*run, "benchmarks.tpu.comparison", programs)


def lower(key, batch=BATCH):
    """The StableHLO of a network's training step, and facts about it."""
    network = comparison.NETWORKS[key]
    tf.keras.mixed_precision.set_global_policy(POLICY)
    with planning_for("tpu"):
        _, training = compiled_steps(
            network.model(), batch, network.image_size, jit_compile=True
        )
        return stablehlo(training, []), {"images": batch}


if __name__ == "__main__":
    main()
