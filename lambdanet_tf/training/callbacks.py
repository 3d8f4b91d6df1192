"""Callbacks for `model.fit`: moving averages, and the best epoch.

Both go on where `BackupAndRestore` resumes a training.
"""

import contextlib
import dataclasses
import io
import json
import os
import re
import warnings
import zipfile
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import fraction
from lambdanet_tf.files import matching
from lambdanet_tf.files import sha256_of
from lambdanet_tf.files import write_whole
from lambdanet_tf.training.averages import Averages
from lambdanet_tf.training.options import is_chief


@dataclasses.dataclass
class _Kept:
    """What a training by `fit` leaves with its model, for the next one."""

    averages: Averages
    optimizer: Any
    updates: int


_KEPT = "_lambdanet_averages"  # The attribute of the model.
_ANEW = "those in it are of other weights: they begin anew"


class UseAverages(tf.keras.callbacks.Callback):
    """Averages weights and statistics in `model.fit` and evaluates them.

    For any optimizer of Keras. The averages move after each batch. They take
    the place of the weights during validation, for callbacks further down the
    list at the end of each epoch, and for good when the training ends:

        model.fit(..., validation_data=..., callbacks=[
            tf.keras.callbacks.BackupAndRestore("backup"),  # trained weights
            training.UseAverages(0.999, backup_dir="averages"),
            training.KeepBest("best.keras"),  # averages
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
        ValueError: if `decay` is not in [0, 1); in training, if a batch makes
            several updates (`steps_per_execution`, or a `train_step` of one's
            own), or the folder has averages, but none that can be read of the
            step to resume at or an earlier one.

    Examples:
        >>> model = tf.keras.Sequential(
        ...     [tf.keras.Input((2,)), tf.keras.layers.Dense(1)]
        ... )
        >>> model.compile("sgd", "mse")
        >>> x, y = tf.zeros([4, 2]), tf.zeros([4, 1])
        >>> history = model.fit(x, y, verbose=0, callbacks=[UseAverages(0.9)])
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
        self._updates_before = _updates(model)

    def on_train_begin(self, logs: Any = None) -> None:
        self._is_training, self._is_ready, self._is_known = True, False, False
        self._paths: list[str] = []
        self._averages = None
        kept = getattr(self.model, _KEPT, None)
        if kept is None or kept.optimizer is not self.model.optimizer:
            return
        averages = kept.averages
        if kept.updates == _updates(self.model) and averages.are_in_model():
            averages.swap()
            self._is_known = True
        if bool(averages.decay) == bool(self._decay):
            self._averages = averages

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if not self._is_ready and self.model.built:
            # All callbacks have restored what they keep.
            self._begin(_updates(self.model))
        self._put_weights()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        updates = _updates(self.model)
        if not self._is_ready:  # The first batch has built the model.
            self._begin(updates)
        if updates > self._seen + 1:
            raise ValueError(
                "`steps_per_execution` must be 1 with `UseAverages`, or the "
                "`train_step` updates more than once. Received: "
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
        elif not self._is_known or getattr(model, _KEPT).updates != updates:
            self._averages.restart()
            self._is_known = False
        averages = self._averages
        averages.decay = self._decay
        setattr(model, _KEPT, _Kept(averages, model.optimizer, updates))

        @tf.function
        def update(updates):
            strategy.run(averages.update, args=(updates,))

        self._update, self._seen = update, updates
        self._restore(averages)
        self._is_ready = True

    def _put_averages(self):
        averages = self._averages
        if averages is not None and not averages.is_swapped:
            averages.swap()
            getattr(self.model, _KEPT).updates = _updates(self.model)

    def _put_weights(self):
        averages = self._averages
        if averages is None or not averages.is_swapped:
            return
        if averages.are_in_model():
            averages.swap()
        else:  # Another callback has set the weights: training goes on there.
            averages.restart()

    def _backups(self):
        """The backups by their number of updates, in order."""
        found, pattern = {}, r"averages-(\d+)\.npz"
        for path in matching(self._folder or "", "averages-*.npz"):
            if match := re.fullmatch(pattern, os.path.basename(path)):
                found[int(match[1])] = path
        return dict(sorted(found.items()))

    def _restore(self, averages):
        backups = self._backups()
        if not backups or not self._seen:
            return  # A training from the beginning.
        if self._is_known and self._seen in backups:
            return
        arrays = _read(backups.get(self._seen))
        if arrays is not None:
            if averages.set_arrays(arrays):
                self._paths.append(backups[self._seen])
            else:
                self._warn(_ANEW)
            return
        # Another callback has resumed where nothing was kept here.
        if self._seen != self._updates_before:
            older = [n for n in reversed(backups) if n < self._seen]
            for updates in older:
                arrays = _read(backups[updates])
                if arrays is None:
                    continue
                if averages.set_averages(arrays):
                    self._paths.append(backups[updates])
                    self._warn(f"those after {updates} updates are used")
                else:
                    self._warn(_ANEW)
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
        content, arrays = io.BytesIO(), self._averages.to_arrays()
        np.savez(content, **arrays)
        write_whole(path, content.getvalue())
        self._paths = [*self._paths[-1:], path]
        self._remove_backups()

    def _remove_backups(self):
        """Removes all but the last two that belong to this training."""
        for path in self._backups().values():
            if path not in self._paths:
                tf.io.gfile.remove(path)


class KeepBest(tf.keras.callbacks.ModelCheckpoint):
    """Saves the model after its best epoch; resumed, it knows how good it was.

    Keras' `ModelCheckpoint(save_best_only=True)` forgets that with the
    process: where `BackupAndRestore` resumes a training, the first epoch takes
    the place of a better one. This one notes it next to the file, in
    `<filepath>.json`, until the training ends. A training that begins anew
    begins with a new best. Killed at any moment, it leaves a whole file, and
    knows whose it is; where it is another one, a warning says so.

    Args:
        filepath: of the model, `.keras`, or of its weights, `.h5`.
        monitor: what is compared, a name of the logs.
        **arguments: of `ModelCheckpoint`, such as `mode` and
            `save_weights_only`.

    Raises:
        ValueError: if an argument contradicts saving one best epoch in a file.

    Examples:
        >>> model = tf.keras.Sequential(
        ...     [tf.keras.Input((2,)), tf.keras.layers.Dense(1)]
        ... )
        >>> model.compile("sgd", "mse")
        >>> x, y = tf.zeros([4, 2]), tf.zeros([4, 1])
        >>> keep = KeepBest("best.weights.h5", "loss", save_weights_only=True)
        >>> history = model.fit(x, y, verbose=0, callbacks=[keep])
        >>> tf.io.gfile.exists("best.weights.h5")
        True
    """

    def __init__(
        self,
        filepath: str | os.PathLike,
        monitor: str = "val_loss",
        **arguments: Any,
    ):
        for name, value in {
            "save_best_only": True,
            "save_freq": "epoch",
        }.items():
            if arguments.setdefault(name, value) != value:
                raise ValueError(
                    f"`{name}` must be {value!r}: the best epoch is kept. "
                    f"Received: {name}={arguments[name]!r}."
                )
        filepath = os.fspath(filepath)
        if "{" in filepath:
            raise ValueError(
                "`filepath` must be one path, without a field to fill in. "
                f"Received: {filepath}."
            )
        if not filepath.endswith((".keras", ".h5", ".hdf5")):
            raise ValueError(
                "`filepath` must end in .keras or .h5, which is one file: it "
                f"takes the place of the former one whole. Received: {filepath}"
            )
        # Keras' messages would name the file before it has its name.
        self._is_told = arguments.pop("verbose", 0) > 0
        super().__init__(filepath, monitor=monitor, **arguments)
        self._monitor, self._initial = monitor, self.best
        self._path, self._note = filepath, f"{filepath}.json"
        folder, name = os.path.split(filepath)
        self._unfinished = os.path.join(folder, f".new-{name}")

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        self.best, self._is_ready = self._initial, False
        self._kept: list[dict[str, Any]] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_begin(epoch, logs)
        if not self._is_ready:  # All callbacks have restored what they keep.
            self._kept = self._read()
            if self._kept:
                self.best = self._kept[0]["best"]
            self._is_ready = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        value = (logs or {}).get(self._monitor)
        if value is None:
            warnings.warn(
                f"`monitor` must be a name of the logs to keep an epoch. "
                f"Received: {self._monitor}, of {', '.join(logs or ())}.",
                stacklevel=2,
            )
        # Keras 3 would take such an epoch for the best, a first one for ever.
        if value is None or np.isnan(value):
            return
        if is_chief():
            _remove(self._unfinished)  # What a killed process left.
        before, self.filepath = self.best, self._unfinished
        try:
            super().on_epoch_end(epoch, logs)
        finally:
            self.filepath = self._path
        if not is_chief() or not tf.io.gfile.exists(self._unfinished):
            return
        if self.best != before:
            new = {
                "best": float(self.best),
                "updates": _updates(self.model),
                "checksum": sha256_of(self._unfinished),
            }
            # Both are noted while the one takes the other's place.
            files = [new, *self._kept]
            note = {"monitor": self._monitor, "files": files}
            write_whole(self._note, json.dumps(note).encode())
            self._kept = [new]
        tf.io.gfile.rename(self._unfinished, self._path, overwrite=True)
        if self._is_told:
            print(
                f"\nEpoch {epoch + 1}: {self._monitor} improved to "
                f"{self.best:.5f}, saved in {self._path}"
            )

    def on_train_end(self, logs: Any = None) -> None:
        super().on_train_end(logs)
        _remove(self._note)
        _remove(self._unfinished)

    def _read(self):
        """What is noted about the file of this training: in a list, if any."""
        try:
            with tf.io.gfile.GFile(self._note) as file:
                note = json.loads(file.read())
            now = _updates(self.model)
            noted = [f for f in note["files"] if f["updates"] <= now]
            if note["monitor"] != self._monitor:
                return []
        except (tf.errors.OpError, ValueError, KeyError, TypeError):
            return []  # There is none, or it is of an older version.
        is_there = tf.io.gfile.exists(self._path)
        checksum = sha256_of(self._path) if is_there else None
        kept = [f for f in noted if f["checksum"] == checksum]
        if noted and not kept:
            warnings.warn(
                f"{self._path} is not the file that {self._note} describes: "
                "the next epoch takes its place.",
                stacklevel=2,
            )
        return kept


def _remove(path):
    """Removes a file, if there is one."""
    with contextlib.suppress(tf.errors.NotFoundError):
        tf.io.gfile.remove(path)


def _updates(model):
    """How often the optimizer of a model has updated it."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return 0
    return int(tf.convert_to_tensor(optimizer.iterations))


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
