"""Pseudo-labelled images: TFRecords with the probabilities of a teacher.

    pseudo-00000-of-00003.tfrecord    the images, `write_example`
    classes.txt                       the names of the classes, one per line

A record is a `tf.train.Example` as for ImageNet (`image/encoded`,
`image/class/label`, from 0). It adds `image/class/probabilities`, a number for
each class.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import users_input
from lambdanet_tf.data import folders
from lambdanet_tf.data import names
from lambdanet_tf.data import records
from lambdanet_tf.data import sets
from lambdanet_tf.data.sources import Source
from lambdanet_tf.files import matching

PROBABILITIES = "image/class/probabilities"
FILE_NAME = "pseudo-{number:05d}-of-{count:05d}.tfrecord"


@users_input()
def read_pseudo_labels(
    folder: str,
    classes: Sequence[str],
    channels: int = 3,
    shuffle_buffer: int = 16_384,
) -> records.RecordSource:
    """Opens the images that a teacher has labelled.

    Args:
        folder: folder that `lambdanet label` wrote.
        classes: the names of the classes of the labelled images.
        channels: 3 for color, 1 for gray.
        shuffle_buffer: number of records in the shuffle buffer.

    Returns:
        A source of the images, with the teacher's probabilities.

    Raises:
        ValueError: if the folder has no such files, or has other classes.
    """
    files = matching(folder, "pseudo-*-of-*.tfrecord")
    found = sets.read_class_names(folder) if files else None
    if found != tuple(classes):
        raise ValueError(
            "`pseudo_labels` must be a folder from `lambdanet label`, with the "
            "same classes as the data, in the same order. Received: "
            f"{folder!r}, with {len(found or ())} classes."
        )
    records.check_complete(folder, files)

    def parse(record):
        shape = [len(classes)]
        return records.parse_example(record, PROBABILITIES, shape, tf.float32)

    sizes = records.count_records(files)
    return records.RecordSource(files, sizes, parse, shuffle_buffer, channels)


@users_input()
def unlabelled_images(
    images: str,
    channels: int = 3,
    validation_split: float = 0.1,
    bits: int = 16,
) -> Source:
    """Opens images without labels.

    Args:
        images: a folder of image files, also in subfolders, or a name for
            `load_images`, of which only the training images are used.
        channels: 3 for color, 1 for gray, for images in a folder.
        validation_split: as in `load_images`.
        bits: as in `EncodedImage`, for images in a folder.

    Returns:
        A source of images; ignore its labels.
    """
    if names.is_image_set(images):
        return names.load_images(images, validation_split).train
    files = folders.find_images(images)
    labels = np.zeros(len(files), np.int32)
    return folders.FileSource(files, labels, channels=channels, bits=bits)


def write_example(encoded: bytes, probabilities: np.ndarray) -> bytes:
    """Returns the record of an image file and its `(classes,)` numbers."""
    example = tf.train.Example()
    feature = example.features.feature
    feature[records.IMAGE].bytes_list.value.append(encoded)
    feature[records.LABEL].int64_list.value.append(
        int(np.argmax(probabilities))
    )
    feature[PROBABILITIES].float_list.value.extend(probabilities)
    return example.SerializeToString()


def read_label(record: bytes) -> int:
    """Returns the most likely class of a record."""
    example = tf.train.Example.FromString(record)
    return example.features.feature[records.LABEL].int64_list.value[0]
