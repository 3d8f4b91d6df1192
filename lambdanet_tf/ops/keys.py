"""Keys, normalized over the context positions."""

import tensorflow as tf

KEY_NORMALIZATIONS = ("softmax", "l2", None)
# Finite, so that a difference of two is zero and not NaN.
MASKED_LOGIT = -1e30
TINY = 1e-12


def normalize_keys(keys, normalization, context_mask=None):
    """Normalizes keys over the context positions, in float32 or wider.

    Args:
        keys: `(batch, m, key_dim, intra_depth)`.
        normalization: "softmax", "l2" (unit length of every key channel) or
            None.
        context_mask: None or boolean `(batch, m)`; False = padding.

    Returns:
        `(batch, key_dim, intra_depth, m)`, in the dtype of the keys; zero at
        padded positions. (Positions last: a softmax over another axis is two
        transpositions more.)
    """
    wide = tf.transpose(keys, [0, 2, 3, 1])
    wide = tf.cast(wide, sum_dtype(keys.dtype))
    present = None
    if context_mask is not None:
        present = tf.expand_dims(tf.expand_dims(context_mask, 1), 1)
    if normalization == "softmax":
        if present is not None:
            wide = where(present, wide, MASKED_LOGIT)
        wide = tf.nn.softmax(wide)
    if present is not None:
        wide = where(present, wide, 0.0)
    if normalization == "l2":
        wide = tf.math.l2_normalize(wide, axis=-1, epsilon=TINY)
    return tf.cast(wide, keys.dtype)


def sum_dtype(dtype):
    """What sums over positions are kept in: float32, or float64."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def where(condition, x, otherwise):
    """`tf.where` with a number for what is not selected."""
    return tf.where(condition, x, tf.cast(otherwise, x.dtype))


def all_intra(scaled, keys):
    """Broadcasts the last axis of `scaled` to the intra-depth of `keys`."""
    return scaled + tf.zeros([keys.shape[-1]], scaled.dtype)
