"""A training run: from a recipe to a folder with weights and a report."""

import tempfile

import tensorflow as tf

from lambdanet_tf.training import runs
from lambdanet_tf.training.devices import is_chief
from lambdanet_tf.training.devices import number_of_workers
from lambdanet_tf.training.logbook import Logbook
from lambdanet_tf.training.logbook import figures_text
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.parts import make_parts
from lambdanet_tf.training.parts import open_devices
from lambdanet_tf.training.progress import ProgressBar
from lambdanet_tf.training.steps import training_step
from lambdanet_tf.training.stopping import NotFinite
from lambdanet_tf.training.stopping import Stopped
from lambdanet_tf.training.stopping import StopRequest

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
        self.recipe, self.options = recipe, options
        self.strategy = open_devices(options)
        self.is_chief = is_chief(self.strategy)
        folder, output = self._open_folder()
        parts = make_parts(recipe, options, self.strategy)
        self.inputs = parts.inputs
        self.model, self.optimizer = parts.model, parts.optimizer
        self.book = Logbook(
            self.inputs,
            options,
            parts.arguments,
            self.model,
            self.optimizer,
            folder,
            output,
            say if self.is_chief else lambda text: None,
        )
        self._pending, self._calls, self._votes = [], 0, 0.0

    def run(self):
        """Trains, evaluates and reports; returns the `RunFolder`."""
        book = self.book
        book.restore()
        book.announce()
        book.write_record("running")
        with StopRequest() as request:
            try:
                self._train(request)
            except NotFinite as error:
                book.write_record("failed", {"reason": str(error)})
                raise
            except Stopped:
                book.write_record("stopped")
                raise
        self._barrier()
        book.finish()
        return book.folder

    def _open_folder(self):
        """The folder of the run, and the one that this process writes."""
        if self.options.run:
            folder = runs.RunFolder(self.options.run)
        else:
            folder = runs.RunFolder.make(self.options.runs)
        output = folder
        if not self.is_chief:
            output = runs.RunFolder(tempfile.mkdtemp())
        output.prove_writable()
        return folder, output

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
        book = self.book
        batches = iter(self.inputs.training(book.step))
        bar = ProgressBar(recipe.epochs, per_epoch, recipe.batch_size)
        book.start_clock()
        while book.step < recipe.epochs * per_epoch:
            steps = self._steps_until_pause()
            vote = tf.constant(float(request.received is not None))
            self._pending.append(take(batches, tf.constant(steps), vote))
            book.step += steps
            self._calls += 1
            if bar.start_once(book.step):
                self._absorb()
            if self.is_chief and bar.wants():
                self._absorb()
                bar.show(book.step, f"loss {book.mean_loss():.4f}")
            if len(self._pending) >= _CALLS_BETWEEN_CHECKS:
                self._absorb()
            if book.step % per_epoch == 0:
                self._absorb()
                row = book.end_epoch()
                if self.is_chief:
                    bar.finish_epoch(book.step, figures_text(row))
            self._maybe_save(request)

    def _steps_until_pause(self):
        """Steps of the next call: none may jump over a place to pause at."""
        steps = self.options.steps_per_execution
        for period in (
            self.inputs.steps_per_epoch,
            self.options.checkpoint_steps,
        ):
            if period:
                steps = min(steps, period - self.book.step % period)
        return steps

    def _absorb(self):
        """Reads the sums of the calls so far."""
        for sums in self._pending:
            *sums, votes = sums.numpy()
            self.book.sums += sums
            self._votes += votes
        self._pending = []
        self.book.check_finite(self.book.sums[0])

    def _maybe_save(self, request):
        per_epoch, options = self.inputs.steps_per_epoch, self.options
        periods = (
            options.checkpoint_steps,
            options.checkpoint_epochs * per_epoch,
        )
        step = self.book.step
        asked = self._asked_to_stop(request)
        if asked or any(p and step % p == 0 for p in periods):
            self._absorb()
            self.book.save()
        if asked:
            raise Stopped(
                f"Stopped by a signal at step {step}. Continue with: "
                f"python train.py --run {self.book.folder.path}"
            )

    def _asked_to_stop(self, request):
        """Whether to stop; all processes of a run say the same."""
        if number_of_workers() < 2:
            return request.received is not None
        if self._calls % _CALLS_BETWEEN_VOTES:
            return False
        self._absorb()
        return self._votes > 0

    def _barrier(self):
        """Waits for all processes: the first one may still be writing."""

        @tf.function
        def meet():
            ones = self.strategy.run(lambda: tf.constant(1.0))
            return self.strategy.reduce("sum", ones, axis=None)

        meet()
