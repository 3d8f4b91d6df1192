"""Compiles training steps of Mask R-CNN at full size with a TPU's compiler.

    make detection-tpu

One image on one core, mixed bfloat16: the step that the Model Garden's task
takes, of the registered experiments. Needs the extra `garden`; see
`benchmarks.tpu.compile`.
"""

import itertools

import tensorflow as tf
from official.core import exp_factory
from official.core import task_factory
from official.vision import registry_imports  # noqa: F401

from benchmarks import records
from benchmarks.tpu.compile import compile_all
from benchmarks.tpu.lowering import stablehlo
from benchmarks.tpu.programs import POLICY
from lambdanet_tf import garden
from lambdanet_tf.ops import planning_for

FAMILIES = ("lambda_resnet", "resnet_rs")


def main(arguments=None):
    run = records.start(
        "detection_tpu", __doc__, arguments, chips=("v3", "v5e"), timeout=1800
    )
    programs = {}
    for depth, family in itertools.product((101, 152, 200), FAMILIES):
        name = f"{family}{depth}_maskrcnn_coco"
        programs[name] = {"experiment": name}, {}
    compile_all(*run, "benchmarks.tpu.detection", programs)


def lower(name):
    """The StableHLO of an experiment's training step with one image."""
    garden.register()
    params = exp_factory.get_exp_config(name)
    data = params.task.train_data
    # The record is never read: what it would hold is all that is asked.
    data.input_path, data.global_batch_size = __file__, 1
    tf.keras.mixed_precision.set_global_policy(POLICY)
    task = task_factory.get_task(params.task)
    inputs = task.build_inputs(data).element_spec
    with planning_for("tpu"):
        model = task.build_model()
        optimizer = task.create_optimizer(params.trainer.optimizer_config)
        variables = model.trainable_variables
        # Makes the optimizer's own variables, which a compiled step cannot.
        optimizer.apply_gradients([(tf.zeros_like(v), v) for v in variables])

        @tf.function(jit_compile=True)
        def step(*tensors):
            batch = tf.nest.pack_sequence_as(inputs, tensors)
            return task.train_step(batch, model, optimizer)

        return stablehlo(step, tf.nest.flatten(inputs)), {}


if __name__ == "__main__":
    main()
