"""Checkpoints: everything that a run needs to resume as if never stopped."""

import os
import shutil
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from lambdanet_tf.environment import tf_variable
from lambdanet_tf.training.averages import Averages
from lambdanet_tf.training.preemption import check_finite
from lambdanet_tf.training.run_state import RunState

_KEPT = 2


class Checkpoints:
    """The checkpoints of a run, of which the last two are kept.

    A checkpoint holds the weights, the averages, the variables of the optimizer
    and the state of the run in one unit: a process that is killed while
    writing leaves the former one valid.

    Args:
        model: built.
        optimizer: built.
        averages: of the model.
        read_from: the folder of the checkpoints.
        write_to: where this process writes, if elsewhere.
    """

    def __init__(
        self,
        model: tf.keras.Model,
        optimizer: tf.keras.optimizers.Optimizer,
        averages: Averages,
        read_from: str,
        write_to: str | None = None,
    ):
        self._weights = [tf_variable(w) for w in model.weights]
        self._state = tf.Variable("", dtype=tf.string, trainable=False)
        slots = [tf_variable(v) for v in optimizer.variables]
        self._checkpoint = tf.train.Checkpoint(
            weights=self._weights,
            optimizer=slots,
            averages=averages.variables,
            state=self._state,
        )
        self._size = size_in_bytes(
            [*self._weights, *slots, *averages.variables]
        )
        self._read_from = read_from
        self._write_to = write_to or read_from
        self._manager = None

    def save(self, state: RunState, kept: str = "") -> None:
        """Writes a checkpoint.

        Args:
            state: of the run.
            kept: which good weights there are, for the message.

        Raises:
            NotFinite: if a weight is not finite; nothing is written then.
        """
        self.check_weights(state.step, kept)
        self._state.assign(state.to_json())
        if self._manager is None:
            self._manager = tf.train.CheckpointManager(
                self._checkpoint, self._write_to, max_to_keep=_KEPT
            )
        self._manager.save(checkpoint_number=state.step)

    def restore(self) -> RunState | None:
        """Reads the newest checkpoint.

        Returns:
            The state of the run, or None if there is no checkpoint.

        Raises:
            ValueError: if it does not fit the network.
        """
        path = tf.train.latest_checkpoint(self._read_from)
        if path is None:
            return None
        try:
            status = self._checkpoint.restore(path)
            status.assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise ValueError(
                f"The checkpoint {path} does not fit this network and "
                f"optimizer: {error}"
            ) from error
        return RunState.from_json(self._state.numpy().decode())

    def check_weights(self, step: int, kept: str) -> None:
        """Raises unless all weights of the model are finite.

        On a CPU, ReLU maps NaN to 0, so the loss can hide NaN weights.

        Args:
            step: as for `check_finite`.
            kept: likewise.

        Raises:
            NotFinite: if one is not.
        """
        check_finite(float(self._sum()), step, kept)

    def check_room(self) -> None:
        """Raises unless the disk has room for the checkpoints and the weights.

        On other file systems than the local ones nothing is checked.

        Raises:
            OSError: naming both amounts.
        """
        check_room(os.path.dirname(self._write_to), self._size)

    @tf.function
    def _sum(self):
        """A number that is finite if all weights are."""
        sums = [
            tf.reduce_sum(0.0 * tf.cast(w, tf.float32)) for w in self._weights
        ]
        return tf.add_n(sums)


def check_room(folder: str, checkpoint_size: int) -> None:
    """Raises unless a folder's disk has room for a run.

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
    needed, free = (_KEPT + 2) * checkpoint_size, shutil.disk_usage(there).free
    if free < needed:
        raise OSError(
            f"The run folder {folder} needs {needed / 2**20:,.0f} MiB for "
            f"checkpoints and weights; {free / 2**20:,.0f} MiB are free."
        )


def size_in_bytes(weights: Iterable[Any]) -> int:
    """Returns the memory of weights; of several workers, none is read."""
    variables = [tf_variable(weight) for weight in weights]
    return sum(v.shape.num_elements() * v.dtype.size for v in variables)
