"""How long a run would take, from its input pipeline and its first steps."""

import dataclasses
import time

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.training.devices import number_of_hosts
from lambdanet_tf.training.progress import duration
from lambdanet_tf.training.steps import training_step
from lambdanet_tf.training.stopping import check_finite

_SECONDS = 3.0  # of the pipeline, and of the steps
_LARGEST_BATCH = 32  # of the pipeline alone, so that several fit into that time
_PATIENCE = 60.0  # seconds of a first step, after which one more is enough


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """The first steps of a run.

    Attributes:
        loss: float. Of the first step.
        first_seconds: float. Of the first step, compiling included.
        seconds: float. Of a later step.
    """

    loss: float
    first_seconds: float
    seconds: float


def input_throughput(inputs, share=None, show=None):
    """The speed of the training pipeline of this process, alone.

    Args:
        inputs: `Inputs`.
        share: `Share` or None for all images.
        show: callable that is given the `Throughput` so far; or None.

    Returns:
        A `Throughput`.
    """
    batch_size = min(inputs.recipe.batch_size, _LARGEST_BATCH)
    batches = inputs.pipeline(share, batch_size)
    return data.throughput(batches, _SECONDS, show)


def input_share(strategy):
    """The part of the images that one of the input pipelines reads."""
    return data.Shard(0, number_of_hosts(strategy))


def time_steps(recipe, options, parts, strategy):
    """Takes the first steps of a run, for some seconds.

    All processes of a run take the same number of steps.

    Args:
        recipe: `Recipe`.
        options: `RunOptions`.
        parts: `Parts`. Its weights change.
        strategy: `tf.distribute.Strategy`.

    Returns:
        A `StepTimes`.

    Raises:
        NotFinite: if the loss is no number.
    """
    take = training_step(
        parts.model,
        parts.optimizer,
        strategy,
        recipe.batch_size,
        recipe.label_smoothing,
        recipe.seed,
        options.jit_compile,
    )
    batches = iter(parts.inputs.training())

    def timed(steps, vote):
        start = time.perf_counter()
        sums = take(batches, tf.constant(steps), tf.constant(float(vote)))
        return sums.numpy(), time.perf_counter() - start

    sums, first = timed(1, vote=0)
    check_finite(float(sums[0]), 1, "A dry run keeps no weights.")
    steps, seconds, votes = 0, 0.0, 0.0
    while not votes:
        enough = seconds >= _SECONDS or first >= _PATIENCE
        (*_, votes), taken = timed(options.steps_per_execution, vote=enough)
        steps, seconds = steps + options.steps_per_execution, seconds + taken
    return StepTimes(float(sums[0] / sums[2]), first, seconds / steps)


def whole_run(recipe, steps_per_epoch, step_seconds, input_rate):
    """How long all steps of a run take, in words.

    Args:
        recipe: `Recipe`.
        steps_per_epoch: int.
        step_seconds: float. Of one step.
        input_rate: float. Images per second of all input pipelines.

    Returns:
        A text.
    """
    steps = recipe.epochs * steps_per_epoch
    input_seconds = recipe.batch_size / input_rate
    seconds = steps * max(step_seconds, input_seconds)
    limit = "the step"
    if input_seconds > step_seconds:
        limit = f"the input pipeline ({input_seconds:.3g} s for a batch)"
    return (
        f"about {duration(seconds)} for {steps:,} steps, limited by {limit}; "
        "evaluation and saving come on top"
    )
