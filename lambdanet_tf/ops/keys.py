"""How keys are normalized over the positions that a query sees.

A softmax needs the maximum of the keys, and is implemented where it is used.
Each other normalization multiplies the keys by a function of one sum: a row
here.
"""

import tensorflow as tf

from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.masks import with_rank

# Finite, so that the difference of two is zero and not NaN.
MASKED_LOGIT = -1e30
_TINY = 1e-12


def inverse_length(energy):
    """Returns 1 / sqrt(energy), or zero (also its gradient) for energy 0."""
    scale = tf.math.rsqrt(tf.maximum(energy, _TINY))
    return masked_fill(scale, energy > _TINY)


# Two functions: of each key before the sum, and from the sum to the factor.
SUMS = {"l2": (tf.square, inverse_length)}
KEY_NORMALIZATIONS = ("softmax", *SUMS, None)


def exact_where(needed, exact, fast):
    """Returns the tensors `fast`, with those of `exact()` where needed."""

    def mend():
        return [
            tf.where(with_rank(needed, len(x.shape)), x, y)
            for x, y in zip(exact(), fast, strict=True)
        ]

    return tf.cond(tf.reduce_any(needed), mend, lambda: fast)
