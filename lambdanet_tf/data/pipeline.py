"""Sources to batches: the `tf.data` pipelines of training and evaluation."""

from collections.abc import Callable

import tensorflow as tf

from lambdanet_tf.data.bad_images import BadImages
from lambdanet_tf.data.decode import Image
from lambdanet_tf.data.parallel import THREADS
from lambdanet_tf.data.parallel import without_tuner
from lambdanet_tf.data.source import EVERYTHING
from lambdanet_tf.data.source import Shard
from lambdanet_tf.data.source import Source

Batch = tuple[tf.Tensor, tf.Tensor]


def training_batches(
    source: Source,
    batch_size: int,
    augment: Callable[[Image, tf.Tensor], tf.Tensor],
    image_shape: tuple[int, int, int],
    mix: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Batch] | None = None,
    seed: int = 0,
    start: int = 0,
    shard: Shard | None = None,
    dtype: str = "float32",
    bad_images: BadImages | None = None,
) -> tf.data.Dataset:
    """Builds the endless pipeline of shuffled, augmented training batches.

    The batches are a function of the seed: the pipeline can begin anywhere and
    repeats exactly, whatever the number of threads. (Two exceptions: images
    that cannot be read shift what follows them, and RandAugment draws from a
    generator of its own.)

    Args:
        source: training images.
        batch_size: images in each batch of this pipeline.
        augment: from an image and a seed, int64 `(2,)`, to pixels in [0, 255]
            of the shape `image_shape`.
        image_shape: (height, width, channels).
        mix: from images, labels and a seed to images and labels, on whole
            batches; or None.
        seed: of the order and the augmentation.
        start: images, of all shards together, to leave out at the beginning.
        shard: the images of this pipeline; None for all.
        dtype: of the images in a batch.
        bad_images: notes what cannot be read.

    Returns:
        A dataset of (images, labels), the labels those of the source unless
        `mix` changes them.
    """

    def prepare(element):
        image, label = source.decode(element)
        pixels = augment(image, element_seed(seed, element["position"]))
        return tf.cast(pixels, dtype), label, element["position"]

    def finish(images, labels, positions):
        if mix is None:
            return images, labels
        images, labels = mix(images, labels, element_seed(~seed, positions[0]))
        return tf.cast(images, dtype), labels

    signature = (
        tf.TensorSpec(image_shape, dtype),
        source.label_spec,
        tf.TensorSpec([], tf.int64),
    )
    elements = source.stream(seed, start, shard or EVERYTHING)
    return (
        _map_images(source, elements, prepare, signature, bad_images)
        .batch(batch_size, drop_remainder=True)
        .map(finish, num_parallel_calls=THREADS)
        .prefetch(tf.data.AUTOTUNE)
    )


def joined_batches(
    labelled: tf.data.Dataset,
    pseudo_labelled: tf.data.Dataset,
    mix: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Batch],
    seed: int = 0,
    start: int = 0,
    shard: Shard | None = None,
) -> tf.data.Dataset:
    """Joins batches of labelled and of pseudo-labelled images, one by one.

    Args:
        labelled: batches of images and int32 labels.
        pseudo_labelled: batches of images and float32 probabilities.
        mix: as for `training_batches`, on the joined batch; its labels are
            probabilities.
        seed: of what `mix` draws.
        start: batches, of all shards together, that were left out.
        shard: that of the batches; None for all.

    Returns:
        A dataset of (images, labels).
    """
    shard = shard or EVERYTHING

    def join(number, pair):
        (images, labels), (others, probabilities) = pair
        one_hot = tf.one_hot(labels, probabilities.shape[-1])
        position = start + number * shard.count + shard.index
        mixed, labels = mix(
            tf.concat([images, others], axis=0),
            tf.concat([one_hot, probabilities], axis=0),
            element_seed(~seed, position),
        )
        return tf.cast(mixed, images.dtype), labels

    return (
        tf.data.Dataset.zip((labelled, pseudo_labelled))
        .enumerate()
        .map(join, num_parallel_calls=THREADS)
        .prefetch(tf.data.AUTOTUNE)
    )


def evaluation_batches(
    source: Source,
    batch_size: int,
    crop: Callable[[Image], tf.Tensor],
    image_shape: tuple[int, int, int],
    shard: Shard | None = None,
    num_batches: int | None = None,
    dtype: str = "float32",
    bad_images: BadImages | None = None,
) -> tf.data.Dataset:
    """Builds the pipeline of evaluation batches: each image once.

    The last batches are filled with zero images of weight 0, so that every
    image counts once although all batches have the same static shape.

    Args:
        source: validation or test images.
        batch_size: images in each batch of this pipeline.
        crop: from an image to pixels in [0, 255] of the shape `image_shape`.
        image_shape: (height, width, channels).
        shard: the images of this pipeline; None for all.
        num_batches: number of batches; None for as many as the shard needs.
        dtype: of the images in a batch.
        bad_images: notes what cannot be read.

    Returns:
        A dataset of (images, labels, weights).
    """
    shard = shard or EVERYTHING

    def prepare(element):
        image, label = source.decode(element)
        return tf.cast(crop(image), dtype), label, 1.0

    signature = (
        tf.TensorSpec(image_shape, dtype),
        source.label_spec,
        tf.TensorSpec([], tf.float32),
    )
    if num_batches is None:
        mine = len(range(shard.index, source.num_images, shard.count))
        num_batches = -(-mine // batch_size)
    blank = tf.data.Dataset.from_tensors(
        tuple(tf.zeros(spec.shape, spec.dtype) for spec in signature)
    ).repeat()
    elements = source.scan(shard)
    return (
        _map_images(source, elements, prepare, signature, bad_images)
        .concatenate(blank)
        .batch(batch_size, drop_remainder=True)
        .take(num_batches)
        .prefetch(tf.data.AUTOTUNE)
    )


def scan_images(
    source: Source,
    prepare: Callable[[Image], tuple[tf.Tensor, ...]],
    signature: tuple[tf.TensorSpec, ...],
    start: int = 0,
    bad_images: BadImages | None = None,
) -> tf.data.Dataset:
    """Maps a function over each image once, in a fixed order, without labels.

    Args:
        source: the images.
        prepare: from an image to tensors.
        signature: what `prepare` returns, fully defined.
        start: images to leave out at the beginning.
        bad_images: notes what cannot be read, and is left out.

    Returns:
        A dataset of what `prepare` returns.
    """
    return _map_images(
        source,
        source.scan().skip(start),
        lambda element: prepare(source.decode(element)[0]),
        signature,
        bad_images,
        check_labels=False,
    )


def element_seed(seed: int, position: tf.Tensor) -> tf.Tensor:
    """Returns the seed of everything random about one element of a stream."""
    mixed = tf.stack([tf.cast(seed, tf.int64), position])
    return tf.random.experimental.stateless_fold_in(mixed, 1)


def _map_images(
    source, elements, prepare, signature, bad_images, check_labels=True
):
    """Maps `prepare` over elements; the second tensor it returns is the label.

    Where images can fail, those that do are left out.
    """
    elements = without_tuner(elements)
    if source.can_fail:
        bad_images = bad_images or BadImages()
        return bad_images.map_or_skip(
            elements,
            prepare,
            signature,
            source.num_classes if check_labels else None,
        )

    def checked(element):
        return tuple(
            tf.ensure_shape(x, spec.shape)
            for x, spec in zip(prepare(element), signature, strict=True)
        )

    return elements.map(checked, num_parallel_calls=THREADS)
