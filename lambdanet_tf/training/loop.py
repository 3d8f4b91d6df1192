"""A training run from beginning to end.

In this order: `train`; devices, data and state; steps and epochs; test and
report. Only the `TrainState` changes; checkpoints contain it.
"""

import contextlib
import dataclasses
import io
import shlex
import tempfile
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import models
from lambdanet_tf import runs
from lambdanet_tf.arguments import users_input
from lambdanet_tf.training import devices
from lambdanet_tf.training import network
from lambdanet_tf.training import optimizer as optimizers
from lambdanet_tf.training import record
from lambdanet_tf.training.batches import InputPipeline
from lambdanet_tf.training.optimizer import Averages
from lambdanet_tf.training.options import NotFinite
from lambdanet_tf.training.options import PrintFn
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import Stopped
from lambdanet_tf.training.options import StopRequest
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.report import Progress
from lambdanet_tf.training.report import count
from lambdanet_tf.training.report import plan
from lambdanet_tf.training.report import write_report
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.state import check_finite
from lambdanet_tf.training.steps import Evaluation
from lambdanet_tf.training.steps import training_step

OnEpoch = Callable[[tf.keras.Model, dict[str, Any]], Any]


def train(
    recipe: Recipe,
    options: RunOptions | None = None,
    print_fn: PrintFn = print,
    on_epoch: OnEpoch | None = None,
) -> runs.RunFolder:
    """Trains a recipe's network and returns its run folder.

    If the run folder exists, the run resumes from its last checkpoint, with
    more epochs if the recipe has more. Keras' own seed determines the initial
    weights: to use the recipe's seed, call
    `tf.keras.utils.set_random_seed(recipe.seed)` before, as `train.py` does.

    Args:
        recipe: what to compute.
        options: where and how.
        print_fn: function that prints a line of text.
        on_epoch: function that is called after each epoch with the model, which
            has the trained weights, and the new row of metrics.csv.

    Raises:
        ValueError: if the recipe does not fit its data, network, devices or
            the run to resume.
        OSError: if the run folder cannot be written.
        Stopped: if a signal stops the run, or if a TPU or another worker is
            lost; you can resume the run.
        NotFinite: if the loss or a weight becomes NaN or infinite.
    """
    with StopRequest() as stop:  # Until nothing is left of the run.
        return _train(recipe, options or RunOptions(), print_fn, on_epoch, stop)


def _train(recipe, options, print_fn, on_epoch, stop):
    with devices.lost_device_stops():
        former, checkpoint = record.former_run(recipe, options)
        strategy = devices.create_strategy(options, print_fn)
        stop.listen_again()
        begun = dataclasses.replace(recipe, initial_weights="")
        pipeline, state = set_up(
            begun if checkpoint else recipe, options, strategy, print_fn
        )
        base = record.run_record(recipe, options, pipeline.images, former)
        with strategy.scope():
            evaluation = Evaluation(state.model, pipeline, stop.check)
        if not devices.is_chief():
            print_fn = str  # Prints nothing.
        with _written_folder(options) as folder:
            run = ActiveRun(
                recipe, options, base, folder, pipeline, state, evaluation,
                stop, print_fn, on_epoch,
            )  # fmt: skip
            print_fn(plan(recipe, pipeline, state.model, folder.path))
            if checkpoint:
                state.restore(checkpoint)
                print_fn(f"Resuming at step {state.step}.")
            if state.best:
                folder.write_bytes(runs.WEIGHTS_FILE, state.best_weights)
            folder.write(base)
            with _end_recorded(run):
                _train_epochs(run)
                _finish(run)
    return runs.RunFolder(options.run_dir or folder.path)


@dataclasses.dataclass(frozen=True)
class ActiveRun:
    """All that the training loop needs; only the state changes.

    Attributes:
        base: the content of run.json while the run is running, with earlier
            metrics if it had finished before.
        folder: the folder in which this process writes; for the chief, the run
            folder.
    """

    recipe: Recipe
    options: RunOptions
    base: runs.Run
    folder: runs.RunFolder
    pipeline: InputPipeline
    state: TrainState
    evaluation: Evaluation
    stop: StopRequest
    print_fn: PrintFn
    on_epoch: OnEpoch | None


# Data and state.


@users_input()
def set_up(
    recipe: Recipe,
    options: RunOptions,
    strategy: tf.distribute.Strategy,
    print_fn: PrintFn = print,
) -> tuple[InputPipeline, TrainState]:
    """Creates the batches and the state of a run."""
    images = data.load_images(
        recipe.data,
        recipe.validation_split,
        shuffle_buffer=recipe.shuffle_buffer,
    )
    pipeline = InputPipeline(recipe, images, strategy)
    steps = pipeline.steps_per_epoch
    with strategy.scope():
        model = network.recipe_network(recipe, images, print_fn)
        optimizer = optimizers.recipe_optimizer(recipe, steps)
        averages = Averages(model, recipe.ema_decay)
    return pipeline, TrainState(model, optimizer, averages)


@contextlib.contextmanager
def _written_folder(options):
    """Yields this process' folder: the run folder, if it is the chief."""
    if not devices.is_chief():
        with tempfile.TemporaryDirectory() as temporary:
            yield runs.RunFolder(temporary)
        return
    folder = runs.RunFolder(options.run_dir)
    if not options.run_dir:
        folder = runs.RunFolder.new(options.runs_dir)
    with folder.claim():
        yield folder


# Steps and epochs.


def _train_epochs(run: ActiveRun) -> None:
    """Takes all training steps, with an evaluation after each epoch.

    It writes a checkpoint before the evaluation, and another one after the last
    evaluation.
    """
    recipe, state, pipeline = run.recipe, run.state, run.pipeline
    per_epoch = pipeline.steps_per_epoch
    total = recipe.epochs * per_epoch
    with pipeline.strategy.scope():
        take_steps = training_step(state, recipe, run.options.jit_compile)
    stream = None if devices.is_chief() else io.StringIO()
    progress = Progress(recipe.epochs, per_epoch, recipe.batch_size, stream)
    if state.step < total:
        progress.write("compiling the training step ...")
    batches = iter(pipeline.training(state.step))
    while True:
        if state.step // per_epoch > len(state.rows):  # also after a resume
            _end_epoch(run, progress)
            run.stop.check()
        if state.step == total:
            break
        left = _steps_until_save(run)
        number = min(run.options.steps_per_execution, left)
        first = tf.constant(state.step, tf.int64)
        state.add(take_steps(batches, first, tf.constant(number)), number)
        run.stop.at_once = False
        _show_step(run, progress, is_due=number == left)
        if number == left:
            _save(run)
            if devices.any_process(pipeline.strategy, run.stop.received):
                raise Stopped("Stopped by a signal")
        run.stop.check()
    _save(run)


def _save(run):
    run.state.save(run.folder.file(runs.CHECKPOINTS))
    run.state.tick()


def _steps_until_save(run):
    """Returns the steps until the next checkpoint."""
    per_epoch = run.pipeline.steps_per_epoch
    periods = per_epoch, run.options.checkpoint_steps or per_epoch
    return min(period - run.state.step % period for period in periods)


def _show_step(run, progress, is_due):
    """Shows the progress if it is due; reads the loss only then."""
    state, shows = run.state, progress.is_due(run.state.step)
    if shows or is_due or run.stop.received:
        check_finite(float(state.sums[0]), state.step)
    state.tick(training=True)
    if shows:
        loss = state.training_metrics()["loss"]
        progress.show(state.step, f"loss {loss:.4f}")


def _end_epoch(run, progress):
    """Validates the averages, keeps the best weights, and writes metrics."""
    state, folder = run.state, run.folder
    per_epoch = run.pipeline.steps_per_epoch
    schedule = optimizers.recipe_schedule(run.recipe, per_epoch)
    metrics, weights = _validate(run)
    row = {
        "epoch": state.step // per_epoch,
        "step": state.step,
        "learning_rate": float(schedule(state.step - 1)),
        **state.training_metrics(),
        **metrics,
        "images_per_second": float(state.sums[2])
        / max(state.epoch_seconds, 1e-9),
    }
    state.tick()
    state.end_epoch({**row, "seconds": state.seconds}, weights)
    if weights:
        folder.write_bytes(runs.WEIGHTS_FILE, weights)
    folder.write_metrics(state.rows)
    text = f"loss {row['loss']:.4f}  accuracy {row['accuracy']:.2%}"
    if metrics:
        text += f"  validation {metrics['validation_accuracy']:.2%}"
    progress.show(state.step, text, ends_epoch=True)
    if run.on_epoch is not None:
        run.on_epoch(state.model, dict(state.rows[-1]))
    state.tick()  # Files and callbacks do not count in the next epoch.


def _validate(run):
    """Returns metrics of the averages, and the weights if they are best."""
    state, source = run.state, run.pipeline.images.validation
    with state.averages.applied():
        metrics = {}
        if source:
            metrics = run.evaluation.metrics(source, "validation_")
        check_finite(metrics.get("validation_loss", 0.0), state.step)
        if not state.is_best(metrics):
            return metrics, b""
        state.check_weights()
        return metrics, models.weights_as_bytes(state.model)


# Test and report.


def _finish(run: ActiveRun) -> None:
    """Tests the best weights and writes the report."""
    run.stop.at_once = True  # From here on, the state does not change.
    run.stop.check()
    state, images, folder = run.state, run.pipeline.images, run.folder
    models.load_weights(state.model, folder.file(runs.WEIGHTS_FILE))
    tested, predictions = run.evaluation.test(images.test)
    metrics = record.final_metrics(state, run.pipeline, tested)
    done = dataclasses.replace(run.base, status="finished", metrics=metrics)
    if devices.is_chief():
        write_report(folder, done, state.rows, predictions, images)
    run.stop.check()
    run.stop.at_once = False  # Once run.json is written, the run has finished.
    folder.write(done)
    run.print_fn(
        f"\nTest accuracy: {metrics['accuracy']:.2%} on "
        f"{count(metrics['test_images'], 'test image')} (weights of epoch "
        f"{metrics['best_epoch']})\nWrote to {folder.path}/: "
        f"{runs.WEIGHTS_FILE}, report.md, metrics.csv, run.json"
    )


# How a run ends.


@contextlib.contextmanager
def _end_recorded(run):
    """Saves a stopped run, and writes to run.json how the run ended."""
    ended, folder = {"status": "stopped"}, run.folder
    try:
        yield
        ended = {}
    except NotFinite as error:
        reason = f"{error}"
        if best := run.state.best:
            reason += (
                f" The best weights so far, of epoch {best['epoch']}, are in "
                f"{folder.file(runs.WEIGHTS_FILE)}."
            )
        metrics = {**run.base.metrics, "reason": reason}
        ended = {"status": "failed", "metrics": metrics}
        raise NotFinite(reason) from error
    except Stopped as error:
        if not run.stop.at_once:  # Otherwise the last checkpoint is current.
            run.state.tick()
            _save(run)
        raise Stopped(
            f"{error} at step {run.state.step}. To resume the run, repeat the "
            f"command with --run-dir {shlex.quote(folder.path)}"
        ) from error
    finally:
        if ended:
            folder.write(dataclasses.replace(run.base, **ended))
