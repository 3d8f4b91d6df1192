"""What a run has reached so far, and everything it writes about it.

`train` and the callbacks of `model.fit` take their steps differently and keep
the same book.
"""

import contextlib
import time

import numpy as np
import tensorflow as tf

from lambdanet_tf.serving.run_folder import WEIGHTS_FILE
from lambdanet_tf.training import runs
from lambdanet_tf.training.checkpoints import FOLDER as CHECKPOINTS
from lambdanet_tf.training.checkpoints import Checkpoints
from lambdanet_tf.training.checkpoints import check_room
from lambdanet_tf.training.devices import describe
from lambdanet_tf.training.evaluation import Evaluation
from lambdanet_tf.training.outcome import write_outcome
from lambdanet_tf.training.stopping import check_finite


class Logbook:
    """The book of one run.

    Args:
        inputs: `Inputs` of the run.
        options: `RunOptions`.
        arguments: dict. The keyword arguments of the network's builder.
        model: `tf.keras.Model` that returns logits.
        optimizer: built `RecipeOptimizer`.
        folder: `RunFolder`. Where the run is.
        output: `RunFolder` or None. Where this process writes, if elsewhere.
        say: callable that shows a line of text.
        command: str or None. What started the run; None for the command line
            of this process.

    Attributes:
        step: int. Training steps taken.
        rows: list of dictionaries. The lines of metrics.csv.
        best: dictionary about the best epoch, or None.
        sums: array of 3. Sums over the images of the epoch so far: loss, right
            answers, images.
        seconds, training_seconds: float. Time used, evaluation included or
            not.

    Raises:
        OSError: if there is no room for the checkpoints.
    """

    def __init__(
        self,
        inputs,
        options,
        arguments,
        model,
        optimizer,
        folder,
        output=None,
        say=print,
        command=None,
    ):
        self.inputs, self.options, self.arguments = inputs, options, arguments
        self.recipe, self.images = inputs.recipe, inputs.images
        self.strategy, self.bad_images = inputs.strategy, inputs.bad_images
        self.model, self.optimizer = model, optimizer
        self.folder, self.output = folder, output or folder
        self.say, self._command = say, command
        check_room(self.output.path, model, optimizer)
        self.evaluation = Evaluation(model, inputs, self.strategy)
        self._checkpoints = Checkpoints(
            model,
            optimizer,
            read_from=self.folder.file(CHECKPOINTS),
            write_to=self.output.file(CHECKPOINTS),
        )
        self.step, self.rows, self.best = 0, [], None
        self.sums = np.zeros(3)
        self.seconds = self.training_seconds = 0.0
        self.start_clock()

    def restore(self):
        """Goes on where the newest checkpoint is, if there is one."""
        state = self._checkpoints.restore()
        if state is None:
            return
        self.step, self.rows, self.best = (
            state[name] for name in ("step", "rows", "best")
        )
        self.sums = np.array(state["sums"])
        self.seconds = state["seconds"]
        self.training_seconds = state["training_seconds"]
        self.say(f"Continuing at step {self.step}.")

    def save(self):
        """Writes a checkpoint."""
        self._elapsed()
        self._checkpoints.save(
            self.step,
            {
                "step": self.step,
                "rows": self.rows,
                "best": self.best,
                "sums": self.sums.tolist(),
                "seconds": self.seconds,
                "training_seconds": self.training_seconds,
            },
        )

    def start_clock(self):
        """The time until now is not the run's."""
        self._clock = time.perf_counter()

    def mean_loss(self):
        """The mean training loss of the epoch so far."""
        return self.sums[0] / max(self.sums[2], 1)

    def check_finite(self, loss):
        """Raises `NotFinite`, naming the good weights, if a loss is not."""
        check_finite(loss, self.step, self._what_is_kept())

    def end_epoch(self):
        """Evaluates, keeps what is best, writes the figures.

        Returns:
            The new row, a dictionary.
        """
        seconds = self._elapsed(training=True)
        loss, right, count = self.sums
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
        self.sums = np.zeros(3)
        self.output.write_metrics(self.rows)
        self.output.write_events(row)
        return row

    def finish(self):
        """Loads the best weights, tests them, writes the report."""
        self.load_best()
        write_outcome(self)

    def load_best(self):
        """Gives the model the weights of the best epoch."""
        self.model.load_weights(self.folder.file(WEIGHTS_FILE))

    def write_record(self, status, metrics=None):
        """Writes run.json and returns what it holds."""
        record = runs.make_record(
            status=status,
            recipe=self.recipe,
            options=self.options,
            images=self.images,
            arguments=self.arguments,
            metrics=metrics or {},
            started_by=self._command,
        )
        self.output.write_record(record)
        return record

    def announce(self):
        """Says what is trained, on what, and where it is written."""
        recipe = self.recipe
        self.say(
            f"{recipe.model}: {self.model.count_params():,} parameters; "
            f"{runs.keras_version()}, TensorFlow {tf.__version__}, "
            f"{describe(self.strategy)}\n{self.images.description}\n"
            f"{recipe.epochs} epochs of {self.inputs.steps_per_epoch} steps, "
            f"{recipe.batch_size} images each; run folder {self.folder.path}"
        )

    def _validate(self, epoch):
        """Evaluates with the averages; keeps the weights if they are best."""
        with self._averages():
            figures = {}
            if self.images.validation is not None:
                figures = self.evaluation.figures(
                    self.images.validation, "validation_"
                )
                del figures["validation_images"]
            self.check_finite(figures.get("validation_loss", 0.0))
            # Of equally good epochs the latest: its averages reach further.
            score = figures.get("validation_accuracy", 0.0)
            if self.best is None or score >= self.best["score"]:
                self._checkpoints.check_weights(self.step, self._what_is_kept())
                self.best = {"epoch": epoch, "score": score, **figures}
                self.output.write_weights(self.model)
        return figures

    @contextlib.contextmanager
    def _averages(self):
        """Inside, the model has the averaged weights, if there are any."""
        if not self.recipe.average_decay:
            yield
            return
        self.optimizer.swap_averages()
        try:
            yield
        finally:
            self.optimizer.swap_averages()

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


def figures_text(row):
    """The figures of an epoch in a line, for people."""
    text = f"loss {row['loss']:.4f}  accuracy {row['accuracy']:.2%}"
    if "validation_accuracy" in row:
        text += f"  validation {row['validation_accuracy']:.2%}"
    if row["bad_images"]:
        text += f"  {row['bad_images']} bad images"
    return text
