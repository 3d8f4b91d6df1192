"""Stochastic depth: residual branches that are sometimes left out."""

import tensorflow as tf

from lambdanet_tf.layers.base import BaseLayer
from lambdanet_tf.layers.randomness import uniform


@tf.keras.utils.register_keras_serializable(package="lambdanet_tf")
class StochasticDepth(BaseLayer):
    """Drops the whole branch of an example, in training.

    Put it at the end of a residual branch. Of the examples of a batch each is
    set to zero with probability `rate`; the others are divided by 1 - `rate`.
    Draws differ between the replicas of a strategy and follow
    `tf.keras.utils.set_random_seed`.

    Args:
        rate: float in [0, 1). Probability of dropping a branch.

    Input shape:
        `(batch, ...)`.

    Output shape:
        As the inputs.

    Raises:
        ValueError: if `rate` is not in [0, 1) (at construction).

    Reference: [Huang et al., 2016](https://arxiv.org/abs/1603.09382).
    """

    def __init__(self, rate, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(
                f"`rate` must be in [0, 1). Received: rate={rate!r}."
            )
        self.rate = rate
        self.supports_masking = True

    def call(self, inputs, training=None):
        if not training or self.rate == 0:
            return inputs
        keep = 1.0 - self.rate
        ones = [1] * (inputs.shape.rank - 1)
        draw = uniform([tf.shape(inputs)[0], *ones])
        factor = tf.where(draw < keep, 1.0 / keep, 0.0)
        return inputs * tf.cast(factor, inputs.dtype)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)

    def get_config(self):
        config = super().get_config()
        config.update(rate=self.rate)
        return config
