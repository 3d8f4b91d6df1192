"""Compiles training steps of Mask R-CNN at full size with a TPU's compiler.

    make detection-tpu

One image on one core, mixed bfloat16: the step that the Model Garden's task
takes, of the registered experiments. Needs no TPU, but the compiler of
`make tpu-compile` and the extra `garden`. Each program is compiled in a
process of its own, and what is done is not repeated.
"""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import tensorflow as tf
from official.core import exp_factory
from official.core import task_factory
from official.vision import registry_imports  # noqa: F401

from benchmarks import records
from benchmarks.tpu import compile as tpu_compile
from benchmarks.tpu.lowering import stablehlo
from benchmarks.tpu.programs import POLICY
from lambdanet_tf import garden
from lambdanet_tf.ops import planning_for

EXPERIMENTS = tuple(
    f"{family}{depth}_maskrcnn_coco"
    for depth in (101, 152, 200)
    for family in ("lambda_resnet", "resnet_rs")
)


def main(arguments=None):
    parser = records.parser(__doc__, chips=("v3", "v5e"), timeout=1800)
    options = parser.parse_args(arguments)
    programs = {name: ({"experiment": name}, {}) for name in EXPERIMENTS}
    module = "benchmarks.tpu.detection"
    tpu_compile.compile_all("detection_tpu", module, programs, options)


def lower(name):
    """The StableHLO of an experiment's training step with one image."""
    garden.register()
    params = exp_factory.get_exp_config(name)
    # The record is never read: what it would hold is all that is asked.
    params.task.train_data.input_path = __file__
    tf.keras.mixed_precision.set_global_policy(POLICY)
    return lower_step(params)


def lower_step(params):
    """The StableHLO of a training step with one image, and its parameters."""
    params.task.train_data.global_batch_size = 1
    task = task_factory.get_task(params.task)
    inputs = task.build_inputs(params.task.train_data).element_spec
    with planning_for("tpu"):
        model = task.build_model()
        optimizer = task.create_optimizer(params.trainer.optimizer_config)
        variables = model.trainable_variables
        # Makes the optimizer's own variables, which a compiled step cannot.
        optimizer.apply_gradients([(tf.zeros_like(v), v) for v in variables])

        def step(*tensors):
            batch = tf.nest.pack_sequence_as(inputs, tensors)
            return task.train_step(batch, model, optimizer)

        compiled = tf.function(step, jit_compile=True)
        text = stablehlo(compiled, tf.nest.flatten(inputs))
    return text, {"parameters": model.count_params()}


if __name__ == "__main__":
    main()
