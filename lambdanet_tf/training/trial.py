"""What a run would be: its size, its speed, its first steps; and no run."""

import os
import sys

import numpy as np
import tensorflow as tf

from lambdanet_tf.analysis import analyze
from lambdanet_tf.training import pictures
from lambdanet_tf.training.checkpoints import check_room
from lambdanet_tf.training.devices import describe
from lambdanet_tf.training.devices import is_chief
from lambdanet_tf.training.forecast import input_share
from lambdanet_tf.training.forecast import input_throughput
from lambdanet_tf.training.forecast import time_steps
from lambdanet_tf.training.forecast import whole_run
from lambdanet_tf.training.optimisation import recipe_schedule
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.parts import make_parts
from lambdanet_tf.training.parts import open_devices
from lambdanet_tf.training.runs import RunFolder
from lambdanet_tf.training.runs import keras_version
from lambdanet_tf.training.step_memory import check_memory
from lambdanet_tf.training.step_memory import step_memory

_POINTS = 1000  # of the curve
_LABEL_WIDTH = 16


def dry_run(recipe, options=None, say=print):
    """Says what a run would be, and takes its first steps, without the run.

    It leaves one picture, of the learning rate: see `picture_path`.

    Args:
        recipe: `Recipe`.
        options: `RunOptions` or None.
        say: callable that shows a line of text.

    Raises:
        ValueError: if the recipe does not fit its data, network or devices, or
            a step does not fit into the memory of a machine without GPU.
        ImportError: if an optional package is missing.
        OSError: if the folder of the picture cannot be written, or has no room
            for the checkpoints of the run.
        NotFinite: if the loss of the first step is no number.
    """
    options = options or RunOptions()
    strategy = open_devices(options)
    speaks = is_chief(strategy)

    def row(label, text):
        if speaks:
            say(f"{label:{_LABEL_WIDTH}} {text}")

    path = picture_path(recipe, options)
    folder = RunFolder(os.path.dirname(path))
    if speaks:
        folder.prove_writable()
        say(f"Dry run of the recipe {recipe.name}: nothing is trained or kept.")
    parts = make_parts(recipe, options, strategy)
    for label, text in _plan(recipe, parts, strategy):
        row(label, text)
    if speaks:
        check_room(folder.path, parts.model, parts.optimizer)
        picture = rate_picture(recipe, parts.inputs.steps_per_epoch)
        folder.write_bytes(os.path.basename(path), picture)
    row("", f"drawn in {path}")
    memory = step_memory(recipe, parts, strategy)
    row("memory", memory.text)
    check_memory(recipe, memory, strategy)
    _measure(recipe, options, parts, strategy, row, speaks)


def picture_path(recipe, options):
    """Where the picture goes: beside the folder of the run, never into it.

    Args:
        recipe: `Recipe`.
        options: `RunOptions`.

    Returns:
        `<runs>/dry-run-<recipe>.png`; with a folder for the run,
        `dry-run-<name of the folder>.png` beside it.
    """
    run = options.run.rstrip("/")
    folder, name = os.path.split(run) if run else (options.runs, recipe.name)
    return os.path.join(folder or ".", f"dry-run-{name}.png")


def rate_picture(recipe, steps_per_epoch):
    """The learning rate over a whole run.

    Args:
        recipe: `Recipe`.
        steps_per_epoch: int.

    Returns:
        The bytes of a PNG file.
    """
    schedule = recipe_schedule(recipe, steps_per_epoch)
    updates = np.linspace(0, schedule.num_steps, _POINTS).round()
    updates = np.union1d(updates, [schedule.warmup_steps])
    return pictures.rate_curve(
        updates,
        schedule(tf.constant(updates, tf.float32)).numpy(),
        steps_per_epoch / recipe.accumulation,
        title=f"Learning rate of {recipe.name}",
    )


def _plan(recipe, parts, strategy):
    """What is known without measuring: labels and texts."""
    model, inputs = parts.model, parts.inputs
    shape = "x".join(map(str, inputs.image_shape))
    classes = model.output.shape[-1]
    yield "model", f"{recipe.model}, images {shape}, {classes:,} classes"
    counted = analyze(model, executed=False)
    yield "parameters", f"{counted.total('parameters'):,}, trainable"
    flops, unit = counted.total("flops") / 1e9, "GFLOPs"
    if flops < 1:
        flops, unit = 1e3 * flops, "MFLOPs"
    text = f"{flops:,.4g} {unit} an image, forward"
    if counted.not_counted:
        text += f", without {', '.join(counted.not_counted)}"
    yield "operations", f"{text} (2 per multiply-add)"
    software = f"TensorFlow {tf.__version__}, {keras_version()}"
    yield "devices", f"{describe(strategy)}; {recipe.precision}; {software}"
    yield "images", inputs.images.description
    yield "batch", _batch_text(recipe, strategy.num_replicas_in_sync)
    steps = recipe.epochs * inputs.steps_per_epoch
    yield (
        "steps",
        f"{inputs.steps_per_epoch:,} an epoch, {recipe.epochs:,} epochs: "
        f"{steps:,}",
    )
    schedule = recipe_schedule(recipe, inputs.steps_per_epoch)
    unit = "steps" if recipe.accumulation == 1 else "updates"
    yield (
        "learning rate",
        f"up to {schedule.peak:.4g} in {schedule.warmup_steps:,} {unit} of "
        f"warm-up, then {recipe.schedule} until {schedule.num_steps:,}",
    )


def _batch_text(recipe, replicas):
    text = f"{recipe.batch_size:,} images"
    if replicas > 1:
        text += f", {recipe.batch_size // replicas:,} on each replica"
    if recipe.accumulation > 1:
        text += f"; an update every {recipe.accumulation} batches"
    return text


def _measure(recipe, options, parts, strategy, row, speaks):
    def show(label, text):
        if speaks and sys.stdout.isatty():  # The next text overwrites it.
            print(f"{label:{_LABEL_WIDTH}} {text}", end="\r", flush=True)

    def show_flow(flow):
        show("input pipeline", f"{_rate(flow.images_per_second)} images/s")

    share = input_share(strategy)
    flow = input_throughput(parts.inputs, share, show_flow)
    rate = flow.images_per_second * share.count
    row(
        "input pipeline",
        f"{_rate(rate)} images/s alone ({flow.images:,} in {flow.seconds:.1f} "
        f"s; the first batch came after {flow.first_seconds:.1f} s)",
    )
    show("first step", "compiling ...")
    times = time_steps(recipe, options, parts, strategy)
    row(
        "first step",
        f"loss {times.loss:.4f} after {times.first_seconds:.1f} s, compiling "
        "included",
    )
    per_second = _rate(recipe.batch_size / times.seconds)
    row("next steps", f"{times.seconds:.3g} s each, {per_second} images/s")
    steps_per_epoch = parts.inputs.steps_per_epoch
    text = whole_run(recipe, steps_per_epoch, times.seconds, rate)
    row("whole run", text)


def _rate(number):
    return f"{number:,.0f}" if number >= 10 else f"{number:.2f}"
