"""Checkpoints: everything that a run needs to continue as if never stopped."""

import json
import os
import shutil

import tensorflow as tf

from lambdanet_tf.training.kernels import raw_variable
from lambdanet_tf.training.kernels import size_in_bytes
from lambdanet_tf.training.stopping import check_finite

FOLDER = "checkpoints"
_KEPT = 2


class Checkpoints:
    """The checkpoints of a run.

    A checkpoint holds the model's weights, the optimiser's variables with the
    averages, and a small record of the run (its progress so far), all in one
    unit: a process that is killed while writing leaves the former one valid.

    Args:
        model: built `tf.keras.Model`.
        optimizer: built `RecipeOptimizer`.
        read_from: str. The folder of the checkpoints.
        write_to: str or None. Where this process writes, if elsewhere.
    """

    def __init__(self, model, optimizer, read_from, write_to=None):
        self._weights = [raw_variable(w) for w in model.weights]
        self._record = tf.Variable("", dtype=tf.string, trainable=False)
        self._checkpoint = tf.train.Checkpoint(
            weights=self._weights,
            optimizer=[raw_variable(v) for v in optimizer.variables],
            record=self._record,
        )
        self._read_from = read_from
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, write_to or read_from, max_to_keep=_KEPT
        )

    def save(self, step, record):
        """Writes a checkpoint.

        Args:
            step: int.
            record: JSON-able object.

        Raises:
            NotFinite: if a weight is not a number; nothing is written then.
        """
        self.check_weights(step, "Nothing was saved since.")
        self._record.assign(json.dumps(record))
        self._manager.save(checkpoint_number=step)

    def check_weights(self, step, kept):
        """Raises unless all weights of the model are finite.

        The loss can be finite although a weight is not: on a CPU, ReLU turns
        what is no number into 0.

        Args:
            step: int.
            kept: str. Which good weights there are, in words.

        Raises:
            NotFinite: naming the step and the good weights.
        """
        check_finite(float(self._sum()), step, kept)

    def restore(self):
        """Reads the newest checkpoint.

        Returns:
            Its record, or None if there is none.

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
                f"optimiser: {error}"
            ) from error
        return json.loads(self._record.numpy().decode())

    @tf.function
    def _sum(self):
        """A number that is finite if all weights are."""
        sums = [
            tf.reduce_sum(0.0 * tf.cast(w, tf.float32)) for w in self._weights
        ]
        return tf.add_n(sums)


def check_room(folder, model, optimizer):
    """Raises unless the disk has room for a run's checkpoints and weights.

    Args:
        folder: str. The run folder, which exists. On other file systems than
            the local ones nothing is checked.
        model: built `tf.keras.Model`.
        optimizer: built `RecipeOptimizer`.

    Raises:
        OSError: naming the folder and both amounts.
    """
    if not os.path.isdir(folder):
        return
    # To read a variable may take all processes of a run.
    one = size_in_bytes([*model.weights, *optimizer.variables])
    needed, free = (_KEPT + 2) * one, shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"The run folder {folder} needs {needed / 2**20:,.0f} MiB for "
            f"checkpoints and weights; {free / 2**20:,.0f} MiB are free."
        )
