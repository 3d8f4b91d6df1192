"""Mixup and cutmix: batches whose images are mixtures of two."""

import tensorflow as tf


def mixup(
    images: tf.Tensor,
    labels: tf.Tensor,
    seed: tf.Tensor,
    num_classes: int,
    alpha: float,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mixes each image with its neighbor in the batch, as a weighted mean.

    With l drawn from Beta(alpha, alpha) for each pair, image i becomes
    l x_i + (1 - l) x_j, and so does its label; j is the place i + 1.

    Args:
        images: tensor `(batch, height, width, channels)`.
        labels: int tensor `(batch,)` or float tensor `(batch, num_classes)`.
        seed: int tensor `(2,)`.
        num_classes: number of classes.
        alpha: positive.

    Returns:
        float32 images, and float32 labels `(batch, num_classes)` as
        probabilities.
    """
    images = tf.cast(images, tf.float32)
    labels = probabilities(labels, num_classes)
    share = beta([tf.shape(images)[0]], seed, alpha)
    wide = share[:, tf.newaxis, tf.newaxis, tf.newaxis]
    mixed = wide * images + (1.0 - wide) * tf.roll(images, -1, axis=0)
    share = share[:, tf.newaxis]
    return mixed, share * labels + (1.0 - share) * tf.roll(labels, -1, axis=0)


def cutmix(
    images: tf.Tensor,
    labels: tf.Tensor,
    seed: tf.Tensor,
    num_classes: int,
    alpha: float,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Replaces a box of each image by that of its neighbor in the batch.

    The box has the proportions of the image and 1 - l of its area, l drawn
    from Beta(alpha, alpha) for each pair; where it reaches over the border it
    is cut, and the labels are weighted by the area that was really replaced.

    Args:
        images: as for `mixup`.
        labels: as for `mixup`.
        seed: int tensor `(2,)`.
        num_classes: number of classes.
        alpha: positive.

    Returns:
        As `mixup`.
    """
    images = tf.cast(images, tf.float32)
    labels = probabilities(labels, num_classes)
    batch, height, width = tf.unstack(tf.shape(images)[:3])
    side = tf.sqrt(1.0 - beta([batch], seed, alpha))
    centers = tf.random.stateless_uniform(
        [2, batch], tf.random.experimental.stateless_fold_in(seed, 1)
    )
    inside_y = _inside(height, centers[0], side)
    inside_x = _inside(width, centers[1], side)
    box = inside_y[:, :, tf.newaxis] & inside_x[:, tf.newaxis, :]
    mixed = tf.where(box[..., tf.newaxis], tf.roll(images, -1, axis=0), images)
    kept = 1.0 - tf.reduce_mean(tf.cast(box, tf.float32), axis=[1, 2])
    kept = kept[:, tf.newaxis]
    return mixed, kept * labels + (1.0 - kept) * tf.roll(labels, -1, axis=0)


def beta(shape: list, seed: tf.Tensor, alpha: float) -> tf.Tensor:
    """Draws from the distribution Beta(alpha, alpha)."""
    first, second = tf.unstack(
        tf.random.stateless_gamma(tf.concat([[2], shape], axis=0), seed, alpha)
    )
    return first / (first + second)


def probabilities(labels: tf.Tensor, num_classes: int) -> tf.Tensor:
    """Returns float32 labels `(batch, num_classes)`: one-hot, if of classes."""
    if labels.shape.rank == 1:
        labels = tf.one_hot(labels, num_classes)
    return tf.cast(labels, tf.float32)


def _inside(length, center, side):
    """Which of `length` pixels lie inside a box, for each of a batch."""
    size = tf.cast(length, tf.float32)
    middle, half = center * size, side * size / 2.0
    pixels = tf.range(size)[tf.newaxis, :] + 0.5
    return tf.abs(pixels - middle[:, tf.newaxis]) < half[:, tf.newaxis]
