"""What a run would take: size, memory and speed, without training."""

import os
import time
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import runs
from lambdanet_tf.analysis import Analysis
from lambdanet_tf.analysis import analyze
from lambdanet_tf.arguments import UserError
from lambdanet_tf.environment import is_there
from lambdanet_tf.environment import keras_version
from lambdanet_tf.files import check_writable
from lambdanet_tf.training import pictures
from lambdanet_tf.training.batches import InputPipeline
from lambdanet_tf.training.devices import any_process
from lambdanet_tf.training.devices import create_strategy
from lambdanet_tf.training.devices import describe
from lambdanet_tf.training.devices import is_cpu
from lambdanet_tf.training.devices import number_of_hosts
from lambdanet_tf.training.loop import set_up
from lambdanet_tf.training.optimizer import recipe_schedule
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import is_chief
from lambdanet_tf.training.progress import count
from lambdanet_tf.training.progress import duration
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.record import check_prerequisites
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.state import check_finite
from lambdanet_tf.training.state import check_room
from lambdanet_tf.training.state import size_in_bytes
from lambdanet_tf.training.steps import training_step

_SECONDS = 3.0  # of the pipeline, and of the steps
_LARGEST_BATCH = 32  # of the pipeline alone, so that several fit into that time
_SLOW_STEP_SECONDS = 60.0  # A first step after which one more is enough.


def dry_run(
    recipe: Recipe,
    options: RunOptions | None = None,
    print_fn: Callable[[str], Any] = print,
) -> None:
    """Reports model size, memory and speed of a run, without the run.

    Takes real steps on the devices of the run, and leaves one picture, of the
    learning rate: see `picture_path`. Nothing is downloaded: where a well-known
    image set is missing, random images take its place.

    Args:
        recipe: of the run.
        options: of the run.
        print_fn: shows a line of text.

    Raises:
        ValueError: if the recipe does not fit its data, network or devices, or
            a step does not fit into the memory of a machine without GPU.
        ImportError: if optional packages are missing.
        OSError: if the run folder could not be written, or has no space for the
            checkpoints.
        NotFinite: if the loss of the first step is not finite.
    """
    options = options or RunOptions()
    check_prerequisites(recipe, options, False, print_fn)
    strategy = create_strategy(options)
    path = picture_path(recipe, options)
    folder = runs.RunFolder(os.path.dirname(path))
    chief = is_chief()
    if chief:
        check_writable(folder.path)
        print_fn(f"Dry run of the recipe {recipe.name}: nothing is trained.")

    def show(rows):
        for label, text in rows.items() if chief else ():
            print_fn(f"{label:16} {text}")

    pipeline, state = set_up(recipe, options, strategy, dry_run=True)
    counted = analyze(state.model, executed=False)
    show(_plan(recipe, pipeline, state, counted))
    memory = step_memory(recipe, state, counted)
    if chief:
        check_room(folder.path, state.size_in_bytes())
        schedule = recipe_schedule(recipe, pipeline.steps_per_epoch)
        title = f"Learning rate of {recipe.name}"
        if is_there("matplotlib"):
            picture = pictures.rate_curve(
                schedule, pipeline.steps_per_epoch, title
            )
            folder.write_bytes(os.path.basename(path), picture)
            show({"": f"drawn in {path}"})
    show({"memory": _memory_text(memory)})
    check_memory(recipe, memory, strategy)
    flow = input_throughput(pipeline)
    rate = flow.images_per_second * number_of_hosts(strategy)
    show(
        {
            "input pipeline": f"{_rate(rate)} images/s alone ({flow.images:,} "
            f"in {flow.seconds:.1f} s; the first batch came after "
            f"{flow.first_seconds:.1f} s)"
        }
    )
    times = time_steps(recipe, options, pipeline, state)
    per_epoch = pipeline.steps_per_epoch
    show(
        {
            "first step": f"loss {times.loss:.4f} after "
            f"{times.first_seconds:.1f} s, compiling included",
            "next steps": f"{times.seconds:.3g} s each, "
            f"{_rate(recipe.batch_size / times.seconds)} images/s",
            "whole run": whole_run(recipe, per_epoch, times.seconds, rate),
        }
    )


def picture_path(recipe: Recipe, options: RunOptions) -> str:
    """Returns where the picture goes: next to the run folder, never into it.

    Returns:
        `<runs>/dry-run-<recipe>.png`; with a folder for the run,
        `dry-run-<name of the folder>.png` next to it.
    """
    folder, name = options.runs_dir, recipe.name
    if options.run_dir:
        folder, name = os.path.split(options.run_dir.rstrip("/"))
    return os.path.join(folder or ".", f"dry-run-{name}.png")


def step_memory(
    recipe: Recipe, state: TrainState, counted: Analysis
) -> dict[str, int]:
    """Counts the bytes that a training step needs on each device.

    All but the activations is exact: these are the outputs of all layers for
    the batch of a device, and what lambda layers hold besides, which the
    backward pass reads. What TensorFlow, its kernels and the input pipeline
    take is not in it.

    Args:
        recipe: of the run.
        state: of the run.
        counted: the analysis of the model.
    """
    replicas = state.model.distribute_strategy.num_replicas_in_sync
    images = recipe.batch_size // replicas
    return {
        "weights": size_in_bytes(state.model.weights),
        "slots": size_in_bytes(state.optimizer.variables),
        "averages": size_in_bytes(state.averages.variables),
        "gradients": size_in_bytes(state.model.trainable_weights),
        "activations": images * counted.total("activation_bytes"),
    }


def check_memory(
    recipe: Recipe, memory: dict[str, int], strategy: tf.distribute.Strategy
) -> None:
    """Raises if a step cannot fit into the memory of a machine without GPU.

    Raises:
        ValueError: naming both amounts.
    """
    if not is_cpu(strategy) or not hasattr(os, "sysconf"):
        return
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    replicas = strategy.num_replicas_in_sync // number_of_hosts(strategy)
    needed = sum(memory.values()) * replicas
    if needed > there:
        raise UserError(
            f"`batch_size` {recipe.batch_size} is too large for this machine: "
            f"a step needs about {needed / 2**30:,.0f} GiB, and it has "
            f"{there / 2**30:,.0f} GiB. No step was taken."
        )


class StepTimes(NamedTuple):
    """The loss of the first step, its seconds, and those of a later one."""

    loss: float
    first_seconds: float
    seconds: float


def time_steps(
    recipe: Recipe,
    options: RunOptions,
    pipeline: InputPipeline,
    state: TrainState,
) -> StepTimes:
    """Takes the first steps of a run, for some seconds.

    All processes of a run take the same number of steps. The weights of the
    state change.

    Raises:
        NotFinite: if the loss is not finite.
    """
    with pipeline.strategy.scope():
        take_steps = training_step(state, recipe, options.jit_compile)
    batches = iter(pipeline.training())

    def timed(first, steps):
        start = time.perf_counter()
        number = tf.constant(first, tf.int64)
        sums = take_steps(batches, number, tf.constant(steps)).numpy()
        return sums, time.perf_counter() - start

    sums, first_seconds = timed(0, 1)
    check_finite(float(sums[0]), 1)
    steps, seconds, enough = 0, 0.0, False
    while not enough:
        number = options.steps_per_execution
        _, taken = timed(1 + steps, number)
        steps, seconds = steps + number, seconds + taken
        slow = first_seconds >= _SLOW_STEP_SECONDS
        enough = any_process(pipeline.strategy, slow or seconds >= _SECONDS)
    return StepTimes(float(sums[0] / sums[2]), first_seconds, seconds / steps)


def input_throughput(pipeline: InputPipeline) -> data.Throughput:
    """Measures the training pipeline of this process, alone."""
    shard = data.Shard(0, number_of_hosts(pipeline.strategy))
    batch_size = min(pipeline.recipe.batch_size, _LARGEST_BATCH)
    batches = pipeline.training_batches(batch_size, shard=shard)
    return data.throughput(batches, _SECONDS)


def whole_run(
    recipe: Recipe,
    steps_per_epoch: int,
    step_seconds: float,
    input_rate: float,
) -> str:
    """Returns in words how long all steps of a run take.

    Args:
        recipe: of the run.
        steps_per_epoch: of the run.
        step_seconds: of one step.
        input_rate: images per second of all input pipelines.
    """
    steps = recipe.epochs * steps_per_epoch
    input_seconds = recipe.batch_size / input_rate
    seconds = steps * max(step_seconds, input_seconds)
    limit = "the step"
    if input_seconds > step_seconds:
        limit = f"the input pipeline ({input_seconds:.3g} s for a batch)"
    return (
        f"about {duration(seconds)} for {count(steps, 'step')}, limited by "
        f"{limit}; evaluation and saving come on top"
    )


def _plan(recipe, pipeline, state, counted) -> dict[str, str]:
    """What is known without measuring."""
    shape = "x".join(map(str, pipeline.image_shape))
    classes = state.model.output_shape[-1]
    replicas = pipeline.strategy.num_replicas_in_sync
    batch = count(recipe.batch_size, "image")
    if replicas > 1:
        batch += f", {recipe.batch_size // replicas:,} on each replica"
    schedule = recipe_schedule(recipe, pipeline.steps_per_epoch)
    return {
        "model": f"{recipe.model}, images {shape}, {classes:,} classes",
        "parameters": f"{counted.total('parameters'):,}, trainable",
        "operations": _operations_text(counted),
        "devices": f"{describe(pipeline.strategy)}; {recipe.precision}; "
        f"TensorFlow {tf.__version__}, {keras_version()}",
        "images": pipeline.images.description,
        "batch": batch,
        "steps": f"{pipeline.steps_per_epoch:,} an epoch, "
        f"{count(recipe.epochs, 'epoch')}: {schedule.num_steps:,}",
        "learning rate": f"up to {schedule.peak:.4g} in "
        f"{count(schedule.warmup_steps, 'step')} of warm-up, then "
        f"{recipe.schedule} until {schedule.num_steps:,}",
    }


def _operations_text(counted):
    flops, unit = counted.total("flops") / 1e9, "GFLOPs"
    if flops < 1:
        flops, unit = 1e3 * flops, "MFLOPs"
    text = f"{flops:,.4g} {unit} an image, forward"
    if counted.not_counted:
        text += f", without {', '.join(counted.not_counted)}"
    return f"{text} (2 per multiply-add)"


def _memory_text(memory):
    parts = ", ".join(f"{k} {_mib(size)}" for k, size in memory.items())
    return f"about {_mib(sum(memory.values()))} MiB on each device: {parts}"


def _rate(number):
    return f"{number:,.0f}" if number >= 10 else f"{number:.2f}"


def _mib(number):
    digits = 0 if number >= 10 * 2**20 else 1
    return f"{number / 2**20:,.{digits}f}"
