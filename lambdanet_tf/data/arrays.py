"""Images in NumPy arrays."""

import numpy as np
import tensorflow as tf

from lambdanet_tf.data.images import Split


def array_split(images, labels):
    """A `Split` of images in memory.

    Args:
        images: array `(number, height, width, channels)`, in [0, 255].
        labels: array `(number,)` of class indices.

    Returns:
        A `Split`.

    Raises:
        ValueError: if the arrays do not fit together or hold no image.
    """
    images, labels = np.asarray(images), np.asarray(labels)
    if images.ndim != 4:
        raise ValueError(
            "`images` must have the shape (number, height, width, channels). "
            f"Received: shape {images.shape}."
        )
    if labels.shape != images.shape[:1]:
        raise ValueError(
            "`labels` must hold one class index for each image. Received: "
            f"shape {labels.shape} for images of shape {images.shape}."
        )
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"`labels` must be whole numbers. Received: {labels.dtype}."
        )
    labels = labels.astype(np.int32)
    return indexed_split(
        len(images), lambda: (tf.constant(images), tf.constant(labels))
    )


def indexed_split(num_images, make_columns, decode=None):
    """A `Split` of images that can be fetched by their number.

    The order of a pass is a pseudo-random permutation that is computed, not
    stored, so reading can start at any position without reading what is
    before it.

    Args:
        num_images: int.
        make_columns: callable without arguments that returns two tensors, the
            images (or their encoded bytes or paths) and the labels. Called
            inside the pipeline's own graph.
        decode: see `Split`.

    Returns:
        A `Split`.

    Raises:
        ValueError: if there is no image.
    """
    if num_images < 1:
        raise ValueError("A split must hold at least one image. Received: 0.")

    def fetch_from(positions, index_of):
        with tf.device("CPU:0"):
            images, labels = make_columns()

        def fetch(position):
            index = index_of(position)
            return {
                "image": tf.gather(images, index),
                "label": tf.gather(labels, index),
                "position": position,
            }

        return positions.map(fetch)

    def endless(seed, start, share):
        def index_of(position):
            pass_number = position // num_images
            return tf.random.experimental.index_shuffle(
                position % num_images,
                tf.cast(tf.stack([seed, pass_number]), tf.int32),
                num_images - 1,
            )

        positions = tf.data.Dataset.range(
            start + share.index, np.iinfo(np.int64).max, share.count
        )
        return fetch_from(positions, index_of)

    def once(share):
        positions = tf.data.Dataset.range(share.index, num_images, share.count)
        return fetch_from(positions, lambda position: position)

    return Split(num_images, endless, once, decode)
