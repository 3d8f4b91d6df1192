"""Moving averages of the weights and the batch statistics of a model.

The averages in Keras' own optimizers leave out the statistics of batch
normalization, have no warm-up, and start differently in Keras 2 and Keras 3.
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
    replica has its own, those of the first. Averages are float32 at least: a
    small step would be lost in float16 or bfloat16. Create the averages in the
    scope of the model's strategy.

    Args:
        model: built.
        decay: the paper's recipes use 0.9999; 0 keeps no averages, and
            updating and swapping then do nothing.

    Attributes:
        weights: list of the `tf.Variable` that are averaged.
        variables: list of `tf.Variable`, their averages.
        is_swapped: whether the model has the averages in place of its weights.

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
        """Moves the averages, in each replica, after t updates."""
        updates = tf.cast(updates, tf.float32)
        decay = tf.minimum(self._decay, (1.0 + updates) / (10.0 + updates))
        context = tf.distribute.get_replica_context()
        context.merge_call(self._move, args=(1.0 - decay,))

    def _move(self, strategy, rate):
        """Moves the copy of every replica; runs once for all replicas."""

        def move(average, value, rate):
            rate = tf.cast(rate, average.dtype)
            value = tf.cast(value, average.dtype)
            average.assign_sub(rate * (average - value))

        for pair in zip(self.variables, self.weights, strict=True):
            strategy.extended.update(
                pair[0], move, args=(pair[1], rate), group=False
            )

    def swap(self) -> None:
        """Exchanges the weights and their averages; not inside a replica."""
        values = self._trained if self.is_swapped else self.variables
        self.is_swapped = not self.is_swapped
        kept = self.weights if self.is_swapped else ()
        self._trained = [tf.identity(weight) for weight in kept]
        for weight, value in zip(self.weights, values, strict=True):
            weight.assign(tf.cast(value, weight.dtype))

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Puts the averages in place of the weights; a context manager."""
        self.swap()
        try:
            yield
        finally:
            self.swap()


class UseAverages(tf.keras.callbacks.Callback):
    """Averages weights and statistics in `model.fit` and evaluates them.

    For any optimizer of Keras. The averages move after each batch. They take
    the place of the weights during validation, for callbacks further down the
    list at the end of each epoch, and for good when the training ends:

        model.fit(..., validation_data=..., callbacks=[
            tf.keras.callbacks.BackupAndRestore("backup"),  # trained weights
            training.UseAverages(0.999),
            tf.keras.callbacks.ModelCheckpoint("best.keras", ...),  # averages
        ])

    Each `fit` begins its averages from the weights that the model has then.

    Args:
        decay: of `Averages`.
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
        """Gives the model the averages, or the trained weights."""
        if self._averages and self._averages.is_swapped != averages:
            self._averages.swap()
