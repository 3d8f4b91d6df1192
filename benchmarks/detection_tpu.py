"""Compiles training steps of Mask R-CNN at full size with a TPU's compiler.

    make detection-tpu

One image on one core, mixed bfloat16: the step that the Model Garden's task
takes, of the registered experiments. Needs no TPU, but the compiler of
`make tpu-compile` and the extra `garden`. Each program is compiled in a
process of its own, and what is done is not repeated.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from official.core import exp_factory
from official.core import task_factory
from official.vision import registry_imports  # noqa: F401

from benchmarks import report
from benchmarks import tpu_compile
from benchmarks import tpu_report
from benchmarks.tpu_lowering import stablehlo
from benchmarks.tpu_programs import CHIPS
from benchmarks.tpu_programs import GIB
from lambdanet_tf import garden
from lambdanet_tf.ops import planning_for

DOCUMENT = "detection.md"
RESULTS = "detection_tpu.json"
CHILD = (sys.executable, "-m", "benchmarks.detection_tpu", "--child")
EXPERIMENTS = tuple(
    f"{family}{depth}_maskrcnn_coco"
    for depth in (101, 152, 200)
    for family in ("lambda_resnet", "resnet_rs")
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--write", help="folder of the docs")
    parser.add_argument("--chips", nargs="+", choices=CHIPS, default=("v3",))
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS)
    parser.add_argument("--timeout", type=int, default=1800, help="seconds")
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    folder = pathlib.Path(options.write)
    results = tpu_compile.compile_all(
        options.only or EXPERIMENTS,
        options.chips,
        options.timeout,
        folder / RESULTS,
        CHILD,
    )
    report.insert(folder, "tpu", table(results), DOCUMENT)


def child(name, chip):
    """Compiles the step of an experiment; prints the result as JSON."""
    # Only here, where the compiler is installed.
    from benchmarks import tpu_child  # noqa: PLC0415

    garden.register()
    params = exp_factory.get_exp_config(name)
    # The record is never read: what it would hold is all that is asked.
    params.task.train_data.input_path = __file__
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    tpu_child.compile_and_print(lambda: lower(params), chip)


def lower(params):
    """The StableHLO of a training step with one image, and its parameters.

    Args:
        params: config of an experiment; the batch is made one image.
    """
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


def table(results):
    """What each program needs of the memory of a core."""
    lines = [
        "| experiment | TPU | result | arguments, GiB | temporaries, GiB "
        "| total, GiB |",
        "|---|---|---|---|---|---|",
    ]
    for name in EXPERIMENTS:
        for chip in CHIPS:
            result = results.get(f"{name} on {chip}")
            if result is None:
                continue
            if result["status"] != "ok":
                text = tpu_report.summary(chip, result)
                lines.append(f"| `{name}` | {chip} | {text} | | | |")
                continue
            needed = tpu_report.memory(result)
            fits = "fits" if needed <= CHIPS[chip].hbm else "does not fit"
            lines.append(
                f"| `{name}` | {chip} | {fits} "
                f"| {result['arguments'] / GIB:.2f} "
                f"| {result['temporaries'] / GIB:.2f} "
                f"| {needed / GIB:.2f} of {CHIPS[chip].hbm // GIB} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
