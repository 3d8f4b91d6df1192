"""Moving averages of the weights and the batch statistics of a model.

The averages in Keras' own optimizers leave out the statistics of batch
normalization, have no warm-up, and start differently in Keras 2 and Keras 3.
"""

import contextlib
import io
import os
import re
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import fraction
from lambdanet_tf.environment import tf_variable

_KEPT_BACKUPS = 2


class Averages:
    """Exponential moving averages of all weights of a model.

    Update t, from 1, moves the average a of each weight w:

        a <- d a + (1 - d) w,    d = min(decay, (1 + t) / (10 + t))

    The statistics of batch normalization are averaged like the weights; where
    replicas have statistics of their own, their mean is. Create it in the scope
    of the model's strategy.

    Args:
        model: built.
        decay: the paper's recipes use 0.9999; 0 keeps no averages, and
            updating and swapping then do nothing.

    Attributes:
        variables: list of `tf.Variable`. What a checkpoint must hold.
        is_swapped: whether the model has the averages now.

    Raises:
        ValueError: if `decay` is not in [0, 1).
    """

    def __init__(self, model: tf.keras.Model, decay: float = 0.9999):
        self._decay = fraction("decay", decay, below_one=True)
        variables = [tf_variable(weight) for weight in model.weights]
        self._weights = [v for v in variables if v.dtype.is_floating and decay]
        self._averages = [
            tf.Variable(
                tf.convert_to_tensor(weight),
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            for weight in self._weights
        ]
        self.variables = self._averages
        self.is_swapped = False

    def update(
        self, updates: tf.Tensor | int, when: tf.Tensor | bool = True
    ) -> None:
        """Moves the averages; call it in each replica after an update.

        Args:
            updates: how many there were so far, this one included: t.
            when: False leaves everything as it is.
        """
        if not self._weights:
            return
        context = tf.distribute.get_replica_context()
        statistics = {
            index: tf.identity(weight)
            for index, weight in enumerate(self._weights)
            if not weight.trainable
        }
        if context.num_replicas_in_sync > 1 and statistics:
            means = context.all_reduce("mean", list(statistics.values()))
            statistics = dict(zip(statistics, means, strict=True))
        updates = tf.cast(updates, tf.float32)
        decay = tf.minimum(self._decay, (1.0 + updates) / (10.0 + updates))
        rate = tf.where(when, 1.0 - decay, 0.0)
        context.merge_call(self._move, args=(statistics, rate))

    def _move(self, strategy, statistics, rate):
        """Runs once for all replicas and visits the copy of each."""

        def move(average, value, rate):
            average.assign_sub(rate * (average - value))

        for index, weight in enumerate(self._weights):
            strategy.extended.update(
                self._averages[index],
                move,
                args=(statistics.get(index, weight), rate),
                group=False,
            )

    def swap(self) -> None:
        """Exchanges the weights and their averages; not inside a replica."""
        for average, weight in zip(self._averages, self._weights, strict=True):
            value = tf.identity(weight)
            weight.assign(average)
            average.assign(value)
        self.is_swapped = not self.is_swapped

    @contextlib.contextmanager
    def in_model(self) -> Iterator[None]:
        """Inside, the model has the averages."""
        self.swap()
        try:
            yield
        finally:
            self.swap()


# The averages of a model that is trained by `fit`, by its optimizer: to go on
# with another callback goes on with them, to compile anew begins anew.
_BY_OPTIMIZER = weakref.WeakKeyDictionary()


class UseAverages(tf.keras.callbacks.Callback):
    """Averages weights and statistics in `model.fit` and evaluates them.

    For any optimizer of Keras. The averages move after each batch. They take
    the place of the weights during validation, for callbacks further down the
    list at the end of each epoch, and for good when the training ends:

        model.fit(..., validation_data=..., callbacks=[
            tf.keras.callbacks.BackupAndRestore("backup"),  # trained weights
            training.UseAverages(0.999, backup_dir="averages"),
            tf.keras.callbacks.ModelCheckpoint("best.keras", ...),  # averages
        ])

    A second `fit` goes on from the weights, also after one that was
    interrupted; after compiling again it begins from what the model has.

    Args:
        decay: see `Averages`.
        backup_dir: folder of the averages of the last two epochs, to resume
            with them where `BackupAndRestore` resumes; emptied at the end of
            training. None keeps none.

    Raises:
        ValueError: if `decay` is not in [0, 1); in training, if a batch takes
            several steps (`steps_per_execution`), or the folder has averages,
            but none of the step to resume at.
    """

    def __init__(
        self,
        decay: float = 0.9999,
        backup_dir: str | os.PathLike | None = None,
    ):
        super().__init__()
        self._decay = fraction("decay", decay, below_one=True)
        self._folder = None if backup_dir is None else os.fspath(backup_dir)
        self._averages: Averages | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self._averages = _BY_OPTIMIZER.get(self.model.optimizer)
        self._put(averages=False)
        self._is_ready = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if not self._is_ready:  # All callbacks have restored what they keep.
            self._begin()
        self._put(averages=False)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        updates = self._updates()
        if updates > self._seen + 1:
            raise ValueError(
                "`steps_per_execution` must be 1 with `UseAverages`. Received: "
                f"{updates - self._seen} updates in a batch."
            )
        if updates > self._seen:
            self._update(tf.constant(updates))
        self._seen = updates

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._put(averages=True)
        if self._folder is not None:
            tf.io.gfile.makedirs(self._folder)
            name = f"averages-{self._seen}.npz"
            self._save(os.path.join(self._folder, name))
            self._remove_backups(_KEPT_BACKUPS)

    def on_test_begin(self, logs: Any = None) -> None:
        self._put(averages=True)

    def on_test_end(self, logs: Any = None) -> None:
        self._put(averages=False)

    def on_train_end(self, logs: Any = None) -> None:
        self._put(averages=True)
        self._remove_backups(0)

    def _begin(self):
        model = self.model
        strategy = model.distribute_strategy
        if self._averages is None:
            with strategy.scope():
                self._averages = Averages(model, self._decay)
            _BY_OPTIMIZER[model.optimizer] = self._averages
        averages = self._averages

        @tf.function
        def update(updates):
            strategy.run(averages.update, args=(updates,))

        self._update, self._seen = update, self._updates()
        self._restore()
        self._is_ready = True

    def _put(self, averages):
        ours = self._averages
        if ours is not None and ours.is_swapped != averages:
            ours.swap()

    def _updates(self):
        return int(tf.convert_to_tensor(self.model.optimizer.iterations))

    def _backups(self):
        """The backups by their number of updates, in order."""
        found = {}
        if self._folder is not None and tf.io.gfile.isdir(self._folder):
            for name in tf.io.gfile.listdir(self._folder):
                match = re.fullmatch(r"averages-(\d+)\.npz", name)
                if match:
                    found[int(match[1])] = os.path.join(self._folder, name)
        return dict(sorted(found.items()))

    def _restore(self):
        backups = self._backups()
        if not backups or not self._seen:
            return
        if self._seen not in backups:
            raise ValueError(
                f"`backup_dir` must hold the averages after {self._seen} "
                f"updates, where the model is. Received: {self._folder}, which "
                f"has those after {', '.join(map(str, backups))}."
            )
        with tf.io.gfile.GFile(backups[self._seen], "rb") as file:
            arrays = np.load(io.BytesIO(file.read()))
        weights = [arrays[name] for name in arrays.files]
        with self._averages.in_model():
            self.model.set_weights(weights)

    def _save(self, path):
        """Writes the model's weights in their order: names can change."""
        content = io.BytesIO()
        np.savez(content, *self.model.get_weights())
        with tf.io.gfile.GFile(f"{path}.partial", "wb") as file:
            file.write(content.getvalue())
        tf.io.gfile.rename(f"{path}.partial", path, overwrite=True)

    def _remove_backups(self, kept):
        paths = list(self._backups().values())
        for path in paths[: len(paths) - kept]:
            tf.io.gfile.remove(path)
