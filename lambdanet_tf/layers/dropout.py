"""Dropout with a draw of its own on every replica."""

import functools

import tensorflow as tf

from lambdanet_tf.arguments import fraction
from lambdanet_tf.layers.argument import argument
from lambdanet_tf.layers.argument import serializable
from lambdanet_tf.layers.base import BaseLayer
from lambdanet_tf.layers.randomness import uniform


@serializable
class Dropout(BaseLayer):
    """Sets single activations to zero, in training.

    Each activation is zero with probability `rate`; the others are divided by
    1 - `rate`. Keras 3's own layer draws the same numbers on all replicas of a
    strategy and keeps a counter among the model's variables; this one does
    neither. To drop whole residual branches use `StochasticDepth`.

    Args:
        rate: float in [0, 1). Probability of dropping an activation.

    Input shape:
        `(batch, ...)`.

    Output shape:
        As the inputs.

    Raises:
        ValueError: if `rate` is not in [0, 1) (at construction).

    Reference: [Srivastava et al., 2014](https://jmlr.org/papers/v15).
    """

    rate: float = argument(
        check=functools.partial(fraction, below_one=True), kw_only=False
    )

    def __post_init__(self):
        self.supports_masking = True

    def call(self, inputs, training=None):
        if not training or self.rate == 0:
            return inputs
        keep = 1.0 - self.rate
        kept = uniform(self._drawn_shape(inputs), self) < keep
        # Selected, since zero times NaN is NaN.
        return tf.where(kept, inputs / keep, tf.zeros([], inputs.dtype))

    def _drawn_shape(self, inputs):
        """One draw for every activation."""
        return tf.shape(inputs)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)
