"""Keys: how they are normalized over the positions that a query sees.

A softmax needs the maximum of the keys, and has forms of its own. Any other
normalization multiplies the keys by a function of one sum, and is a row here.
"""

import tensorflow as tf

from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.masks import with_rank

# Finite, so that a difference of two is zero and not NaN.
MASKED_LOGIT = -1e30
_TINY = 1e-12


def inverse_length(energy):
    """Returns 1 / sqrt(energy); zero where there is none, in gradients too."""
    scale = tf.math.rsqrt(tf.maximum(energy, _TINY))
    return masked_fill(scale, energy > _TINY)


# What is summed of each key, and the factor that the sum gives.
SUMS = {"l2": (tf.square, inverse_length)}
KEY_NORMALIZATIONS = ("softmax", *SUMS, None)


def exact_where(needed, exact, fast):
    """Returns `fast`, but the tensors of `exact()` where a mask says so."""

    def mend():
        return [
            tf.where(with_rank(needed, len(x.shape)), x, y)
            for x, y in zip(exact(), fast, strict=True)
        ]

    return tf.cond(tf.reduce_any(needed), mend, lambda: fast)
