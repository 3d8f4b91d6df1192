"""A training run from front to back.

In this order: `train`; devices, data and state (`prepare`); steps and epochs
(`train_epochs`); test and report (`finish`). All that changes is the
`TrainState`, which checkpoints hold.
"""

import contextlib
import dataclasses
import shlex
import tempfile
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lambdanet_tf import config
from lambdanet_tf import data
from lambdanet_tf import environment
from lambdanet_tf import models
from lambdanet_tf import runs
from lambdanet_tf.analysis import trainable_parameters
from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import users_input
from lambdanet_tf.environment import is_there
from lambdanet_tf.training.averages import Averages
from lambdanet_tf.training.batches import InputPipeline
from lambdanet_tf.training.devices import StopRequest
from lambdanet_tf.training.devices import any_process
from lambdanet_tf.training.devices import callers_state_restored
from lambdanet_tf.training.devices import create_strategy
from lambdanet_tf.training.devices import describe
from lambdanet_tf.training.devices import is_lost
from lambdanet_tf.training.devices import lost_device_stops
from lambdanet_tf.training.network import network_arguments
from lambdanet_tf.training.network import recipe_network
from lambdanet_tf.training.optimizer import recipe_optimizer
from lambdanet_tf.training.optimizer import recipe_schedule
from lambdanet_tf.training.options import NotFinite
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import Stopped
from lambdanet_tf.training.options import is_chief
from lambdanet_tf.training.progress import Progress
from lambdanet_tf.training.progress import count
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.record import check_prerequisites
from lambdanet_tf.training.record import check_resumable
from lambdanet_tf.training.record import check_same_images
from lambdanet_tf.training.record import run_record
from lambdanet_tf.training.report import write_report
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.state import check_finite
from lambdanet_tf.training.state import check_room
from lambdanet_tf.training.state import checkpoint_paths
from lambdanet_tf.training.steps import Evaluation
from lambdanet_tf.training.steps import training_step

_EXAMPLES = 16
PrintFn = Callable[[str], Any]
OnEpoch = Callable[[tf.keras.Model, dict[str, Any]], Any]


def train(
    recipe: Recipe,
    options: RunOptions | None = None,
    print_fn: PrintFn = print,
    on_epoch: OnEpoch | None = None,
) -> runs.RunFolder:
    """Trains a recipe's network and writes its run folder.

    A run folder that is there is resumed from its last checkpoint, with more
    epochs if the recipe has more. The caller's random numbers, dtype policy and
    determinism are afterwards what they were.

    Args:
        recipe: what to compute.
        options: where and how.
        print_fn: shows a line of text.
        on_epoch: is called after each epoch with the model, which has the
            trained weights, and the new line of metrics.csv.

    Returns:
        The folder of the finished run.

    Raises:
        ValueError: if the recipe does not fit its data, network, devices or
            the run to resume.
        ImportError: if optional packages are missing.
        OSError: if the run folder cannot be written.
        Stopped: if a signal asked to stop, or a TPU or another worker was
            lost; the run can be resumed.
        NotFinite: if loss or weights became NaN or infinite.

    Examples:
        >>> recipe = training.resolve("smoke")
        >>> folder = train(recipe, training.RunOptions(runs_dir="runs"))
        LambdaResNetSmall: 2,862 trainable parameters; ...
        digits: 1,295 training, 143 validation and 359 test images, ...
        >>> folder.read().status
        'finished'
    """
    options = options or RunOptions()
    check_prerequisites(recipe, options, print_fn=print_fn)
    if options.run_dir:
        folder = runs.RunFolder(options.run_dir)
    else:
        folder = runs.RunFolder.new(options.runs_dir)
    with (
        callers_state_restored(),
        lost_device_stops(folder.path),
        StopRequest() as stop,
        _written_folder(folder) as output,
    ):
        check_resumable(folder, recipe, print_fn)
        run = prepare(recipe, options, folder, print_fn, on_epoch, stop, output)
        with _end_recorded(run):
            train_epochs(run)
            finish(run)
    return folder


@contextlib.contextmanager
def _written_folder(folder):
    """Where this process writes: only the chief to the run folder."""
    if is_chief():
        with folder.claim():
            yield folder
    else:
        with tempfile.TemporaryDirectory() as temporary:
            yield runs.RunFolder(temporary)


@dataclasses.dataclass(frozen=True)
class ActiveRun:
    """The parts of a run that do not change, and its state, which does.

    Attributes:
        folder: of the run.
        output: where this process writes: only the chief to the run folder.
        pipeline: the batches, with the image set and the strategy.
        state: of the run.
        evaluation: of the model.
        former_metrics: of a run that was finished before; it has them until
            there are new ones.
        stop: the signals that ask to stop.

    The others are the arguments of `train`.
    """

    recipe: Recipe
    options: RunOptions
    folder: runs.RunFolder
    output: runs.RunFolder
    pipeline: InputPipeline
    state: TrainState
    evaluation: Evaluation
    former_metrics: dict[str, Any]
    stop: StopRequest
    print_fn: PrintFn
    on_epoch: OnEpoch | None

    @property
    def checkpoints(self) -> str:
        """The folder of the checkpoints that this process writes."""
        return self.output.file(runs.CHECKPOINTS)

    def write(self, status: str, metrics: dict[str, Any]) -> None:
        """Writes run.json."""
        self.output.write(self.record(status, metrics))

    def record(self, status: str, metrics: dict[str, Any]) -> runs.Run:
        """Returns what run.json is to hold."""
        images = self.pipeline.images
        arguments = network_arguments(self.recipe, images)
        return run_record(
            status, self.recipe, self.options, images, arguments, metrics,
        )  # fmt: skip


# Devices, data and state.


def prepare(
    recipe: Recipe,
    options: RunOptions,
    folder: runs.RunFolder,
    print_fn: PrintFn = print,
    on_epoch: OnEpoch | None = None,
    stop: StopRequest | None = None,
    output: runs.RunFolder | None = None,
) -> ActiveRun:
    """Sets up a run, and restores its newest checkpoint if there is one.

    The arguments are those of `train` and attributes of `ActiveRun`. Without
    `stop` no signal is noted; without `output` the run folder is written.
    """
    stop = stop or StopRequest()
    strategy = create_strategy(options)
    stop.listen_again()
    output = output or folder
    print_fn = print_fn if is_chief() else lambda text: None
    checkpoints = folder.file(runs.CHECKPOINTS)
    is_begun = bool(checkpoint_paths(checkpoints))
    begun = dataclasses.replace(recipe, initial_weights="")
    pipeline, state = set_up(
        begun if is_begun else recipe, options, strategy, print_fn
    )
    check_same_images(folder, pipeline.images)
    is_resumed = state.restore(checkpoints, print_fn)
    if not is_resumed and folder.exists(runs.WEIGHTS_FILE):
        raise UserError(
            f"{folder.path} has weights but no whole checkpoint to resume "
            f"from. Put back {checkpoints}, or begin a run in another folder "
            f"with --initial-weights {folder.path}."
        )
    if is_begun and not is_resumed:  # Stopped while it wrote the first one.
        pipeline, state = set_up(recipe, options, strategy, print_fn)
    check_room(output.path, state.size_in_bytes())
    with strategy.scope():
        evaluation = Evaluation(state.model, pipeline, stop.check)
    former = dict(folder.read().metrics) if folder.exists() else {}
    run = ActiveRun(
        recipe, options, folder, output, pipeline, state, evaluation, former,
        stop, print_fn, on_epoch,
    )  # fmt: skip
    _print_plan(run)
    if is_resumed:
        print_fn(f"Resuming at step {state.step}.")
        if state.best:
            output.write_bytes(runs.WEIGHTS_FILE, state.best_weights)
    run.write("running", run.former_metrics)
    return run


@users_input()
def set_up(
    recipe: Recipe,
    options: RunOptions,
    strategy: tf.distribute.Strategy,
    print_fn: PrintFn = print,
    dry_run: bool = False,
) -> tuple[InputPipeline, TrainState]:
    """Creates the batches and the state of a run.

    Args:
        recipe: of the run.
        options: of the run.
        strategy: of `create_strategy`.
        print_fn: shows a line of text.
        dry_run: whether random images may take the place of missing ones.

    Raises:
        ValueError: if the recipe does not fit its data, network or devices.
        ImportError: if an optional package is missing.
    """
    load_images = data.dry_run_images if dry_run else data.load_images
    images = load_images(
        recipe.data,
        recipe.validation_split,
        options.data_dir or None,
        recipe.shuffle_buffer,
    )
    pipeline = InputPipeline(recipe, images, strategy)
    with strategy.scope():
        model = recipe_network(recipe, images, print_fn)
        optimizer = recipe_optimizer(recipe, pipeline.steps_per_epoch)
        optimizer.build(model.trainable_variables)
        averages = Averages(model, recipe.ema_decay)
    return pipeline, TrainState(model, optimizer, averages)


def _print_plan(run):
    recipe, pipeline = run.recipe, run.pipeline
    run.print_fn(
        f"{recipe.model}: {trainable_parameters(run.state.model):,} "
        f"trainable parameters; "
        f"{environment.keras_version()}, TensorFlow {tf.__version__}, "
        f"{describe(pipeline.strategy)}\n{pipeline.images.description}\n"
        f"{count(recipe.epochs, 'epoch')} of "
        f"{count(pipeline.steps_per_epoch, 'step')}, "
        f"{count(recipe.batch_size, 'image')} each; run folder "
        f"{run.folder.path}"
    )
    if recipe.warmup_epochs >= recipe.epochs:
        run.print_fn(
            f"Warning: the warm-up of {recipe.warmup_epochs:g} epochs is "
            "as long as the run: the learning rate only rises. Give a "
            "shorter --warmup-epochs."
        )


# Steps and epochs.


def train_epochs(run: ActiveRun) -> None:
    """Takes all training steps, with an evaluation after each epoch.

    Where a checkpoint is due, it is written before the evaluation; after the
    last one there is another.

    Args:
        run: of `prepare`.

    Raises:
        Stopped: as `train`.
        NotFinite: as `train`.
    """
    recipe, state, checkpoints = run.recipe, run.state, run.checkpoints
    per_epoch = run.pipeline.steps_per_epoch
    total = recipe.epochs * per_epoch
    with run.pipeline.strategy.scope():
        take_steps = training_step(state, recipe, run.options.jit_compile)
    progress = Progress(recipe.epochs, per_epoch, recipe.batch_size)
    if is_chief() and state.step < total:
        progress.write("compiling the training step ...")
    batches = iter(run.pipeline.training(state.step))
    while True:
        if state.step // per_epoch > len(state.rows):  # Also resumed here.
            _end_epoch(run, progress)
            run.stop.check()
        if state.step == total:
            break
        _take_steps(run, take_steps, batches, progress)
        if _is_due(run):
            state.save(checkpoints)
            state.tick()
            if any_process(run.pipeline.strategy, bool(run.stop.received)):
                raise Stopped("Stopped by a signal")
        run.stop.check()
    state.save(checkpoints)


def _take_steps(run, take_steps, batches, progress):
    """One call to the devices; shows how far the run is."""
    state, number = run.state, _steps_until_pause(run)
    first = tf.constant(state.step, tf.int64)
    state.add(take_steps(batches, first, tf.constant(number)), number)
    run.stop.at_once = False
    shows = progress.is_due(state.step)
    if (
        shows
        or run.stop.received
        or _is_due(run)
        or state.step % run.pipeline.steps_per_epoch == 0
    ):
        check_finite(state.sums[0], state.step)
    state.tick(training=True)
    if shows and is_chief():
        loss = state.training_metrics()["loss"]
        progress.show(state.step, f"loss {loss:.4f}")


def _steps_until_pause(run):
    """Steps of the next call: none may jump over a place to pause at."""
    steps = run.options.steps_per_execution
    for period in (run.pipeline.steps_per_epoch, run.options.checkpoint_steps):
        if period:
            steps = min(steps, period - run.state.step % period)
    return steps


def _is_due(run):
    """Whether to write a checkpoint: by steps, by epochs, or at the end.

    Also after the first epoch: a run that was killed when it had weights, but
    no checkpoint, could not be resumed.
    """
    per_epoch, options = run.pipeline.steps_per_epoch, run.options
    return run.state.step == per_epoch or any(
        period and run.state.step % period == 0
        for period in (
            options.checkpoint_steps,
            options.checkpoint_epochs * per_epoch,
            run.recipe.epochs * per_epoch,
        )
    )


def _end_epoch(run, progress):
    """Validates the averages, keeps the best weights, writes metrics."""
    state, per_epoch = run.state, run.pipeline.steps_per_epoch
    schedule = recipe_schedule(run.recipe, per_epoch)
    metrics, bad, weights = _validate(run)
    row = {
        "epoch": state.step // per_epoch,
        "step": state.step,
        "learning_rate": float(schedule(state.step - 1)),
        **state.training_metrics(),
        **metrics,
        "images_per_second": state.sums[2] / max(state.epoch_seconds, 1e-9),
        "bad_images": bad,
    }
    state.tick()
    state.end_epoch({**row, "seconds": state.seconds}, metrics, weights)
    if weights:
        run.output.write_bytes(runs.WEIGHTS_FILE, weights)
    run.output.write_metrics(state.rows)
    run.output.write_events(state.rows[-1])
    if is_chief():
        progress.end_epoch(row)
    if run.on_epoch is not None:
        run.on_epoch(state.model, dict(state.rows[-1]))
    state.tick()  # What files and callbacks took is no time of the next epoch.


def _validate(run):
    """Metrics of the averages, unreadable images, and weights if the best."""
    state, source = run.state, run.pipeline.images.validation
    with state.averages.applied():
        metrics, bad = {}, 0
        if source is not None:
            metrics = run.evaluation.metrics(source, "validation_")
            bad = source.num_images - metrics.pop("validation_images")
        loss = metrics.get("validation_loss", 0.0)
        check_finite(loss, state.step)
        if not state.is_best(metrics):
            return metrics, bad, b""
        state.check_weights()
        return metrics, bad, models.weights_as_bytes(state.model)


# Test and report.


def finish(run: ActiveRun) -> None:
    """Tests the best weights and writes the report.

    Args:
        run: after `train_epochs`, which has written its last checkpoint.

    Raises:
        Stopped: as `train`.
    """
    run.stop.at_once = True  # Nothing below changes the state of the run.
    run.stop.check()
    state, images = run.state, run.pipeline.images
    models.load_weights(state.model, run.output.file(runs.WEIGHTS_FILE))
    metrics = _final_metrics(run)
    record = run.record("finished", metrics)
    parameters = f"{trainable_parameters(state.model):,}, trainable"
    predictions = run.evaluation.predictions(images.test)
    run.output.write_examples(*(x[:_EXAMPLES] for x in predictions[:2]))
    write_report(
        run.output,
        record,
        state.rows,
        predictions,
        {"parameters": parameters, "data": images.description},
        print_fn=run.print_fn,
    )
    run.stop.check()
    run.output.write(record)
    _print_results(run, record.metrics)


def _final_metrics(run):
    state, best = run.state, dict(run.state.best or {})
    test = run.evaluation.metrics(run.pipeline.images.test)
    test["test_images"] = test.pop("images")
    images = state.step * run.recipe.batch_size
    bad = run.pipeline.images.test.num_images - test["test_images"]
    return {
        "best_epoch": best["epoch"],
        **test,
        **{k: v for k, v in best.items() if k.startswith("validation")},
        "bad_images": state.rows[-1]["bad_images"] + bad,
        "seconds": state.seconds,
        "images_per_second": images / max(state.training_seconds, 1e-9),
        "device": describe(run.pipeline.strategy),
    }


def _print_results(run, metrics):
    run.print_fn(
        f"\ntest accuracy: {metrics['accuracy']:.2%} of "
        f"{count(metrics['test_images'], 'test image')} (weights of epoch "
        f"{metrics['best_epoch']})\nwritten to {run.folder.path}/: "
        f"{runs.WEIGHTS_FILE}, report.md, metrics.csv, run.json"
        + (", curves.png, predictions.png" * is_there("matplotlib"))
    )
    if bad := metrics["bad_images"]:
        run.print_fn(
            f"{count(bad, 'validation or test image')} could not be read; "
            f"`lambdanet check {run.recipe.data}` names all that cannot."
        )


# How a run ends.


@contextlib.contextmanager
def _end_recorded(run):
    """Saves a run that is asked to stop, and notes in run.json how it ended."""
    try:
        try:
            yield
        except Stopped:
            if not run.stop.at_once:  # Else the last checkpoint is the state.
                run.state.tick()
                run.state.save(run.checkpoints)
            raise
    except NotFinite as error:
        kept = "No epoch was complete, so there are no weights to keep."
        if run.state.best:
            kept = (
                f"The best weights so far, of epoch {run.state.best['epoch']}, "
                f"are in {run.folder.file(runs.WEIGHTS_FILE)}."
            )
        reason = f"{error} {kept}"
        run.write("failed", {**run.former_metrics, "reason": reason})
        raise NotFinite(reason) from error
    except Stopped as error:
        run.write("stopped", run.former_metrics)
        name = config.program("train")
        command = f"python {name}" if name.endswith(".py") else name
        raise Stopped(
            f"{error} at step {run.state.step}. Resume with: {command} "
            f"--run-dir {shlex.quote(run.folder.path)}"
        ) from error
    except tf.errors.OpError as error:
        if is_lost(error):
            run.write("stopped", run.former_metrics)
        raise
