"""A callback for `model.fit`: moving averages in place of the weights."""

from typing import Any

import tensorflow as tf

from lambdanet_tf.arguments import fraction
from lambdanet_tf.training.averages import Averages


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

    Each `fit` begins its averages from the weights that the model has then,
    also one that `BackupAndRestore` resumes.

    Args:
        decay: of `Averages`.

    Raises:
        ValueError: if `decay` is not in [0, 1).

    Examples:
        >>> model = tf.keras.Sequential(
        ...     [tf.keras.Input((2,)), tf.keras.layers.Dense(1)]
        ... )
        >>> model.compile("sgd", "mse")
        >>> x, y = tf.zeros([4, 2]), tf.zeros([4, 1])
        >>> history = model.fit(x, y, verbose=0, callbacks=[UseAverages(0.9)])
    """

    def __init__(self, decay: float = 0.9999):
        super().__init__()
        self._decay = fraction("decay", decay, below_one=True)
        self._averages: Averages | None = None

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
