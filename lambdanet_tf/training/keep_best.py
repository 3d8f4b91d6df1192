"""The best epoch of a `model.fit`, also of one that was interrupted."""

import json
import os
from typing import Any

import tensorflow as tf

from lambdanet_tf.files import write_whole


class KeepBest(tf.keras.callbacks.ModelCheckpoint):
    """Saves the model after its best epoch; resumed, it knows how good it was.

    Keras' `ModelCheckpoint(save_best_only=True)` forgets that with the
    process: where `BackupAndRestore` resumes a training, the first epoch takes
    the place of a better one. This one notes it beside the file, in
    `<filepath>.json`, until the training ends. A training that begins anew
    begins with a new best.

    Args:
        filepath: of the model, `.keras`, or of its weights.
        monitor: what is compared, a name of the logs.
        **arguments: of `ModelCheckpoint`, such as `mode` and
            `save_weights_only`.

    Raises:
        ValueError: if an argument contradicts saving one best epoch.
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
        super().__init__(filepath, monitor=monitor, **arguments)
        self._initial, self._path = self.best, f"{filepath}.json"

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        self.best, self._is_ready = self._initial, False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_begin(epoch, logs)
        if not self._is_ready:  # All callbacks have restored what they keep.
            kept = self._read()
            if kept and kept[1] <= self._updates():
                self.best, _ = kept
            self._is_ready = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        before = self.best
        super().on_epoch_end(epoch, logs)
        if self.best != before:
            note = {
                "monitor": self.monitor,
                "best": float(self.best),
                "updates": self._updates(),
            }
            write_whole(self._path, json.dumps(note).encode())

    def on_train_end(self, logs: Any = None) -> None:
        super().on_train_end(logs)
        if tf.io.gfile.exists(self._path):
            tf.io.gfile.remove(self._path)

    def _read(self):
        """The note, or None if there is none of this value, or no model."""
        if not all(
            map(tf.io.gfile.exists, (self._path, self._path[: -len(".json")]))
        ):
            return None
        try:
            with tf.io.gfile.GFile(self._path) as file:
                note = json.loads(file.read())
            kept = float(note["best"]), int(note["updates"])
        except (ValueError, KeyError, TypeError):  # cut short
            return None
        return kept if note["monitor"] == self.monitor else None

    def _updates(self):
        return int(tf.convert_to_tensor(self.model.optimizer.iterations))
