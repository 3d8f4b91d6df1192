"""NaN and infinity where a query may not look.

A product with zero hides a number, but not NaN or infinity. So masked sums run
over finite values, and the outputs that are permitted to see a value that is
not finite become NaN afterwards.
"""

import tensorflow as tf

from lambdanet_tf.ops.geometry import ceil_div


def finite(values):
    """Replaces values that are not finite by zero.

    Args:
        values: `(batch, m, value_dim, intra_depth)`.

    Returns:
        The values, and boolean `(batch, m)`: whether any at a position is not
        finite.
    """
    is_finite = tf.math.is_finite(values)
    bad = tf.logical_not(tf.reduce_all(is_finite, axis=[-2, -1]))
    return tf.where(is_finite, values, tf.zeros([], values.dtype)), bad


def poisoned(outputs, bad, attention_mask):
    """Makes the outputs NaN whose queries see a position that is not finite.

    Args:
        outputs: `(batch, n, heads, value_dim)`.
        bad: boolean `(batch, m)`.
        attention_mask: boolean `(n, m)` or `(batch, n, m)`.
    """
    mask = attention_mask
    if len(mask.shape) == 2:
        mask = mask[None]
    counts = tf.matmul(
        tf.cast(mask, tf.float32), tf.expand_dims(tf.cast(bad, tf.float32), -1)
    )  # [b, n, 1]
    return nan_where(outputs, counts[..., 0] > 0)


def poisoned_within_scope(outputs, bad, axis):
    """As `poisoned`, for queries that see the scope of one axis.

    Args:
        outputs: `(batch, n, heads, value_dim)`.
        bad: boolean `(batch, m)`.
        axis: `Axis`.
    """
    flags = tf.cast(bad, tf.int32)
    if isinstance(axis.padding, int) and axis.padding < 0:
        flags = flags[:, -axis.padding :]
    before = tf.maximum(axis.padding, 0)
    # A multiple of the dilation, which then is an axis of its own.
    length = tf.shape(flags)[1] + before + axis.padding_after
    fill = ceil_div(length, axis.dilation) * axis.dilation - length
    flags = tf.pad(flags, [[0, 0], [before, axis.padding_after + fill]])
    batch = tf.shape(flags)[0]
    phases = tf.reshape(flags, [batch, -1, axis.dilation])
    sums = tf.pad(tf.cumsum(phases, axis=1), [[0, 0], [1, 0], [0, 0]])
    seen = sums[:, axis.taps :] - sums[:, : -axis.taps]
    seen = tf.reshape(seen, [batch, -1]) > 0
    last = (axis.queries - 1) * axis.stride + 1
    return nan_where(outputs, seen[:, :last][:, :: axis.stride])


def nan_where(outputs, seen):
    """Makes `(batch, n, heads, value_dim)` NaN where `(batch, n)` says so."""
    nan = tf.cast(float("nan"), outputs.dtype)
    seen = tf.expand_dims(tf.expand_dims(seen, -1), -1)
    return tf.where(seen, nan, outputs)
