"""Splits to batches: the `tf.data` pipelines of training and evaluation."""

import tensorflow as tf

from lambdanet_tf.data.images import Share


def training_batches(
    split, batch_size, vary=None, seed=0, start=0, share=None, dtype="float32"
):
    """An endless stream of varied, shuffled batches of one fixed size.

    The stream is a function of the seed: it can be begun anywhere and repeats
    exactly, whatever the number of threads.

    Args:
        split: `Split`.
        batch_size: int. Images in each batch of this pipeline.
        vary: callable `(image, seed) -> image` or None.
        seed: int. Decides the order and the variations.
        start: int. Images (of all shares together) to leave out at the start.
        share: `Share` or None. This pipeline's part of the images.
        dtype: str. The type of the images in a batch.

    Returns:
        A `tf.data.Dataset` of `(images, labels)`.
    """

    def prepare(element):
        image = element["image"]
        if split.decode is not None:
            image = split.decode(image)
        if vary is not None:
            image = vary(image, element_seed(seed, element["position"]))
        return tf.cast(image, dtype), element["label"]

    elements = split.endless(seed, start, share or Share())
    return (
        elements.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(batch_size, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def evaluation_batches(
    split, batch_size, prepare=None, share=None, num_batches=None, dtype=None
):
    """Each image once, in batches of one fixed size.

    The last batches are filled with zero images of weight 0, so that every
    image counts once although all batches have the same static shape.

    Args:
        split: `Split`.
        batch_size: int. Images in each batch of this pipeline.
        prepare: callable `image -> image` or None.
        share: `Share` or None. This pipeline's part of the images.
        num_batches: int or None. How many batches to give; None for as many
            as the share needs.
        dtype: str or None. The type of the images; None for float32.

    Returns:
        A `tf.data.Dataset` of `(images, labels, weights)`.
    """
    share = share or Share()

    def one(element):
        image = element["image"]
        if split.decode is not None:
            image = split.decode(image)
        if prepare is not None:
            image = prepare(image)
        return tf.cast(image, dtype or "float32"), element["label"], 1.0

    if num_batches is None:
        mine = len(range(share.index, split.num_images, share.count))
        num_batches = -(-mine // batch_size)
    images = split.once(share).map(one, num_parallel_calls=tf.data.AUTOTUNE)
    blank = tf.data.Dataset.from_tensors(
        tuple(tf.zeros(spec.shape, spec.dtype) for spec in images.element_spec)
    ).repeat()
    return (
        images.concatenate(blank)
        .batch(batch_size, drop_remainder=True)
        .take(num_batches)
        .prefetch(tf.data.AUTOTUNE)
    )


def element_seed(seed, position):
    """The seed of everything random about one element of a stream."""
    mixed = tf.stack([tf.cast(seed, tf.int64), position])
    return tf.random.experimental.stateless_fold_in(mixed, 1)
