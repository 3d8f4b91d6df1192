"""Moving averages of the weights and the batch statistics of a model.

The averages in Keras' own optimizers leave out the statistics of batch
normalization, have no warm-up, and start differently in Keras 2 and Keras 3.
"""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from lambdanet_tf.arguments import fraction
from lambdanet_tf.environment import tf_variable
from lambdanet_tf.models.graph import layers_in


class Averages:
    """Exponential moving averages of all weights of a model.

    Update t, from 1, moves the average a of each weight w:

        a <- d a + (1 - d) w,    d = min(decay, (1 + t) / (10 + t))

    The statistics of batch normalization are averaged like the weights. If each
    replica has its own, their mean is averaged. Averages are float32 at least:
    a small step would be lost in float16 or bfloat16. Create the averages in
    the scope of the model's strategy.

    Args:
        model: built.
        decay: the paper's recipes use 0.9999; 0 keeps no averages, and
            updating and swapping then do nothing.

    Attributes:
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
        self._decay = fraction("decay", decay, below_one=True)
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
        """Whether the model has the averages in place of its weights."""
        return self._trained is not None

    def update(self, updates: tf.Tensor | int) -> None:
        """Moves the averages; call it in each replica after an update.

        Args:
            updates: number of updates so far, this one included: t.
        """
        if not self.weights:
            return
        context = tf.distribute.get_replica_context()
        means = [_widened(self.weights[index]) for index in self._of_replicas]
        if context.num_replicas_in_sync > 1 and means:
            means = context.all_reduce("mean", means)
        statistics = dict(zip(self._of_replicas, means, strict=True))
        updates = tf.cast(updates, tf.float32)
        decay = tf.minimum(self._decay, (1.0 + updates) / (10.0 + updates))
        context.merge_call(self._move, args=(statistics, 1.0 - decay))

    def _move(self, strategy, statistics, rate):
        """Moves the copy of every replica; runs once for all replicas."""

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
        """Puts the averages in place of the weights; a context manager."""
        self.swap()
        try:
            yield
        finally:
            self.swap()


def _widened(value):
    """Returns a value in float32 at least."""
    value = tf.convert_to_tensor(value)
    return tf.cast(value, tf.float32) if value.dtype.size < 4 else value


def _synchronized(model):
    """Returns the ids of the statistics that replicas compute together."""
    return {
        id(tf_variable(weight))
        for layer in layers_in(model)
        if getattr(layer, "synchronized", False)
        for weight in layer.weights
    }
