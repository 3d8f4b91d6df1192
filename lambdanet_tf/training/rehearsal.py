"""The dry run: sets everything up, takes two steps, and prints the cost."""

import pathlib
import re
import time

import tensorflow as tf

from lambdanet_tf.analysis import analyze
from lambdanet_tf.training import devices
from lambdanet_tf.training.loop import set_up
from lambdanet_tf.training.options import PrintFn
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.report import duration
from lambdanet_tf.training.report import plan
from lambdanet_tf.training.state import check_finite
from lambdanet_tf.training.steps import evaluation_step
from lambdanet_tf.training.steps import training_step

_MEMORY = pathlib.Path("/proc/self/status")  # on Linux


def dry_run(
    recipe: Recipe, options: RunOptions | None = None, print_fn: PrintFn = print
) -> None:
    """Prints the time and memory of a run, after two steps and an evaluation.

    It writes nothing.

    Args:
        recipe: the recipe of the run.
        options: the options of the run.
        print_fn: function that prints a line of text.
    """
    options = options or RunOptions()
    with devices.lost_device_stops():
        strategy = devices.create_strategy(options, print_fn)
        pipeline, state = set_up(recipe, options, strategy, print_fn)
        with strategy.scope():
            take_steps = training_step(state, recipe, options.jit_compile)
            evaluate = evaluation_step(state.model)
        batches, ends = iter(pipeline.training()), [time.perf_counter()]
        for number in range(2):
            first = tf.constant(number, tf.int64)
            sums = take_steps(batches, first, tf.constant(1)).numpy()
            check_finite(float(sums[0]), number + 1)
            ends.append(time.perf_counter())
        evaluate(next(iter(pipeline.evaluation(pipeline.images.test))))
    compiling, seconds = ends[1] - ends[0], ends[2] - ends[1]
    operations = analyze(state.model).total("flops")
    epoch = pipeline.steps_per_epoch * seconds
    rows = {
        "operations": f"{operations:.4g} FLOPs per image, forward",
        "first step": f"{compiling:.1f} s, with compiling",
        "second step": f"{seconds:.3g} s, "
        f"{recipe.batch_size / seconds:,.4g} images/s; loss "
        f"{sums[0] / sums[2]:.4f}",
        "training": f"{duration(epoch)} per epoch, "
        f"{duration(recipe.epochs * epoch)} in all",
        "memory": _memory(),
    }
    if devices.is_chief():
        print_fn(plan(recipe, pipeline, state.model, "none"))
        for label, text in rows.items():
            print_fn(f"{label:12} {text}")


def _memory():
    """Describes the peak memory so far."""
    if tf.config.list_logical_devices("GPU"):
        used = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        return f"at most {used / 2**30:.2f} GiB, on the first GPU"
    if not _MEMORY.exists():
        return "unknown on this system"
    (used,) = re.findall(r"VmHWM:\s+(\d+) kB", _MEMORY.read_text())
    return f"at most {int(used) / 2**20:.2f} GiB, in this process"
