"""What `train` does, for `model.fit`: averages, a run folder, going on.

    recipe = training.resolve("digits", {"epochs": 8})
    inputs = training.Inputs(recipe, data.load_images(recipe.data))
    model = training.recipe_network(recipe, inputs.images)
    training.compile_network(model, recipe, inputs.steps_per_epoch)
    keeper = training.KeepRun("runs/notebook", inputs)
    model.fit(**keeper.fit_arguments(model))

Here the parts of `train` are put to the use of Keras' callbacks; what a run
writes, and when it stops, is decided where `train` asks, too.
"""

import contextlib

import numpy as np
import tensorflow as tf

from lambdanet_tf.environment import require
from lambdanet_tf.serving.run_folder import RUN_FILE
from lambdanet_tf.training.compiling import compiled_optimizer
from lambdanet_tf.training.continuing import check_continues
from lambdanet_tf.training.logbook import Logbook
from lambdanet_tf.training.logbook import figures_text
from lambdanet_tf.training.networks import check_network
from lambdanet_tf.training.networks import network_arguments
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.progress import ProgressBar
from lambdanet_tf.training.runs import RunFolder
from lambdanet_tf.training.stopping import NotFinite
from lambdanet_tf.training.stopping import Stopped
from lambdanet_tf.training.stopping import StopRequest


class UseAverages(tf.keras.callbacks.Callback):
    """Evaluates with the averaged weights, and leaves them in the model.

    For a model that is compiled with a `RecipeOptimizer`, and trained by
    `model.fit(..., validation_data=...)`. The averages take the place of the
    weights during each validation and after the training; if training goes
    on, also after an error or an interruption, the weights come back first.
    `KeepRun` evaluates the averages by itself; use one of the two.
    """

    def on_train_begin(self, logs=None):
        compiled_optimizer(self.model)
        self._put(averages=False)

    def on_epoch_begin(self, epoch, logs=None):
        self._put(averages=False)

    def on_test_begin(self, logs=None):
        self._put(averages=True)

    def on_test_end(self, logs=None):
        self._put(averages=False)

    def on_train_end(self, logs=None):
        self._put(averages=True)

    def _put(self, averages):
        if averages != self.model.optimizer.is_swapped:
            self.model.optimizer.swap_averages()


class KeepRun(tf.keras.callbacks.Callback):
    """Keeps a run of `model.fit` as `train` keeps its runs.

    After each epoch it evaluates the averaged weights on the validation
    images, writes metrics.csv, the events for TensorBoard and a checkpoint,
    and keeps the weights if they are the best so far. After the last one the
    model gets the best weights, which are tested; report, pictures and
    run.json are written, and export.py takes the folder as it is.

    The figures of the validation and the images per second join the logs of
    the epoch, for callbacks that come later and for the history.

    SIGTERM, Ctrl-C and the button that interrupts a notebook end the step and
    raise `Stopped`; a loss that is not a number raises `NotFinite`, which
    names the good weights. The same cells run again go on after the last
    epoch that is in a checkpoint.

    Args:
        folder: str. The run folder. If it holds a run, that is continued.
        inputs: `Inputs` that the model is trained with.
        checkpoint_epochs: int. Epochs between checkpoints.
        say: callable that shows a line of text.

    Raises:
        ImportError: if matplotlib is missing.
        OSError: if the folder cannot be written.
        ValueError: if the folder holds a run of another recipe or Keras, or
            one that failed.
    """

    def __init__(self, folder, inputs, checkpoint_epochs=1, say=print):
        super().__init__()
        require("matplotlib.figure", extra="plot")
        self.folder, self.inputs = RunFolder(folder), inputs
        self._options = RunOptions(
            run=str(folder), checkpoint_epochs=checkpoint_epochs
        )
        self._say = say
        self._book = self._of_model = None
        self._request = StopRequest()
        if self.folder.exists(RUN_FILE):
            record = self.folder.read_record()
            check_continues(record, inputs.recipe, str(folder))
        self.folder.prove_writable()

    def resume(self, model):
        """Gives a model the state of the last checkpoint, if there is one.

        Args:
            model: `tf.keras.Model` of the recipe, compiled with a
                `RecipeOptimizer`.

        Returns:
            The number of epochs that are done: `initial_epoch` of `fit`.

        Raises:
            ValueError: if the model is not that of the recipe, does not fit
                the checkpoint, or was trained and there is none.
        """
        arguments = network_arguments(self.inputs.recipe, self.inputs.images)
        check_network(model, self.inputs.recipe.model, arguments)
        optimizer = compiled_optimizer(model)
        optimizer.build(model.trainable_variables)
        self._of_model = model
        # The same layers, not compiled: tf_keras puts a compiled model's
        # optimiser and metrics into its files, and cannot read them again
        # under several replicas.
        with self.inputs.strategy.scope():
            bare = tf.keras.Model(model.inputs, model.outputs, name=model.name)
        self._book = Logbook(
            self.inputs,
            self._options,
            arguments,
            bare,
            optimizer,
            self.folder,
            say=self._say,
            command="model.fit",
        )
        self._book.restore()
        taken = int(tf.convert_to_tensor(optimizer.iterations))
        if taken != self._book.step:
            raise ValueError(
                f"The model has taken {taken} steps, and {self.folder.path} "
                f"holds {self._book.step}. Build and compile the model anew."
            )
        return self._book.step // self.inputs.steps_per_epoch

    def fit_arguments(self, model):
        """The keyword arguments of `model.fit`, after `resume`.

        Args:
            model: as for `resume`.

        Returns:
            A dictionary: x, shuffle (False: the batches are shuffled), epochs,
            initial_epoch, steps_per_epoch, callbacks (this one) and verbose
            (0: the run has a progress line of its own).
        """
        first = self.resume(model)
        per_epoch = self.inputs.steps_per_epoch
        return {
            "x": self.inputs.training(first * per_epoch),
            "shuffle": False,
            "epochs": self.inputs.recipe.epochs,
            "initial_epoch": first,
            "steps_per_epoch": per_epoch,
            "callbacks": [self],
            "verbose": 0,
        }

    def on_train_begin(self, logs=None):
        if self._of_model is not self.model:
            self.resume(self.model)
        recipe = self.inputs.recipe
        self._bar = ProgressBar(
            recipe.epochs, self.inputs.steps_per_epoch, recipe.batch_size
        )
        self._book.announce()
        self._book.write_record("running")
        self._book.start_clock()
        self._request.__exit__()  # Where an error ended the last training.
        self._request = StopRequest()
        self._request.__enter__()

    def on_epoch_begin(self, epoch, logs=None):
        done = self._book.step // self.inputs.steps_per_epoch
        if epoch != done:
            self._request.__exit__()
            raise ValueError(
                f"`initial_epoch` must be {done}, what `resume(model)` "
                f"returns. Received: {epoch}."
            )

    def on_train_batch_end(self, batch, logs=None):
        book, per_epoch = self._book, self.inputs.steps_per_epoch
        epoch = len(book.rows)
        book.step = epoch * per_epoch + batch + 1
        count = (batch + 1) * self.inputs.recipe.batch_size
        book.sums = count * np.array([logs["loss"], logs["accuracy"], 1.0])
        self._bar.start_once(book.step)
        with self._noting_the_end():
            book.check_finite(book.sums[0])
            if self._request.received and batch + 1 < per_epoch:
                self._stop(epoch)
        if self._bar.wants():
            self._bar.show(book.step, f"loss {book.mean_loss():.4f}")

    def on_epoch_end(self, epoch, logs=None):
        book = self._book
        with self._noting_the_end():
            row = book.end_epoch()
            names = ("validation_loss", "validation_accuracy")
            names += ("validation_top5_accuracy", "images_per_second")
            logs.update({name: row[name] for name in names if name in row})
            self._bar.finish_epoch(book.step, figures_text(row))
            asked = self._request.received is not None
            is_last = epoch + 1 == self.inputs.recipe.epochs
            due = (epoch + 1) % self._options.checkpoint_epochs == 0
            if asked or is_last or due:
                book.save()
            if asked:
                self._stop(epoch + 1)

    def on_train_end(self, logs=None):
        self._request.__exit__()
        self._book.finish()

    def _stop(self, epochs):
        raise Stopped(
            f"Stopped by a signal at step {self._book.step}. Run the same "
            "cells again to go on after the last saved epoch, at most "
            f"{epochs}: model.fit(**keeper.fit_arguments(model))."
        )

    @contextlib.contextmanager
    def _noting_the_end(self):
        """Writes into run.json how the training ended, if it ends here."""
        try:
            yield
        except NotFinite as error:
            self._book.write_record("failed", {"reason": str(error)})
            self._request.__exit__()
            raise
        except Stopped:
            self._book.write_record("stopped")
            self._request.__exit__()
            raise
