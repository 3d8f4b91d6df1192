"""Keys, normalized over the context positions."""

import tensorflow as tf

from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.masks import with_rank
from lambdanet_tf.ops.precision import accumulation_dtype

KEY_NORMALIZATIONS = ("softmax", "l2", None)
# Finite, so that a difference of two is zero and not NaN.
MASKED_LOGIT = -1e30
_TINY = 1e-12


def normalize_keys(keys, normalization, context_mask=None):
    """Normalizes keys over the context positions, in float32 or wider.

    From `(batch, m, key_dim, intra_depth)` to `(batch, key_dim, intra_depth,
    m)`, zero at padding: a softmax over another axis is two transpositions
    more.
    """
    wide = tf.transpose(keys, [0, 2, 3, 1])
    wide = tf.cast(wide, accumulation_dtype(keys.dtype))
    if context_mask is not None:
        context_mask = tf.expand_dims(tf.expand_dims(context_mask, 1), 1)
    if normalization == "softmax":
        wide = tf.nn.softmax(masked_fill(wide, context_mask, MASKED_LOGIT))
    wide = masked_fill(wide, context_mask)
    if normalization == "l2":
        energy = tf.reduce_sum(wide**2, axis=-1, keepdims=True)
        wide *= inverse_length(energy)
    return tf.cast(wide, keys.dtype)


def inverse_length(energy):
    """Returns 1 / sqrt(energy); zero where there is none, in gradients too."""
    scale = tf.math.rsqrt(tf.maximum(energy, _TINY))
    return masked_fill(scale, energy > _TINY)


def exact_where(needed, exact, fast):
    """Returns `fast`, but the tensors of `exact()` where a mask says so."""

    def mend():
        return [
            tf.where(with_rank(needed, len(x.shape)), x, y)
            for x, y in zip(exact(), fast, strict=True)
        ]

    return tf.cond(tf.reduce_any(needed), mend, lambda: fast)
