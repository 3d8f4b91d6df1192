"""A training run from front to back.

In this order: devices, data, model, optimizer (`set_up`), step, restore, loop,
finish (`Training`).
"""

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import environment
from lambdanet_tf import models
from lambdanet_tf import runs
from lambdanet_tf.analysis import trainable_parameters
from lambdanet_tf.training.averages import Averages
from lambdanet_tf.training.batches import InputPipeline
from lambdanet_tf.training.checkpoints import Checkpoints
from lambdanet_tf.training.distribution import create_strategy
from lambdanet_tf.training.distribution import describe
from lambdanet_tf.training.distribution import is_chief
from lambdanet_tf.training.distribution import wait_for_all
from lambdanet_tf.training.evaluation import Evaluation
from lambdanet_tf.training.network import network_arguments
from lambdanet_tf.training.network import recipe_network
from lambdanet_tf.training.optimizer import recipe_optimizer
from lambdanet_tf.training.optimizer import recipe_schedule
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import is_chief_process
from lambdanet_tf.training.options import number_of_workers
from lambdanet_tf.training.preemption import NotFinite
from lambdanet_tf.training.preemption import Stopped
from lambdanet_tf.training.preemption import StopRequest
from lambdanet_tf.training.preemption import check_finite
from lambdanet_tf.training.prerequisites import check_prerequisites
from lambdanet_tf.training.prerequisites import has_pictures
from lambdanet_tf.training.progress import Progress
from lambdanet_tf.training.progress import count
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.record import check_resumable
from lambdanet_tf.training.record import check_same_images
from lambdanet_tf.training.record import run_record
from lambdanet_tf.training.report import write_report
from lambdanet_tf.training.run_state import RunState
from lambdanet_tf.training.steps import training_step

_CALLS_BETWEEN_CHECKS = 100
_CALLS_BETWEEN_VOTES = 10

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
    epochs if the recipe has more.

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
        Stopped: if a signal asked to stop; the run can be resumed.
        NotFinite: if loss or weights became NaN or infinite.
    """
    options = options or RunOptions()
    check_prerequisites(recipe, options, print_fn=print_fn)
    if options.run_dir:
        folder = runs.RunFolder(options.run_dir)
    else:
        folder = runs.RunFolder.new(options.runs_dir)
    # Only the chief writes to the run folder.
    chief = is_chief_process()
    with folder.claim() if chief else contextlib.nullcontext():
        check_resumable(folder, recipe, print_fn)
        training = Training(recipe, options, folder, print_fn, on_epoch)
        check_same_images(folder, training.pipeline.images)
        training.restore()
        training.loop()
        return training.finish()


@dataclasses.dataclass(frozen=True)
class Setup:
    """The parts of a run.

    Attributes:
        strategy: the devices.
        pipeline: the batches, with the image set.
        arguments: of the network's builder, as JSON can hold them.
        model: returns logits.
        optimizer: built.
        averages: of the model.
    """

    strategy: tf.distribute.Strategy
    pipeline: InputPipeline
    arguments: dict[str, Any]
    model: tf.keras.Model
    optimizer: tf.keras.optimizers.Optimizer
    averages: Averages


def set_up(
    recipe: Recipe,
    options: RunOptions,
    strategy: tf.distribute.Strategy,
    load_images: Callable[..., data.ImageSet] = data.load_images,
    print_fn: PrintFn = print,
) -> Setup:
    """Creates data, model and optimizer of a run.

    Args:
        recipe: of the run.
        options: of the run.
        strategy: of `create_strategy`.
        load_images: `data.load_images`, or `data.dry_run_images`.
        print_fn: shows a line of text.

    Raises:
        ValueError: if the recipe does not fit its data, network or devices.
        ImportError: if an optional package is missing.
    """
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
    arguments = network_arguments(recipe, images)
    return Setup(strategy, pipeline, arguments, model, optimizer, averages)


class Training:
    """A run in progress; `train` is the way to use it.

    Args:
        recipe: what to compute.
        options: where and how.
        folder: of the run.
        print_fn: shows a line of text.
        on_epoch: see `train`.
    """

    def __init__(
        self,
        recipe: Recipe,
        options: RunOptions,
        folder: runs.RunFolder,
        print_fn: PrintFn = print,
        on_epoch: OnEpoch | None = None,
    ):
        self.recipe, self.options, self.folder = recipe, options, folder
        self.strategy = create_strategy(options)
        self.is_chief = is_chief(self.strategy)
        self.print_fn = print_fn if self.is_chief else lambda text: None
        self.on_epoch = on_epoch
        # Only the chief writes the run folder; the others write, and lose.
        self.output = folder
        if not self.is_chief:
            self.output = runs.RunFolder(tempfile.mkdtemp())

        resumed = tf.train.latest_checkpoint(folder.file(runs.CHECKPOINTS))
        self.setup = set_up(
            dataclasses.replace(recipe, initial_weights="")
            if resumed
            else recipe,
            options,
            self.strategy,
            print_fn=self.print_fn,
        )
        self.model, self.averages = self.setup.model, self.setup.averages
        self.pipeline = self.setup.pipeline
        with self.strategy.scope():
            self.take_steps = training_step(
                self.model,
                self.setup.optimizer,
                self.averages,
                recipe,
                options.jit_compile,
            )
            self.evaluation = Evaluation(self.model, self.pipeline)
        self.checkpoints = Checkpoints(
            self.model,
            self.setup.optimizer,
            self.averages,
            read_from=folder.file(runs.CHECKPOINTS),
            write_to=self.output.file(runs.CHECKPOINTS),
        )
        self.checkpoints.check_room()
        self.state = RunState()
        self._pending, self._calls, self._votes = [], 0, 0.0

    def restore(self) -> None:
        """Restores the newest checkpoint, if there is one."""
        recipe, per_epoch = self.recipe, self.pipeline.steps_per_epoch
        self.print_fn(
            f"{recipe.model}: {trainable_parameters(self.model):,} "
            f"trainable parameters; "
            f"{environment.keras_version()}, TensorFlow {tf.__version__}, "
            f"{describe(self.strategy)}\n{self.pipeline.images.description}\n"
            f"{count(recipe.epochs, 'epoch')} of {count(per_epoch, 'step')}, "
            f"{count(recipe.batch_size, 'image')} each; run folder "
            f"{self.folder.path}"
        )
        if recipe.warmup_epochs >= recipe.epochs:
            self.print_fn(
                f"Warning: the warm-up of {recipe.warmup_epochs:g} epochs is "
                "as long as the run: the learning rate only rises. Give a "
                "shorter --warmup-epochs."
            )
        state = self.checkpoints.restore()
        if state is not None:
            self.state = state
            self.print_fn(f"Resuming at step {state.step}.")
        self._write_run("running")

    def loop(self) -> None:
        """Takes all training steps, with an evaluation after each epoch."""
        recipe, per_epoch = self.recipe, self.pipeline.steps_per_epoch
        self.progress = Progress(recipe.epochs, per_epoch, recipe.batch_size)
        if self.is_chief:
            self.progress.announce("compiling the training step ...")
        batches = iter(self.pipeline.training(self.state.step, True))
        self._clock = time.perf_counter()
        with StopRequest() as request:
            try:
                while self.state.step < recipe.epochs * per_epoch:
                    self._take_steps(batches, request)
                    if self.state.step % per_epoch == 0:
                        self._end_epoch()
                    self._maybe_save(request)
            except NotFinite as error:
                self._write_run("failed", {"reason": str(error)})
                raise
            except Stopped:
                self._write_run("stopped")
                raise

    def finish(self) -> runs.RunFolder:
        """Tests the best weights and writes the report."""
        wait_for_all(self.strategy)  # The chief may still be writing.
        models.load_weights(self.model, self.folder.file(runs.WEIGHTS_FILE))
        images = self.pipeline.images
        metrics, bad = self._final_metrics()
        run = self._write_run("finished", metrics)
        if bad:
            self.output.write_text(runs.BAD_IMAGES_FILE, "\n".join(bad) + "\n")
        parameters = f"{trainable_parameters(self.model):,}, trainable"
        write_report(
            self.output,
            run,
            self.state.rows,
            self.evaluation.predictions(images.test),
            {"parameters": parameters, "data": images.description},
            with_pictures=has_pictures(),
        )
        self.print_fn(
            f"\ntest accuracy: {metrics['accuracy']:.2%} of "
            f"{count(metrics['test_images'], 'test image')} (weights of epoch "
            f"{metrics['best_epoch']})\nwritten to {self.folder.path}/: "
            f"{runs.WEIGHTS_FILE}, report.md, metrics.csv, run.json"
            + (", curves.png, predictions.png" if has_pictures() else "")
        )
        if bad:
            self.print_fn(
                f"{count(len(bad), 'image')} could not be read and "
                f"{'was' if len(bad) == 1 else 'were'} left out: "
                f"{self.folder.file(runs.BAD_IMAGES_FILE)}"
            )
        return self.folder

    def _take_steps(self, batches, request):
        """One call to the devices; shows how far the run is."""
        steps = self._steps_until_pause()
        self._pending.append(
            self.take_steps(
                batches,
                tf.constant(self.state.step, tf.int64),
                tf.constant(steps),
                tf.constant(float(request.received is not None)),
            )
        )
        self.state.step += steps
        self._calls += 1
        if self.progress.start_once(self.state.step):
            self._read_sums()
        if self.is_chief and self.progress.is_due():
            self._read_sums()
            loss = self.state.training_metrics()["loss"]
            self.progress.show(self.state.step, f"loss {loss:.4f}")
        if len(self._pending) >= _CALLS_BETWEEN_CHECKS:
            self._read_sums()

    def _steps_until_pause(self):
        """Steps of the next call: none may jump over a place to pause at."""
        steps = self.options.steps_per_execution
        for period in (
            self.pipeline.steps_per_epoch,
            self.options.checkpoint_steps,
        ):
            if period:
                steps = min(steps, period - self.state.step % period)
        return steps

    def _read_sums(self):
        """Reads the sums of the calls so far, which waits for the devices."""
        for sums in self._pending:
            *sums, votes = sums.numpy()
            self.state.add(sums)
            self._votes += votes
        self._pending = []
        check_finite(self.state.sums[0], self.state.step, self._what_is_kept())

    def _end_epoch(self):
        """Validates the averages, keeps the best weights, writes metrics."""
        self._read_sums()
        state = self.state
        epoch = state.step // self.pipeline.steps_per_epoch
        seconds = self._elapsed(training=True)
        schedule = recipe_schedule(self.recipe, self.pipeline.steps_per_epoch)
        validation, bad = self._validate(epoch)
        row = {
            "epoch": epoch,
            "step": state.step,
            "learning_rate": float(schedule(state.step - 1)),
            **state.training_metrics(),
            **validation,
            "images_per_second": state.sums[2] / seconds,
            "bad_images": int(state.sums[3]) + bad,
        }
        self._elapsed()
        state.end_epoch({**row, "seconds": state.seconds})
        self.output.write_metrics(state.rows)
        self.output.write_events(state.rows[-1])
        if self.is_chief:
            self.progress.end_epoch(state.step, _metrics_text(row))
        if self.on_epoch is not None:
            self.on_epoch(self.model, dict(state.rows[-1]))

    def _validate(self, epoch):
        """Evaluates the averages; keeps the weights if they are the best."""
        state, source = self.state, self.pipeline.images.validation
        with self.averages.in_model():
            metrics, bad = {}, 0
            if source is not None:
                metrics = self.evaluation.metrics(source, "validation_")
                bad = source.num_images - metrics.pop("validation_images")
            check_finite(
                metrics.get("validation_loss", 0.0),
                state.step,
                self._what_is_kept(),
            )
            if state.is_best(metrics):
                kept = self._what_is_kept()
                self.checkpoints.check_weights(state.step, kept)
                score = metrics.get("validation_accuracy", 0.0)
                state.best = {"epoch": epoch, "score": score, **metrics}
                self.output.write_weights(self.model)
        return metrics, bad

    def _maybe_save(self, request):
        """Writes a checkpoint when one is due; stops when that is asked."""
        step, options = self.state.step, self.options
        periods = (
            options.checkpoint_steps,
            options.checkpoint_epochs * self.pipeline.steps_per_epoch,
        )
        stop = self._all_stop(request)
        if stop or any(p and step % p == 0 for p in periods):
            self._read_sums()
            self._elapsed()
            self.checkpoints.save(self.state, self._what_is_kept())
        if stop:
            raise Stopped(
                f"Stopped by a signal at step {step}. Resume with: python "
                f"train.py --run-dir {self.folder.path}"
            )

    def _all_stop(self, request):
        """Whether to stop: the same in all processes, which have voted."""
        if number_of_workers() < 2:
            return request.received is not None
        if self._calls % _CALLS_BETWEEN_VOTES:
            return False
        self._read_sums()
        return self._votes > 0

    def _final_metrics(self):
        state, best = self.state, dict(self.state.best or {})
        test = self.evaluation.metrics(self.pipeline.images.test)
        test["test_images"] = test.pop("images")
        images = state.rows[-1]["step"] * self.recipe.batch_size
        bad = self._names_of_bad_images(test["test_images"])
        metrics = {
            "best_epoch": best["epoch"],
            **test,
            **{k: v for k, v in best.items() if k.startswith("validation")},
            "bad_images": len(bad),
            "seconds": state.seconds,
            "images_per_second": images / max(state.training_seconds, 1e-9),
            "device": describe(self.strategy),
        }
        return metrics, bad

    def _names_of_bad_images(self, test_images):
        """Names them, which takes a pass over all images, if there are any."""
        images = self.pipeline.images
        is_whole = images.test.num_images == test_images
        if is_whole and not any(row["bad_images"] for row in self.state.rows):
            return []
        return list(data.check_images(images)) if self.is_chief else []

    def _write_run(self, status, metrics=None):
        """Writes run.json; returns what it holds."""
        run = run_record(
            status,
            self.recipe,
            self.options,
            self.pipeline.images,
            self.setup.arguments,
            metrics or {},
        )
        self.output.write(run)
        return run

    def _what_is_kept(self):
        if self.state.best is None:
            return "No epoch was complete, so there are no weights to keep."
        return (
            f"The best weights so far, of epoch {self.state.best['epoch']}, "
            f"are in {self.folder.file(runs.WEIGHTS_FILE)}."
        )

    def _elapsed(self, training=False):
        """Adds the time since the last call; returns it."""
        now = time.perf_counter()
        seconds, self._clock = now - self._clock, now
        self.state.seconds += seconds
        if training:
            self.state.training_seconds += seconds
        return seconds


def _metrics_text(row):
    """The metrics of an epoch in a line."""
    text = f"loss {row['loss']:.4f}  accuracy {row['accuracy']:.2%}"
    if "validation_accuracy" in row:
        text += f"  validation {row['validation_accuracy']:.2%}"
    if row["bad_images"]:
        text += f"  {count(row['bad_images'], 'bad image')}"
    return text
