"""Dropout of activations or branches, with other draws on each replica."""

import functools

import tensorflow as tf

from lambdanet_tf.arguments import fraction
from lambdanet_tf.layers.argument import argument
from lambdanet_tf.layers.argument import serializable
from lambdanet_tf.layers.base import BaseLayer
from lambdanet_tf.layers.randomness import uniform


@serializable
class Dropout(BaseLayer):
    """Sets single activations to zero in training.

    Each activation becomes zero with probability `rate`; the others are divided
    by 1 - `rate`. Keras 3's own layer draws the same numbers on all replicas
    of a strategy, and adds a counter to the model's variables. This layer does
    neither. To drop whole residual branches, use `StochasticDepth`.

    Args:
        rate: float in [0, 1). Probability of dropping an activation.

    Reference: [Srivastava et al., 2014](https://jmlr.org/papers/v15).
    """

    rate: float = argument(
        check=functools.partial(fraction, below_one=True), kw_only=False
    )

    def __post_init__(self):
        self.supports_masking = True

    def call(self, inputs, training=None):
        if not inputs.dtype.is_floating:  # Keras does not cast integers.
            inputs = tf.cast(inputs, self.compute_dtype)
        if not training or self.rate == 0:
            return inputs
        keep = 1.0 - self.rate
        kept = uniform(self._drawn_shape(inputs), self) < keep
        # Not a product, because zero times NaN is NaN.
        return tf.where(kept, inputs / keep, tf.zeros([], inputs.dtype))

    def _drawn_shape(self, inputs):
        return tf.shape(inputs)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)


@serializable
class StochasticDepth(Dropout):
    """Drops the whole branch of an example in training.

    Put it at the end of a residual branch. It sets each example of the batch
    to zero with probability `rate`, and divides the others by 1 - `rate`.
    Draws differ between the replicas of a strategy, and
    `tf.keras.utils.set_random_seed` repeats them.

    Args:
        rate: float in [0, 1). Probability of dropping a branch.

    Reference: [Huang et al., 2016](https://arxiv.org/abs/1603.09382).
    """

    def _drawn_shape(self, inputs):
        shape = tf.shape(inputs)
        return tf.concat([shape[:1], tf.ones_like(shape[1:])], axis=0)
