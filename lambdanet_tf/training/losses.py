"""The loss and the counts of right answers, for logits."""

import tensorflow as tf


def cross_entropy(labels, logits, smoothing=0.0):
    """Softmax cross-entropy of each example, in float32.

    With smoothing s and c classes the target is (1 - s) * label + s / c.

    Args:
        labels: int tensor `(batch,)` of class indices, or float tensor
            `(batch, classes)` of probabilities.
        logits: tensor `(batch, classes)`.
        smoothing: float. Probability that is spread over all classes.

    Returns:
        A float32 tensor `(batch,)`.
    """
    logits = tf.cast(logits, tf.float32)
    if labels.shape.rank == 1:
        labels = tf.one_hot(labels, logits.shape[-1])
    labels = (1.0 - smoothing) * labels + smoothing / logits.shape[-1]
    return tf.nn.softmax_cross_entropy_with_logits(labels, logits)


def correct(labels, logits, top=1):
    """Whether the label is among the `top` likeliest classes, as 0 or 1.

    A class that is as likely as the label, or not a number, stands before it:
    constant logits are never right by luck.

    Args:
        labels: as for `cross_entropy`; of probabilities the largest counts.
        logits: tensor `(batch, classes)`.
        top: int.

    Returns:
        A float32 tensor `(batch,)`.
    """
    if labels.shape.rank == 2:
        labels = tf.argmax(labels, axis=-1, output_type=tf.int32)
    logits = tf.cast(logits, tf.float32)
    own = tf.gather(logits, labels, axis=-1, batch_dims=1)
    below = tf.cast(logits < own[:, tf.newaxis], tf.int32)
    place = logits.shape[-1] - tf.reduce_sum(below, axis=-1)
    return tf.cast(place <= top, tf.float32)
