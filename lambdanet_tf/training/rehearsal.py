"""A run's cost: everything is set up, and two steps are taken."""

import resource
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lambdanet_tf.analysis import analyze
from lambdanet_tf.environment import keras_version
from lambdanet_tf.training.devices import create_strategy
from lambdanet_tf.training.devices import describe
from lambdanet_tf.training.devices import is_chief
from lambdanet_tf.training.loop import set_up
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.progress import count
from lambdanet_tf.training.progress import duration
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.record import check_prerequisites
from lambdanet_tf.training.state import check_finite
from lambdanet_tf.training.steps import evaluation_step
from lambdanet_tf.training.steps import training_step


def dry_run(
    recipe: Recipe,
    options: RunOptions | None = None,
    print_fn: Callable[[str], Any] = print,
) -> None:
    """Prints what a run takes, after two steps and a batch of evaluation.

    Nothing is written.

    Args:
        recipe: of the run.
        options: of the run.
        print_fn: shows a line of text.

    Raises:
        ValueError: if the recipe does not fit its data, network or devices.
        ImportError: if optional packages are missing.
        NotFinite: if the loss of the first step is not finite.
    """
    options = options or RunOptions()
    check_prerequisites(recipe, options, print_fn)
    strategy = create_strategy(options)
    pipeline, state = set_up(recipe, options, strategy, print_fn)
    with strategy.scope():
        take_steps = training_step(state, recipe, options.jit_compile)
        evaluate = evaluation_step(state.model)
    batches = iter(pipeline.training())

    def step(number):
        start = time.perf_counter()
        first = tf.constant(number, tf.int64)
        sums = take_steps(batches, first, tf.constant(1)).numpy()
        check_finite(float(sums[0]), number + 1)
        return sums[0] / sums[2], time.perf_counter() - start

    loss, compiling = step(0)
    _, seconds = step(1)
    evaluate(next(iter(pipeline.evaluation(pipeline.images.test))))
    counted, steps = analyze(state.model), pipeline.steps_per_epoch
    rows = {
        "model": f"{recipe.model}, images {state.model.input_shape[1:]}",
        "images": pipeline.images.description,
        "devices": f"{describe(strategy)}; {recipe.precision}; TensorFlow "
        f"{tf.__version__}, {keras_version()}",
        "weights": f"{counted.total('parameters'):,}, trainable",
        "operations": f"{counted.total('flops'):.4g} FLOPs an image, forward",
        "first step": f"loss {loss:.4f} after {compiling:.1f} s, compiling "
        "included",
        "second step": f"{seconds:.3g} s, "
        f"{recipe.batch_size / seconds:,.4g} images/s",
        "epoch": f"{count(steps, 'step')}, {duration(steps * seconds)}; "
        f"{recipe.epochs} of them: {duration(recipe.epochs * steps * seconds)}",
        "memory": _memory(),
    }
    for label, text in rows.items() if is_chief() else ():
        print_fn(f"{label:12} {text}")


def _memory():
    """Returns in words the most memory that was in use so far."""
    if tf.config.list_logical_devices("GPU"):
        used = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        return f"{used / 2**30:.2f} GiB at most, of the first GPU"
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in KiB
    return f"{used / 2**20:.2f} GiB at most, of this process"
