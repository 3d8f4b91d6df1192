"""Moving averages of the weights and the batch statistics of a model.

The averages in Keras' own optimizers leave out the statistics of batch
normalization, have no warm-up, and start differently in Keras 2 and Keras 3.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import fraction
from lambdanet_tf.environment import tf_variable


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
        decay: what it was given.
        weights: list of the `tf.Variable` that are averaged.
        variables: list of `tf.Variable`, their averages.

    Raises:
        ValueError: if `decay` is not in [0, 1).

    Examples:
        >>> model = tf.keras.Sequential(
        ...     [tf.keras.Input((2,)), tf.keras.layers.Dense(1)]
        ... )
        >>> averages = Averages(model, decay=0.9)
        >>> averages.update(1)
        >>> with averages.applied():
        ...     averages.is_swapped
        True
    """

    def __init__(self, model: tf.keras.Model, decay: float = 0.9999):
        self.decay = fraction("decay", decay, below_one=True)
        variables = [tf_variable(weight) for weight in model.weights]
        self.weights = [v for v in variables if v.dtype.is_floating and decay]
        shared = _synchronized(model)
        self._of_replicas = [
            index
            for index, weight in enumerate(self.weights)
            if not weight.trainable and id(weight) not in shared
        ]
        self.variables = [
            tf.Variable(
                _widened(weight),
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            for weight in self.weights
        ]
        self._trained: list[tf.Tensor] | None = None

    @property
    def is_swapped(self) -> bool:
        """Whether the model has been given the averages."""
        return self._trained is not None

    def update(self, updates: tf.Tensor | int) -> None:
        """Moves the averages; call it in each replica after an update.

        Args:
            updates: how many there were so far, this one included: t.
        """
        if not self.weights:
            return
        context = tf.distribute.get_replica_context()
        means = [_widened(self.weights[index]) for index in self._of_replicas]
        if context.num_replicas_in_sync > 1 and means:
            means = context.all_reduce("mean", means)
        statistics = dict(zip(self._of_replicas, means, strict=True))
        updates = tf.cast(updates, tf.float32)
        decay = tf.minimum(self.decay, (1.0 + updates) / (10.0 + updates))
        context.merge_call(self._move, args=(statistics, 1.0 - decay))

    def _move(self, strategy, statistics, rate):
        """Runs once for all replicas and visits the copy of each."""

        def move(average, value, rate):
            rate = tf.cast(rate, average.dtype)
            value = tf.cast(value, average.dtype)
            average.assign_sub(rate * (average - value))

        for index, weight in enumerate(self.weights):
            strategy.extended.update(
                self.variables[index],
                move,
                args=(statistics.get(index, weight), rate),
                group=False,
            )

    def swap(self) -> None:
        """Exchanges the weights and their averages; not inside a replica."""
        if self._trained is None:
            self._trained = [tf.identity(weight) for weight in self.weights]
            values = self.variables
        else:
            values, self._trained = self._trained, None
        for weight, value in zip(self.weights, values, strict=True):
            weight.assign(tf.cast(value, weight.dtype))

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Context manager: the model uses the averaged weights.

        Yields:
            None; the model has the averages.
        """
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
                    self.variables, self.weights, strict=True
                )
            ],
            tolerance=0.0,
        )

    def restart(self) -> None:
        """Begins anew from the weights that the model has."""
        self._trained = None
        for average, weight in zip(self.variables, self.weights, strict=True):
            average.assign(_widened(weight))

    def to_arrays(self) -> dict[str, Any]:
        """Returns the trained weights and their averages, for a file.

        Returns:
            Nested dictionaries of arrays, without names that depend on Keras.
        """
        weights = self._trained or self.weights
        return {
            f"{kind}{index}": _widened(value).numpy()
            for kind, values in (
                ("weight", weights),
                ("average", self.variables),
            )
            for index, value in enumerate(values)
        }

    def set_arrays(self, arrays: dict[str, np.ndarray]) -> bool:
        """Sets what `to_arrays` returned; False if it is of other weights.

        The model must have these weights, or the averages in place of them:
        then it is given the weights.

        Args:
            arrays: what `to_arrays` returned.

        Returns:
            Whether they were set.
        """
        if not self._are_in(arrays):
            return False
        numbers = range(len(self.weights))
        weights = [arrays[f"weight{index}"] for index in numbers]
        averages = [arrays[f"average{index}"] for index in numbers]
        now = [_widened(weight).numpy() for weight in self.weights]
        if not any(_are_close(now, x) for x in (weights, averages)):
            return False
        for index, weight in enumerate(self.weights):
            weight.assign(tf.cast(weights[index], weight.dtype))
            self.variables[index].assign(averages[index])
        self._trained = None
        return True

    def set_averages(self, arrays: dict[str, np.ndarray]) -> bool:
        """Sets the averages that `to_arrays` returned, and no weight.

        Args:
            arrays: what `to_arrays` returned.

        Returns:
            Whether they were set: False if it has none of these weights.
        """
        if not self._are_in(arrays):
            return False
        for index, average in enumerate(self.variables):
            average.assign(arrays[f"average{index}"])
        return True

    def _are_in(self, arrays):
        """Whether arrays have each weight: those without averages have none."""
        return all(
            f"{kind}{index}" in arrays
            for kind in ("weight", "average")
            for index in range(len(self.weights))
        )


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
