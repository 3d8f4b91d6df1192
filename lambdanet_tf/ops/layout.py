"""Changes of layout on TPUs, in half precision.

A lambda layer keeps its numbers in other layouts than the layers around it. A
TPU's compiler changes from one to the other next to a batch normalization or a
pooling, after it has widened bfloat16 to the float32 that these compute in: it
copies twice the bytes, and more than once. A product reads any layout, writes
the one that is wanted, and stays in bfloat16.
"""

import tensorflow as tf

from lambdanet_tf.ops.plan import target_device


def relaid(x):
    """Multiplies by the identity where a TPU should change the layout.

    Exact: of every sum one term is not zero. NaN and infinity reach all
    channels of their position.

    Args:
        x: `(batch, n, heads, depth)`.

    Returns:
        The same, as a product in bfloat16 on TPUs; otherwise x itself.
    """
    if not _is_copied(x):
        return x
    return _relaid(x)


def relaid_gradient(x):
    """Returns x, whose gradient is `relaid`.

    Args:
        x: `(batch, n, heads, depth)`.
    """
    if not _is_copied(x):
        return x
    return _relaid_gradient(x)


def _is_copied(x):
    # A TPU rounds the factors of products of float32.
    return x.dtype == tf.bfloat16 and target_device() == "tpu"


@tf.custom_gradient
def _relaid(x):
    return _times_identity(x), tf.identity


@tf.custom_gradient
def _relaid_gradient(x):
    return tf.identity(x), _times_identity


def _times_identity(x):
    heads, depth = x.shape[2:]
    channels = heads * depth
    shape = tf.shape(x)
    rows = tf.reshape(x, [shape[0], shape[1], channels])
    identity = tf.eye(channels, dtype=x.dtype)
    return tf.reshape(tf.einsum("bnc,cd->bnd", rows, identity), shape)
