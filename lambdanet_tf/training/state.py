"""The state of a run, and its checkpoints."""

import json
import math
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf.arguments import UserError
from lambdanet_tf.environment import tf_variable
from lambdanet_tf.training.optimizer import Averages
from lambdanet_tf.training.options import NotFinite

_FIELDS = "step", "sums", "rows", "best", "seconds", "epoch_seconds"
# TensorFlow's errors if files are missing, cut off or have other weights.
_DAMAGE = AssertionError, ValueError, IndexError, RuntimeError


class TrainState:
    """The state of a run, in one `tf.train.Checkpoint`.

    Attributes:
        step: number of training steps taken.
        sums: float64 tensor, the sums of loss, accuracy and 1 over the epoch's
            images. Reading it waits for the devices.
        rows: the rows of metrics.csv, one per epoch.
        best: the row of the best epoch; None before the first.
        best_weights: the file of its weights, as bytes.
        seconds: time used, with evaluation and saving.
        epoch_seconds: time of the training steps in this epoch.

    `model`, `optimizer` and `averages` are attributes, too.
    """

    def __init__(
        self,
        model: tf.keras.Model,
        optimizer: tf.keras.optimizers.Optimizer,
        averages: Averages,
    ):
        self.model, self.optimizer, self.averages = model, optimizer, averages
        self.step, self.sums = 0, tf.zeros([3], tf.float64)
        self.rows: list[dict[str, Any]] = []
        self.best: dict[str, Any] | None = None
        self.best_weights = b""
        self.seconds = self.epoch_seconds = 0.0
        self._last_tick = time.perf_counter()
        with model.distribute_strategy.scope():
            optimizer.build(model.trainable_variables)
        weights = models.named_weights(model)
        self._weights = {name: tf_variable(w) for name, w in weights.items()}
        self._progress = tf.Variable("", trainable=False)
        self._best_weights = tf.Variable("", trainable=False)
        self._checkpoint = tf.train.Checkpoint(
            weights=self._weights,
            optimizer=optimizer,
            averages=averages.variables,
            progress=self._progress,
            best_weights=self._best_weights,
        )
        self._saved: tuple[int, int] | None = None

    # Training.

    def add(self, sums: tf.Tensor, steps: int) -> None:
        """Adds training steps and their sums, the result of `training_step`."""
        self.sums += tf.cast(sums, tf.float64)
        self.step += steps

    def tick(self, training: bool = False) -> None:
        """Adds the time since the last call, for training steps or others."""
        now = time.perf_counter()
        elapsed, self._last_tick = now - self._last_tick, now
        self.seconds += elapsed
        self.epoch_seconds += elapsed * training

    def training_metrics(self) -> dict[str, float]:
        """Returns mean loss and accuracy of the epoch so far."""
        loss, right, count = self.sums.numpy().tolist()
        return {"loss": loss / max(count, 1), "accuracy": right / max(count, 1)}

    def is_best(self, metrics: Mapping[str, float]) -> bool:
        """Returns whether no earlier epoch was better."""
        best, score = self.best, "validation_accuracy"
        return not best or metrics.get(score, 0.0) >= best.get(score, 0.0)

    def end_epoch(self, row: dict[str, Any], weights: bytes = b"") -> None:
        """Adds the row of an epoch, and its weights if they are the best."""
        self.rows.append(row)
        self.sums, self.epoch_seconds = tf.zeros_like(self.sums), 0.0
        if weights:
            self.best, self.best_weights = row, weights

    def check_weights(self) -> None:
        """Raises `NotFinite` unless all weights of the model are finite.

        On a CPU, ReLU maps NaN to 0, so the loss can hide NaN weights.
        """
        check_finite(float(self._sum()), self.step)

    @tf.function
    def _sum(self):
        """Returns NaN if any weight is NaN or infinite, else 0."""
        weights = self._weights.values()
        return tf.add_n(
            [tf.reduce_sum(0.0 * tf.cast(w, tf.float32)) for w in weights]
        )

    # Checkpoints.

    def save(self, folder: str) -> None:
        """Writes a checkpoint, unless this state is already written.

        It keeps two checkpoints. All workers of a run must call it, each with
        its own folder, because they may have to read weights together. It never
        writes weights that are not finite.
        """
        self.check_weights()
        now = self.step, len(self.rows)
        if now == self._saved:
            return
        fields = {name: getattr(self, name) for name in _FIELDS}
        fields["sums"] = self.sums.numpy().tolist()
        self._progress.assign(json.dumps(fields))
        self._best_weights.assign(self.best_weights)
        manager = tf.train.CheckpointManager(self._checkpoint, folder, 2)
        manager.save()
        self._saved = now

    def restore(self, path: str) -> None:
        """Restores a checkpoint; raises a ValueError if it does not fit."""
        try:
            self._checkpoint.restore(path).assert_consumed()
            fields = json.loads(self._progress.numpy())
        except (*_DAMAGE, tf.errors.OpError) as error:
            raise UserError(
                f"The checkpoint {path} cannot be read: {error} Restore its "
                "files, or start a run in another folder."
            ) from error
        for name in _FIELDS:
            setattr(self, name, fields[name])
        self.sums = tf.constant(self.sums, tf.float64)
        self.best_weights = bytes(self._best_weights.numpy())
        self._saved = self.step, len(self.rows)
        self._last_tick = time.perf_counter()


def newest_checkpoint(folder: str) -> str:
    """Returns the path of the last checkpoint of a folder, or ""."""
    state = tf.train.get_checkpoint_state(folder)
    return state.model_checkpoint_path if state else ""


def check_finite(value: float, step: int) -> None:
    """Raises `NotFinite` unless a loss is finite."""
    if not math.isfinite(value):
        raise NotFinite(
            f"The loss or a weight became {value} by step {step}. Try a lower "
            "learning rate, a longer warm-up or --global-clipnorm."
        )
