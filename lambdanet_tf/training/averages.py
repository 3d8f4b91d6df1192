"""Moving averages of the weights and the batch statistics of a model.

Keras' own optimizers do not average the statistics of batch normalization, have
no warm-up of averages, and start differently in Keras 2 and Keras 3.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from lambdanet_tf.arguments import fraction
from lambdanet_tf.environment import tf_variable


class Averages:
    """Exponential moving averages of all weights of a model.

    Update t, from 1, moves the average a of each weight w:

        a <- d a + (1 - d) w,    d = min(decay, (1 + t) / (10 + t))

    The statistics of batch normalization are averaged like the weights; if each
    replica has its own, those of the first count. Averages are float32 or
    wider, because half precisions would lose small steps. Create the averages
    in the scope of the model's strategy.

    Args:
        model: a built model.
        decay: the paper's recipes use 0.9999. With 0 there are no averages, and
            updating and swapping do nothing.

    Attributes:
        weights: list of `tf.Variable`, the averaged weights.
        variables: list of `tf.Variable`, their averages.
        is_swapped: whether the averages currently replace the model's weights.

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
        self._decay = fraction("decay", decay, below_one=True)
        variables = [tf_variable(weight) for weight in model.weights]
        self.weights = [v for v in variables if v.dtype.is_floating and decay]
        self.variables = [
            tf.Variable(
                tf.cast(weight, tf.float32)
                if weight.dtype.size < 4
                else weight,
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            for weight in self.weights
        ]
        self.is_swapped = False

    def update(self, updates: tf.Tensor | int) -> None:
        """Updates the averages, in each replica, after `updates` steps."""
        updates = tf.cast(updates, tf.float32)
        decay = tf.minimum(self._decay, (1.0 + updates) / (10.0 + updates))
        context = tf.distribute.get_replica_context()
        context.merge_call(self._move, args=(1.0 - decay,))

    def _move(self, strategy, rate):
        """Updates the copies of all replicas; runs once for all of them."""

        def move(average, value, rate):
            rate = tf.cast(rate, average.dtype)
            value = tf.cast(value, average.dtype)
            average.assign_sub(rate * (average - value))

        for pair in zip(self.variables, self.weights, strict=True):
            strategy.extended.update(
                pair[0], move, args=(pair[1], rate), group=False
            )

    def swap(self) -> None:
        """Swaps the weights and their averages, outside of replicas."""
        values = self._trained if self.is_swapped else self.variables
        self.is_swapped = not self.is_swapped
        kept = self.weights if self.is_swapped else ()
        self._trained = [tf.identity(weight) for weight in kept]
        for weight, value in zip(self.weights, values, strict=True):
            weight.assign(tf.cast(value, weight.dtype))

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Replaces the weights by the averages within a context."""
        self.swap()
        try:
            yield
        finally:
            self.swap()


class UseAverages(tf.keras.callbacks.Callback):
    """Averages weights and statistics in `model.fit`, and evaluates them.

    It works with any Keras optimizer, and updates the averages after each
    batch. The averages replace the weights during validation, for later
    callbacks in the list at the end of each epoch, and after the training:

        model.fit(..., validation_data=..., callbacks=[
            tf.keras.callbacks.BackupAndRestore("backup"),  # trained weights
            training.UseAverages(0.999),
            tf.keras.callbacks.ModelCheckpoint("best.keras", ...),  # averages
        ])

    Each call of `fit` starts its averages from the current weights.

    Args:
        decay: as in `Averages`.
    """

    def __init__(self, decay: float = 0.9999):
        super().__init__()
        self._decay = decay

    def on_train_begin(self, logs: Any = None) -> None:
        self._averages, self._updates = None, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._put(averages=False)
        if self._averages is None and self.model.built:
            self._begin()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._averages is None:  # The first batch has built the model.
            self._begin()
        self._updates += 1
        self._update(tf.constant(self._updates))

    def on_test_begin(self, logs: Any = None) -> None:
        self._put(averages=True)

    def on_test_end(self, logs: Any = None) -> None:
        self._put(averages=False)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._put(averages=True)

    def on_train_end(self, logs: Any = None) -> None:
        self._put(averages=True)
        self._averages = None

    def _begin(self):
        strategy = self.model.distribute_strategy
        with strategy.scope():
            averages = self._averages = Averages(self.model, self._decay)

        @tf.function
        def update(updates):
            strategy.run(averages.update, args=(updates,))

        self._update = update

    def _put(self, averages):
        """Sets the model's weights to the averages or the trained weights."""
        if self._averages and self._averages.is_swapped != averages:
            self._averages.swap()
