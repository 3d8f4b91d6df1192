"""NaN and infinity at padding, and where a query may not look.

A product with zero hides a number, but not NaN: in the gradient of a
projection, inputs that are not finite meet upstream gradients of zero. So
projections see finite inputs only, and what was not finite goes around them.
"""

import tensorflow as tf

from lambdanet_tf import ops


def zero_padding(x, mask):
    """Returns `(batch, m, channels)` with zeros at padding.

    Args:
        x: `(batch, m, channels)`.
        mask: None or boolean `(batch, m)`; False = padding.
    """
    return x if mask is None else ops.where(tf.expand_dims(mask, -1), x, 0.0)


def finite_padding(x, mask):
    """Returns x with zeros in place of NaN and infinity at padding.

    Args and returns as `zero_padding`.
    """
    if mask is None:
        return x
    return ops.where(tf.expand_dims(mask, -1) | tf.math.is_finite(x), x, 0.0)


def split_nonfinite(x):
    """Returns x with zeros at positions that are not finite, and which are.

    Args:
        x: `(batch, n, channels)`.

    Returns:
        `(batch, n, channels)`, and boolean `(batch, n)`.
    """
    finite = tf.reduce_all(tf.math.is_finite(x), axis=-1)
    return ops.where(tf.expand_dims(finite, -1), x, 0.0), tf.logical_not(finite)


def propagate_nan(x, nonfinite):
    """Undoes `split_nonfinite` after a projection, with NaN in all channels.

    Args:
        x: `(batch, n, ...)`.
        nonfinite: None or boolean `(batch, n)`.
    """
    if nonfinite is None:
        return x
    for _ in x.shape[2:]:
        nonfinite = tf.expand_dims(nonfinite, -1)
    return ops.where(tf.logical_not(nonfinite), x, float("nan"))
