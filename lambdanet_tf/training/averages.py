"""Moving averages of the weights and the batch statistics of a model.

The averages in Keras' own optimizers leave out the statistics of batch
normalization, have no warm-up, and start differently in Keras 2 and Keras 3.
"""

import contextlib
import dataclasses
import io
import os
import re
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import fraction
from lambdanet_tf.environment import tf_variable
from lambdanet_tf.files import write_whole


class Averages:
    """Exponential moving averages of all weights of a model.

    Update t, from 1, moves the average a of each weight w:

        a <- d a + (1 - d) w,    d = min(decay, (1 + t) / (10 + t))

    The statistics of batch normalization are averaged like the weights; where
    replicas have statistics of their own, their mean is. Averages of float16
    and bfloat16 are float32, which small steps do not leave where they are.
    Create it in the scope of the model's strategy.

    Args:
        model: built.
        decay: the paper's recipes use 0.9999; 0 keeps no averages, and
            updating and swapping then do nothing.

    Attributes:
        weights: list of the `tf.Variable` that are averaged.
        variables: list of `tf.Variable`, their averages.

    Raises:
        ValueError: if `decay` is not in [0, 1).
    """

    def __init__(self, model: tf.keras.Model, decay: float = 0.9999):
        self._decay = fraction("decay", decay, below_one=True)
        variables = [tf_variable(weight) for weight in model.weights]
        self.weights = [v for v in variables if v.dtype.is_floating and decay]
        shared = _synchronized(model)
        self._of_replicas = [
            index
            for index, weight in enumerate(self.weights)
            if not weight.trainable and id(weight) not in shared
        ]
        self._averages = [
            tf.Variable(
                _widened(weight),
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            for weight in self.weights
        ]
        self.variables = self._averages
        self._trained: list[tf.Tensor] | None = None

    @property
    def is_swapped(self) -> bool:
        """Whether the model has been given the averages."""
        return self._trained is not None

    def update(
        self, updates: tf.Tensor | int, when: tf.Tensor | bool = True
    ) -> None:
        """Moves the averages; call it in each replica after an update.

        Args:
            updates: how many there were so far, this one included: t.
            when: False leaves everything as it is.
        """
        if not self.weights:
            return
        context = tf.distribute.get_replica_context()
        means = [_widened(self.weights[index]) for index in self._of_replicas]
        if context.num_replicas_in_sync > 1 and means:
            means = context.all_reduce("mean", means)
        statistics = dict(zip(self._of_replicas, means, strict=True))
        updates = tf.cast(updates, tf.float32)
        decay = tf.minimum(self._decay, (1.0 + updates) / (10.0 + updates))
        rate = tf.where(when, 1.0 - decay, 0.0)
        context.merge_call(self._move, args=(statistics, rate))

    def _move(self, strategy, statistics, rate):
        """Runs once for all replicas and visits the copy of each."""

        def move(average, value, rate):
            rate = tf.cast(rate, average.dtype)
            value = tf.cast(value, average.dtype)
            average.assign_sub(rate * (average - value))

        for index, weight in enumerate(self.weights):
            strategy.extended.update(
                self._averages[index],
                move,
                args=(statistics.get(index, weight), rate),
                group=False,
            )

    def swap(self) -> None:
        """Exchanges the weights and their averages; not inside a replica."""
        if self._trained is None:
            self._trained = [tf.identity(weight) for weight in self.weights]
            values = self._averages
        else:
            values, self._trained = self._trained, None
        for weight, value in zip(self.weights, values, strict=True):
            weight.assign(tf.cast(value, weight.dtype))

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Context manager: the model uses the averaged weights."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    def are_in_model(self) -> bool:
        """Returns whether the weights still are what `swap` made of them."""
        return self.is_swapped and _are_close(
            [np.asarray(tf.identity(weight)) for weight in self.weights],
            [
                np.asarray(tf.cast(average, weight.dtype))
                for average, weight in zip(
                    self._averages, self.weights, strict=True
                )
            ],
            tolerance=0.0,
        )

    def restart(self) -> None:
        """Begins anew from the weights that the model has."""
        self._trained = None
        for average, weight in zip(self._averages, self.weights, strict=True):
            average.assign(_widened(weight))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns the trained weights and their averages, for a file."""
        weights = self._trained or self.weights
        return {
            f"{kind}{index}": _widened(value).numpy()
            for kind, values in (
                ("weight", weights),
                ("average", self._averages),
            )
            for index, value in enumerate(values)
        }

    def set_arrays(self, arrays: dict[str, np.ndarray]) -> bool:
        """Sets what `to_arrays` returned; False if it is of other weights.

        The model must have these weights, or the averages in place of them:
        then it is given the weights.
        """
        numbers = range(len(self.weights))
        weights = [arrays[f"weight{index}"] for index in numbers]
        averages = [arrays[f"average{index}"] for index in numbers]
        now = [_widened(weight).numpy() for weight in self.weights]
        if not any(_are_close(now, x) for x in (weights, averages)):
            return False
        for index, weight in enumerate(self.weights):
            weight.assign(tf.cast(weights[index], weight.dtype))
            self._averages[index].assign(averages[index])
        self._trained = None
        return True

    def set_averages(self, arrays: dict[str, np.ndarray]) -> None:
        """Sets the averages that `to_arrays` returned, and no weight."""
        for index, average in enumerate(self._averages):
            average.assign(arrays[f"average{index}"])


def _widened(value):
    """A value in float32 at least."""
    value = tf.convert_to_tensor(value)
    return tf.cast(value, tf.float32) if value.dtype.size < 4 else value


def _synchronized(model):
    """Ids of statistics that replicas compute together."""
    return {
        id(tf_variable(weight))
        for layer in model._flatten_layers()
        if getattr(layer, "synchronized", False)
        for weight in layer.weights
    }


def _are_close(arrays, others, tolerance=1e-5):
    """Whether arrays are the same, but for what reading replicas rounds."""
    return all(
        np.shape(array) == np.shape(other)
        and np.allclose(
            np.asarray(array, np.float64),
            np.asarray(other, np.float64),
            rtol=tolerance,
            atol=tolerance / 1000,
            equal_nan=True,
        )
        for array, other in zip(arrays, others, strict=True)
    )


@dataclasses.dataclass
class _Kept:
    """What a training by `fit` leaves with its model, for the next one."""

    averages: Averages
    optimizer: Any
    updates: int


_KEPT = "_lambdanet_averages"  # The attribute of the model.


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

    `BackupAndRestore` stands before it, what looks at weights or keeps the
    best of them after it: `ModelCheckpoint`, `EarlyStopping`.

    A second `fit` goes on from the trained weights and their averages, also
    after one that was interrupted between two epochs. It begins from what the
    model has, and puts nothing back, if that is not what this callback left
    there: after weights were loaded or trained otherwise, after compiling
    again, or after an interruption inside an epoch.

    Args:
        decay: see `Averages`.
        backup_dir: folder of the averages of the last two epochs, to resume
            with them where `BackupAndRestore` resumes; emptied at the end of
            training. None keeps none. Where there are none of that step, older
            ones are used, and a warning says so.

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
        self._is_training = False

    def set_model(self, model: tf.keras.Model) -> None:
        super().set_model(model)
        optimizer = getattr(model, "optimizer", None)
        self._updates_before = 0 if optimizer is None else self._updates()

    def on_train_begin(self, logs: Any = None) -> None:
        self._is_training, self._is_ready, self._is_known = True, False, False
        self._paths: list[str] = []
        self._averages = None
        kept = getattr(self.model, _KEPT, None)
        if kept is None or kept.optimizer is not self.model.optimizer:
            return
        averages = kept.averages
        if kept.updates == self._updates() and averages.are_in_model():
            averages.swap()
            self._is_known = True
        if bool(averages._decay) == bool(self._decay):
            self._averages = averages

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if not self._is_ready and self.model.built:
            # All callbacks have restored what they keep.
            self._begin(self._updates())
        self._put_weights()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        updates = self._updates()
        if not self._is_ready:  # The first batch has built the model.
            self._begin(updates)
        if updates > self._seen + 1:
            raise ValueError(
                "`steps_per_execution` must be 1 with `UseAverages`. Received: "
                f"{updates - self._seen} updates in a batch."
            )
        if updates > self._seen:
            self._update(tf.constant(updates))
        self._seen = updates
        if batch + 1 == (self.params or {}).get("steps"):
            self._back_up()  # before `BackupAndRestore` does

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._back_up()
        self._put_averages()

    def on_test_begin(self, logs: Any = None) -> None:
        if self._is_training:
            self._put_averages()

    def on_test_end(self, logs: Any = None) -> None:
        if self._is_training:
            self._put_weights()

    def on_train_end(self, logs: Any = None) -> None:
        self._put_averages()
        self._paths.clear()
        self._remove_backups()
        self._is_training = False

    def _begin(self, updates):
        model = self.model
        strategy = model.distribute_strategy
        if self._averages is None:
            with strategy.scope():
                self._averages = Averages(model, self._decay)
        elif not self._is_known or self._kept().updates != updates:
            self._averages.restart()
            self._is_known = False
        averages = self._averages
        averages._decay = self._decay
        setattr(model, _KEPT, _Kept(averages, model.optimizer, updates))

        @tf.function
        def update(updates):
            strategy.run(averages.update, args=(updates,))

        self._update, self._seen = update, updates
        self._restore()
        self._is_ready = True

    def _kept(self):
        return getattr(self.model, _KEPT)

    def _put_averages(self):
        averages = self._averages
        if averages is not None and not averages.is_swapped:
            averages.swap()
            self._kept().updates = self._updates()

    def _put_weights(self):
        averages = self._averages
        if averages is None or not averages.is_swapped:
            return
        if averages.are_in_model():
            averages.swap()
        else:  # Another callback has set the weights: training goes on there.
            averages.restart()

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
            return  # A training from the beginning.
        if self._is_known and self._seen in backups:
            return
        arrays = _read(backups.get(self._seen))
        if arrays is not None:
            if self._averages.set_arrays(arrays):
                self._paths.append(backups[self._seen])
            else:
                self._warn("those in it are of other weights: they begin anew")
            return
        # Another callback has resumed where nothing was kept here.
        if self._seen != self._updates_before:
            older = [n for n in reversed(backups) if n < self._seen]
            for updates in older:
                arrays = _read(backups[updates])
                if arrays is not None:
                    self._averages.set_averages(arrays)
                    self._paths.append(backups[updates])
                    self._warn(f"those after {updates} updates are used")
                    return
        raise ValueError(
            f"`backup_dir` must hold the averages after {self._seen} "
            f"updates, where the model is. Received: {self._folder}, which "
            f"has those after {', '.join(map(str, backups))}, or damaged ones."
        )

    def _warn(self, what):
        warnings.warn(
            f"`backup_dir` {self._folder} does not hold the averages after "
            f"{self._seen} updates of this model: {what}.",
            stacklevel=2,
        )

    def _back_up(self):
        if self._folder is None or self._averages is None:
            return
        path = os.path.join(self._folder, f"averages-{self._seen}.npz")
        if path in self._paths:
            return
        tf.io.gfile.makedirs(self._folder)
        content = io.BytesIO()
        np.savez(content, **self._averages.to_arrays())
        write_whole(path, content.getvalue())
        self._paths = [*self._paths[-1:], path]
        self._remove_backups()

    def _remove_backups(self):
        """Removes all but the last two that belong to this training."""
        for path in self._backups().values():
            if path not in self._paths:
                tf.io.gfile.remove(path)


def _read(path):
    """The arrays of a backup, or None if it is not there, or damaged."""
    if path is None:
        return None
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = io.BytesIO(file.read())
        with np.load(content, allow_pickle=False) as archive:
            return dict(archive)
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile):
        return None
