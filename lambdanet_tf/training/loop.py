"""A training run: from a recipe to a folder with weights and a report."""

import tempfile
import time

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.data.extras import require
from lambdanet_tf.serving.run_folder import WEIGHTS_FILE
from lambdanet_tf.training import runs
from lambdanet_tf.training.checkpoints import FOLDER as CHECKPOINTS
from lambdanet_tf.training.checkpoints import Checkpoints
from lambdanet_tf.training.checkpoints import check_room
from lambdanet_tf.training.devices import describe
from lambdanet_tf.training.devices import is_chief
from lambdanet_tf.training.devices import make_strategy
from lambdanet_tf.training.devices import number_of_workers
from lambdanet_tf.training.evaluation import Evaluation
from lambdanet_tf.training.inputs import Inputs
from lambdanet_tf.training.networks import build_network
from lambdanet_tf.training.networks import network_arguments
from lambdanet_tf.training.networks import set_precision
from lambdanet_tf.training.optimisation import recipe_optimizer
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.outcome import write_outcome
from lambdanet_tf.training.progress import ProgressBar
from lambdanet_tf.training.steps import training_step
from lambdanet_tf.training.stopping import NotFinite
from lambdanet_tf.training.stopping import Stopped
from lambdanet_tf.training.stopping import StopRequest
from lambdanet_tf.training.stopping import check_finite

_CALLS_BETWEEN_CHECKS = 100
_CALLS_BETWEEN_VOTES = 10


def train(recipe, options=None, say=print):
    """Trains a recipe's network and writes its run folder.

    Args:
        recipe: `Recipe`.
        options: `RunOptions` or None.
        say: callable that shows a line of text.

    Returns:
        The `RunFolder` of the finished run.

    Raises:
        ValueError: if the recipe does not fit its data, network or devices.
        ImportError: if an optional package is missing.
        OSError: if the run folder cannot be written.
        Stopped: if a signal asked to stop; the run can be continued.
        NotFinite: if the loss is no longer a number.
    """
    return Training(recipe, options or RunOptions(), say).run()


class Training:
    """One run in progress; `train` is the way to use it.

    Args:
        recipe: `Recipe`.
        options: `RunOptions`.
        say: callable that shows a line of text.
    """

    def __init__(self, recipe, options, say=print):
        require("matplotlib.figure", extra="plot")
        self.recipe, self.options = recipe, options
        if options.deterministic:
            tf.config.experimental.enable_op_determinism()
        self.strategy = make_strategy(options)
        self.is_chief = is_chief(self.strategy)
        self.say = say if self.is_chief else lambda text: None
        self.folder = self._open_folder()
        self.bad_images = data.BadImages()
        self.images = data.load_images(
            recipe.data,
            recipe.holdout,
            options.data_dir or None,
            recipe.shuffle_buffer,
        )
        self.inputs = Inputs(
            recipe, self.images, self.strategy, self.bad_images
        )
        self._build()
        self.step, self.rows, self.best = 0, [], None
        self.seconds = self.training_seconds = 0.0
        self._epoch_sums, self._pending = np.zeros(3), []
        self._calls, self._votes = 0, 0.0

    def run(self):
        """Trains, evaluates and reports; returns the `RunFolder`."""
        self._restore()
        self._announce()
        self.write_record("running")
        with StopRequest() as request:
            try:
                self._train(request)
            except NotFinite as error:
                self.write_record("failed", {"reason": str(error)})
                raise
            except Stopped:
                self.write_record("stopped")
                raise
        self._barrier()
        self.model.load_weights(self.folder.file(WEIGHTS_FILE))
        write_outcome(self)
        return self.folder

    def write_record(self, status, metrics=None):
        """Writes run.json and returns what it holds."""
        record = runs.make_record(
            status=status,
            recipe=self.recipe,
            options=self.options,
            images=self.images,
            arguments=self.arguments,
            metrics=metrics or {},
        )
        self._output.write_record(record)
        return record

    @property
    def output(self):
        """The folder that this process writes: the run's, or a scratch one."""
        return self._output

    def _open_folder(self):
        options = self.options
        if options.run:
            folder = runs.RunFolder(options.run)
        elif number_of_workers() > 1:
            raise ValueError(
                "Several processes need one folder that all can read: --run."
            )
        else:
            folder = runs.RunFolder.make(options.runs)
        self._output = folder
        if not self.is_chief:
            self._output = runs.RunFolder(tempfile.mkdtemp())
        self._output.prove_writable()
        return folder

    def _build(self):
        recipe = self.recipe
        tf.keras.utils.set_random_seed(recipe.seed)
        set_precision(recipe.precision)
        self.arguments = network_arguments(recipe, self.images)
        many = self.strategy.num_replicas_in_sync > 1
        with self.strategy.scope():
            self.model = build_network(recipe.model, self.arguments, many)
            self.optimizer = recipe_optimizer(
                recipe, self.inputs.steps_per_epoch
            ).attach(self.model)
            self.optimizer.build(self.model.trainable_variables)
        check_room(self._output.path, self.model, self.optimizer)
        self.evaluation = Evaluation(self.model, self.inputs, self.strategy)
        self.checkpoints = Checkpoints(
            self.model,
            self.optimizer,
            read_from=self.folder.file(CHECKPOINTS),
            write_to=self._output.file(CHECKPOINTS),
        )

    def _train(self, request):
        recipe, per_epoch = self.recipe, self.inputs.steps_per_epoch
        take = training_step(
            self.model,
            self.optimizer,
            self.strategy,
            recipe.batch_size,
            recipe.label_smoothing,
            recipe.seed,
            self.options.jit_compile,
        )
        batches = iter(self.inputs.training(self.step))
        bar = ProgressBar(recipe.epochs, per_epoch, recipe.batch_size)
        self._clock = time.perf_counter()
        while self.step < recipe.epochs * per_epoch:
            steps = self._steps_until_pause()
            vote = tf.constant(float(request.received is not None))
            self._pending.append(take(batches, tf.constant(steps), vote))
            self.step += steps
            self._calls += 1
            if bar.start_once(self.step):
                self._absorb()
            if self.is_chief and bar.wants():
                self._absorb()
                bar.show(self.step, f"loss {self._mean_loss():.4f}")
            if len(self._pending) >= _CALLS_BETWEEN_CHECKS:
                self._absorb()
            if self.step % per_epoch == 0:
                self._end_epoch(bar)
            self._maybe_save(request)

    def _steps_until_pause(self):
        """Steps of the next call: none may jump over a place to pause at."""
        steps = self.options.steps_per_execution
        for period in (
            self.inputs.steps_per_epoch,
            self.options.checkpoint_steps,
        ):
            if period:
                steps = min(steps, period - self.step % period)
        return steps

    def _absorb(self):
        """Reads the sums of the calls so far."""
        for sums in self._pending:
            *sums, votes = sums.numpy()
            self._epoch_sums += sums
            self._votes += votes
        self._pending = []
        check_finite(self._epoch_sums[0], self.step, self._what_is_kept())

    def _mean_loss(self):
        return self._epoch_sums[0] / max(self._epoch_sums[2], 1)

    def _end_epoch(self, bar):
        self._absorb()
        seconds = self._elapsed(training=True)
        loss, right, count = self._epoch_sums
        epoch = self.step // self.inputs.steps_per_epoch
        update = self.step // self.recipe.accumulation
        row = {
            "epoch": epoch,
            "step": self.step,
            "learning_rate": float(self.optimizer.rate(float(update - 1))),
            "loss": float(loss / count),
            "accuracy": float(right / count),
            **self._validate(epoch),
            "images_per_second": float(count / seconds),
            "bad_images": len(self.bad_images.names()),
        }
        self._elapsed()
        row["seconds"] = self.seconds
        self.rows.append(row)
        self._epoch_sums = np.zeros(3)
        self._output.write_metrics(self.rows)
        self._output.write_events(row)
        if self.is_chief:
            bar.finish_epoch(self.step, _figures(row))

    def _validate(self, epoch):
        """Evaluates with the averages; keeps the weights if they are best."""
        self._swap()
        figures = {}
        if self.images.validation is not None:
            figures = self.evaluation.figures(
                self.images.validation, "validation_"
            )
            del figures["validation_images"]
        check_finite(
            figures.get("validation_loss", 0.0), self.step, self._what_is_kept()
        )
        # Of equally good epochs the latest: its averages reach further.
        score = figures.get("validation_accuracy", 0.0)
        if self.best is None or score >= self.best["score"]:
            self.best = {"epoch": epoch, "score": score, **figures}
            self._output.write_weights(self.model)
        self._swap()
        return figures

    def _swap(self):
        if self.recipe.average_decay:
            self.optimizer.swap_averages()

    def _maybe_save(self, request):
        per_epoch, options = self.inputs.steps_per_epoch, self.options
        periods = (
            options.checkpoint_steps,
            options.checkpoint_epochs * per_epoch,
        )
        asked = self._asked_to_stop(request)
        if asked or any(p and self.step % p == 0 for p in periods):
            self._save()
        if asked:
            raise Stopped(
                f"Stopped by a signal at step {self.step}. Continue with: "
                f"python train.py --run {self.folder.path}"
            )

    def _asked_to_stop(self, request):
        """Whether to stop; all processes of a run say the same."""
        if number_of_workers() < 2:
            return request.received is not None
        if self._calls % _CALLS_BETWEEN_VOTES:
            return False
        self._absorb()
        return self._votes > 0

    def _save(self):
        self._absorb()
        self._elapsed()
        self.checkpoints.save(
            self.step,
            {
                "step": self.step,
                "rows": self.rows,
                "best": self.best,
                "sums": self._epoch_sums.tolist(),
                "seconds": self.seconds,
                "training_seconds": self.training_seconds,
            },
        )

    def _restore(self):
        state = self.checkpoints.restore()
        if state is None:
            return
        self.step, self.rows, self.best = (
            state[name] for name in ("step", "rows", "best")
        )
        self._epoch_sums = np.array(state["sums"])
        self.seconds = state["seconds"]
        self.training_seconds = state["training_seconds"]
        self.say(f"Continuing at step {self.step}.")

    def _elapsed(self, training=False):
        """Adds the time since the last call; returns it."""
        now = time.perf_counter()
        seconds, self._clock = now - self._clock, now
        self.seconds += seconds
        if training:
            self.training_seconds += seconds
        return seconds

    def _what_is_kept(self):
        if self.best is None:
            return "No epoch was complete, so there are no weights to keep."
        return (
            f"The best weights so far, of epoch {self.best['epoch']}, are in "
            f"{self.folder.file(WEIGHTS_FILE)}."
        )

    def _barrier(self):
        """Waits for all processes: the first one may still be writing."""

        @tf.function
        def meet():
            ones = self.strategy.run(lambda: tf.constant(1.0))
            return self.strategy.reduce("sum", ones, axis=None)

        meet()

    def _announce(self):
        recipe = self.recipe
        self.say(
            f"{recipe.model}: {self.model.count_params():,} parameters; "
            f"{runs.keras_version()}, TensorFlow {tf.__version__}, "
            f"{describe(self.strategy)}\n{self.images.description}\n"
            f"{recipe.epochs} epochs of {self.inputs.steps_per_epoch} steps, "
            f"{recipe.batch_size} images each; run folder {self.folder.path}"
        )


def _figures(row):
    text = f"loss {row['loss']:.4f}  accuracy {row['accuracy']:.2%}"
    if "validation_accuracy" in row:
        text += f"  validation {row['validation_accuracy']:.2%}"
    if row["bad_images"]:
        text += f"  {row['bad_images']} bad images"
    return text
