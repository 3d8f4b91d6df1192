"""Splits to batches: the `tf.data` pipelines of training and evaluation."""

import tensorflow as tf

from lambdanet_tf.data.bad_images import BadImages
from lambdanet_tf.data.images import Share


def training_batches(
    split,
    batch_size,
    vary,
    image_shape,
    mix=None,
    seed=0,
    start=0,
    share=None,
    dtype="float32",
    bad_images=None,
):
    """An endless stream of varied, shuffled batches of one fixed size.

    The stream is a function of the seed: it can be begun anywhere and repeats
    exactly, whatever the number of threads. (Two exceptions: images that cannot
    be read shift what follows them, and RandAugment draws for itself.)

    Args:
        split: `Split`.
        batch_size: int. Images in each batch of this pipeline.
        vary: callable `(image, seed) -> array`, from an `ArrayImage` or an
            `EncodedImage` to pixels in [0, 255] of the shape `image_shape`.
        image_shape: (height, width, channels).
        mix: callable `(images, labels, seed) -> (images, labels)` on whole
            batches, or None.
        seed: int. Decides the order and the variations.
        start: int. Images (of all shares together) to leave out at the start.
        share: `Share` or None. This pipeline's part of the images.
        dtype: str. The type of the images in a batch.
        bad_images: `BadImages` that takes note of what cannot be read, or
            None.

    Returns:
        A `tf.data.Dataset` of `(images, labels)`.
    """

    def prepare(element):
        image, label = split.read(element)
        image = vary(image, element_seed(seed, element["position"]))
        return tf.cast(image, dtype), label, element["position"]

    signature = (
        tf.TensorSpec(image_shape, dtype),
        tf.TensorSpec([], tf.int32),
        tf.TensorSpec([], tf.int64),
    )

    def finish(images, labels, positions):
        if mix is None:
            return images, labels
        images, labels = mix(images, labels, element_seed(~seed, positions[0]))
        return tf.cast(images, dtype), labels

    elements = split.endless(seed, start, share or Share())
    return (
        _prepared(split, elements, prepare, signature, bad_images)
        .batch(batch_size, drop_remainder=True)
        .map(finish, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def evaluation_batches(
    split,
    batch_size,
    crop,
    image_shape,
    share=None,
    num_batches=None,
    dtype="float32",
    bad_images=None,
):
    """Each image once, in batches of one fixed size.

    The last batches are filled with zero images of weight 0, so that every
    image counts once although all batches have the same static shape.

    Args:
        split: `Split`.
        batch_size: int. Images in each batch of this pipeline.
        crop: callable from an `ArrayImage` or an `EncodedImage` to pixels in
            [0, 255] of the shape `image_shape`.
        image_shape: (height, width, channels).
        share: `Share` or None. This pipeline's part of the images.
        num_batches: int or None. How many batches to give; None for as many
            as the share needs.
        dtype: str. The type of the images.
        bad_images: `BadImages` that takes note of what cannot be read, or
            None.

    Returns:
        A `tf.data.Dataset` of `(images, labels, weights)`.
    """
    share = share or Share()

    def prepare(element):
        image, label = split.read(element)
        return tf.cast(crop(image), dtype), label, 1.0

    signature = (
        tf.TensorSpec(image_shape, dtype),
        tf.TensorSpec([], tf.int32),
        tf.TensorSpec([], tf.float32),
    )
    if num_batches is None:
        mine = len(range(share.index, split.num_images, share.count))
        num_batches = -(-mine // batch_size)
    blank = tf.data.Dataset.from_tensors(
        tuple(tf.zeros(spec.shape, spec.dtype) for spec in signature)
    ).repeat()
    elements = split.once(share)
    return (
        _prepared(split, elements, prepare, signature, bad_images)
        .concatenate(blank)
        .batch(batch_size, drop_remainder=True)
        .take(num_batches)
        .prefetch(tf.data.AUTOTUNE)
    )


def element_seed(seed, position):
    """The seed of everything random about one element of a stream."""
    mixed = tf.stack([tf.cast(seed, tf.int64), position])
    return tf.random.experimental.stateless_fold_in(mixed, 1)


def _prepared(split, elements, prepare, signature, bad_images):
    if split.can_fail:
        bad_images = bad_images or BadImages()
        return bad_images.skip_in(elements, prepare, signature)

    def checked(element):
        return tuple(
            tf.ensure_shape(x, spec.shape)
            for x, spec in zip(prepare(element), signature, strict=True)
        )

    return elements.map(checked, num_parallel_calls=tf.data.AUTOTUNE)
