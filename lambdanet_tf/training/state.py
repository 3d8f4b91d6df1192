"""The state of a run: all that it has reached, and its checkpoints.

A checkpoint holds every weight by its name, so that it belongs to the network
and not to the order in which some version of the package builds it.
"""

import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lambdanet_tf import __version__
from lambdanet_tf import models
from lambdanet_tf.arguments import UserError
from lambdanet_tf.environment import tf_variable
from lambdanet_tf.files import FileError
from lambdanet_tf.files import matching
from lambdanet_tf.files import reason
from lambdanet_tf.training.averages import Averages
from lambdanet_tf.training.options import NotFinite

_MAX_TO_KEEP = 2
_NAME = re.compile(r"ckpt-(\d+)(?:-(\d+))?\.(?:index|data-.*)")
_PROGRESS = "progress/.ATTRIBUTES/VARIABLE_VALUE"
# What TensorFlow raises where a checkpoint is cut short, changed or gone.
_DAMAGE = (tf.errors.OpError, IndexError, RuntimeError, json.JSONDecodeError)
_FIELDS = (
    "step",
    "sums",
    "rows",
    "best",
    "seconds",
    "training_seconds",
    "epoch_seconds",
)


class TrainState:
    """All that a run has reached.

    A checkpoint holds it as one unit, the best weights included: a process that
    is killed while writing leaves the checkpoint before valid.

    Args:
        model: built.
        optimizer: of `recipe_optimizer`.
        averages: of the model.

    Attributes:
        step: training steps taken.
        rows: the lines of metrics.csv, one for each epoch.
        best: epoch, score and validation metrics of the best epoch; None
            before the first.
        best_weights: the file of its weights, as bytes.
        seconds: time used, evaluation and saving included.
        training_seconds: time used for training steps alone.
        epoch_seconds: of these, what the epoch so far has used.

    `model`, `optimizer` and `averages` are attributes, too.
    """

    def __init__(
        self,
        model: tf.keras.Model,
        optimizer: tf.keras.optimizers.Optimizer,
        averages: Averages,
    ):
        self.model, self.optimizer, self.averages = model, optimizer, averages
        self.step, self.sums = 0, [0.0] * 3
        self.rows: list[dict[str, Any]] = []
        self.best: dict[str, Any] | None = None
        self.best_weights = b""
        self.seconds = self.training_seconds = self.epoch_seconds = 0.0
        self._last_tick = time.perf_counter()

        optimizer.build(model.trainable_variables)
        weights = models.named_weights(model)
        self._weights = {k: tf_variable(w) for k, w in weights.items()}
        self._slots = _named_slots(optimizer, _trainable_names(model))
        self._averages = _named_averages(averages, self._weights)
        self._texts = [
            tf.Variable(tf.constant(""), trainable=False) for _ in range(2)
        ]
        # A `tf.Module` would hold each weight again, by its place in the model.
        self._checkpoint = tf.train.Checkpoint(
            weights=self._weights,
            optimizer=self._slots,
            averages=self._averages,
            progress=self._texts[0],
            best_weights=self._texts[1],
        )
        self._saved: tuple[int, int] | None = None

    # Training.

    def add(self, sums: tf.Tensor, steps: int) -> None:
        """Adds some training steps.

        Args:
            sums: of `training_step`.
            steps: how many.
        """
        self._sums += tf.cast(sums, tf.float64)
        self.step += steps

    @property
    def sums(self) -> list[float]:
        """Loss, top-1 accuracy and number of the epoch's images, summed up.

        To read them waits for the devices.
        """
        return self._sums.numpy().tolist()

    @sums.setter
    def sums(self, values: list[float]) -> None:
        self._sums = tf.constant(values, tf.float64)

    def tick(self, training: bool = False) -> None:
        """Adds the time since the last call, or since the state was restored.

        Args:
            training: whether it was used for training steps, all of which have
                ended if `sums` has been read.
        """
        now = time.perf_counter()
        elapsed = now - self._last_tick
        self._last_tick = now
        self.seconds += elapsed
        if training:
            self.training_seconds += elapsed
            self.epoch_seconds += elapsed

    def training_metrics(self) -> dict[str, float]:
        """Returns mean loss and accuracy of the epoch so far."""
        loss, right, count = self.sums
        count = max(count, 1.0)
        return {"loss": loss / count, "accuracy": right / count}

    def is_best(self, metrics: Mapping[str, float]) -> bool:
        """Returns whether the weights are the best so far.

        Of equally good epochs the latest is the best: its averages reach
        further. Without validation images each epoch is.
        """
        score = metrics.get("validation_accuracy", 0.0)
        return self.best is None or score >= self.best["score"]

    def end_epoch(
        self,
        row: dict[str, Any],
        metrics: Mapping[str, float],
        weights: bytes = b"",
    ) -> None:
        """Adds the line of an epoch, and begins the next one.

        Args:
            row: of metrics.csv.
            metrics: of its validation.
            weights: the file of its weights if they are the best so far.
        """
        self.rows.append(row)
        self.sums, self.epoch_seconds = [0.0] * 3, 0.0
        if weights:
            score = metrics.get("validation_accuracy", 0.0)
            self.best = {"epoch": row["epoch"], "score": score, **metrics}
            self.best_weights = weights

    def check_weights(self) -> None:
        """Raises unless all weights of the model are finite.

        On a CPU, ReLU maps NaN to 0, so the loss can hide NaN weights.

        Raises:
            NotFinite: if one is not.
        """
        check_finite(float(self._sum()), self.step)

    @tf.function
    def _sum(self):
        """A number that is finite if all weights are."""
        weights = self._weights.values()
        return tf.add_n(
            [tf.reduce_sum(0.0 * tf.cast(w, tf.float32)) for w in weights]
        )

    # Checkpoints.

    def size_in_bytes(self) -> int:
        """Returns the size of a checkpoint, the best weights included."""
        weights = self._weights.values()
        return size_in_bytes(
            [
                *weights,
                *weights,
                *self._slots.values(),
                *self.averages.variables,
            ]
        )

    def save(self, folder: str) -> None:
        """Writes a checkpoint, unless this state is written already.

        The last two of a run are kept. All workers of a run must call it, each
        with a folder of its own: they may have to read weights together.

        Args:
            folder: of the checkpoints.

        Raises:
            NotFinite: if a weight is not finite; nothing is written then.
            OSError: if it cannot be written; the former ones stay.
        """
        self.check_weights()
        now = self.step, len(self.rows)
        if now == self._saved:
            return
        fields = {name: getattr(self, name) for name in _FIELDS}
        fields["version"] = __version__
        self._texts[0].assign(json.dumps(fields))
        self._texts[1].assign(self.best_weights)
        path = os.path.join(folder, "ckpt-{}-{}".format(*now))
        try:
            tf.io.gfile.makedirs(folder)
            self._checkpoint.write(path)
        except (tf.errors.OpError, OSError) as error:
            raise FileError(f"Cannot write {path}: {reason(error)}.") from error
        self._saved = now
        paths = checkpoint_paths(folder)
        older = paths[paths.index(path) :]  # Newer ones are damaged.
        for old in older[_MAX_TO_KEEP:]:
            for file in matching(folder, f"{os.path.basename(old)}.*"):
                tf.io.gfile.remove(file)

    def restore(
        self, folder: str, print_fn: Callable[[str], Any] = print
    ) -> bool:
        """Restores the newest checkpoint that is whole.

        Args:
            folder: of the checkpoints.
            print_fn: is told which ones are not.

        Returns:
            Whether one is. If not, parts of a damaged one may be there.

        Raises:
            ValueError: if it does not fit the network.
        """
        self._last_tick = time.perf_counter()
        paths = checkpoint_paths(folder)
        for path in paths:
            try:
                self._read(path, _progress(path))
            except _DAMAGE as error:
                reason = str(getattr(error, "message", error)).split("\n")[0]
                print_fn(f"The checkpoint {path} is damaged: {reason}")
                continue
            self._saved = self.step, len(self.rows)
            return True
        return False

    def _read(self, path, fields):
        if fields is None:
            raise UserError(
                f"The checkpoint {path} is of another version of lambdanet_tf, "
                "which run.json names: finish the run with that one, or begin "
                "a new one from its best weights with --initial-weights."
            )
        try:
            self._checkpoint.read(path).assert_consumed()
        except (AssertionError, ValueError) as error:
            raise UserError(
                f"The checkpoint {path}, of lambdanet_tf {fields['version']}, "
                f"does not fit this network and optimizer: {error}"
            ) from error
        for name in _FIELDS:
            setattr(self, name, fields[name])
        self.best_weights = bytes(self._texts[1].numpy())


def check_finite(value: float, step: int) -> None:
    """Raises unless a loss, or a sum that contains one, is finite.

    Args:
        value: the loss.
        step: training step at which it was read, for the message.

    Raises:
        NotFinite: if it is NaN or infinite.
    """
    if not math.isfinite(value):
        raise NotFinite(
            f"Loss or weights became {value} by step {step}. A lower learning "
            "rate, a longer warm-up or --global-clipnorm may help."
        )


def _progress(path):
    """What a checkpoint says of a run; None if it is not of this layout."""
    reader = tf.train.load_checkpoint(path)
    if not reader.has_tensor(_PROGRESS):
        return None
    return json.loads(reader.get_tensor(_PROGRESS))


def checkpoint_paths(folder: str) -> list[str]:
    """Returns the checkpoints of a folder, whole or not, the newest first."""
    found = {}
    for file in matching(folder, "ckpt-*"):
        match = _NAME.fullmatch(os.path.basename(file))
        if match:
            path = os.path.join(folder, match.string.split(".")[0])
            found[path] = int(match[1]), int(match[2] or 0)
    return sorted(found, key=lambda path: found[path], reverse=True)


def check_room(folder: str, checkpoint_size: int) -> None:
    """Raises unless a folder's disk has space for a run.

    Args:
        folder: its nearest parent that exists counts. Of other file systems
            than the local ones nothing is known.
        checkpoint_size: bytes of a checkpoint.

    Raises:
        OSError: naming both amounts.
    """
    if "://" in folder:
        return
    there = os.path.abspath(folder)
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    # One more is written before the oldest is removed; and the best weights.
    needed = (_MAX_TO_KEEP + 2) * checkpoint_size
    free = shutil.disk_usage(there).free
    if free < needed:
        raise FileError(
            f"The run folder {folder} needs {needed / 2**20:,.0f} MiB for "
            f"checkpoints and weights; {free / 2**20:,.0f} MiB are free."
        )


def size_in_bytes(weights: Iterable[Any]) -> int:
    """Returns the memory of weights; of several workers, none is read."""
    variables = [tf_variable(weight) for weight in weights]
    return sum(v.shape.num_elements() * v.dtype.size for v in variables)


def _trainable_names(model):
    """The names of the trainable weights, in the order of the model."""
    names = {id(w): name for name, w in models.named_weights(model).items()}
    return [names[id(weight)] for weight in model.trainable_variables]


def _named_averages(averages, weights):
    names = {id(weight): name for name, weight in weights.items()}
    return {
        names[id(weight)]: average
        for weight, average in zip(
            averages.weights, averages.variables, strict=True
        )
    }


def _named_slots(optimizer, names):
    """An optimizer's variables, each by its kind and its weight's name.

    Keras' optimizers hold each kind, such as the momentums, as a list in the
    order of the weights.
    """
    left = {id(variable): variable for variable in optimizer.variables}
    slots = {}
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    for kind, values in vars(inner).items():
        if not isinstance(values, list) or len(values) != len(names):
            continue
        if all(id(value) in left for value in values):
            for name, value in zip(names, values, strict=True):
                slots[f"{kind.strip('_')}/{name}"] = left.pop(id(value))
    for number, variable in enumerate(left.values()):
        kind = variable.name.split("/")[-1].split(":")[0]
        slots[f"{number}/{kind}"] = variable
    return {name: tf_variable(variable) for name, variable in slots.items()}
