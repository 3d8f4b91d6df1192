"""Stochastic depth: residual branches that are sometimes left out."""

import tensorflow as tf

from lambdanet_tf.layers.argument import serializable
from lambdanet_tf.layers.dropout import Dropout


@serializable
class StochasticDepth(Dropout):
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

    _several = "Give it the branch alone and add: shortcut + layer(branch)."

    def _drawn_shape(self, inputs):
        """One draw for every example."""
        shape = tf.shape(inputs)
        return tf.concat([shape[:1], tf.ones_like(shape[1:])], axis=0)
