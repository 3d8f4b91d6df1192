"""Pseudo-labelled images: TFRecords with the probabilities of a teacher.

    pseudo-00000-of-00003.tfrecord    the images, `write_example`
    classes.txt                       the names of the classes, one a line

A record is a `tf.train.Example` as ImageNet's (`image/encoded`,
`image/class/label`, from 0) with `image/class/probabilities`, a number for
each class.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import users_input
from lambdanet_tf.data.folders import FileSource
from lambdanet_tf.data.folders import find_images
from lambdanet_tf.data.names import is_image_set
from lambdanet_tf.data.names import load_images
from lambdanet_tf.data.names import split_options
from lambdanet_tf.data.records import IMAGE
from lambdanet_tf.data.records import LABEL
from lambdanet_tf.data.records import RecordSource
from lambdanet_tf.data.records import check_complete
from lambdanet_tf.data.records import count_records
from lambdanet_tf.data.records import parse_unlabelled
from lambdanet_tf.data.records import split_files
from lambdanet_tf.data.sets import CLASS_FILES
from lambdanet_tf.data.sets import read_class_names
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
) -> RecordSource:
    """Opens the images that a teacher has labelled.

    Args:
        folder: what `lambdanet label` has written.
        classes: the names of the classes of the labelled images.
        channels: 3 for color, 1 for gray.
        shuffle_buffer: records among which the next one is drawn.

    Returns:
        A source of the images, with the probabilities that the teacher gave.

    Raises:
        ValueError: if the folder holds no such files, not all of them, or
            those of other classes.

    Examples:
        >>> run = training.RunFolder("runs/smoke").read()
        >>> keep = training.LabelOptions(threshold=0.0, images_per_class=0)
        >>> labels = training.label_images(run, "digits", "labels", keep, str)
        >>> read_pseudo_labels("labels", run.classes, channels=1).num_images > 0
        True
    """
    files = matching(folder, "pseudo-*-of-*.tfrecord")
    names = read_class_names(folder) if files else None
    if names is None:
        raise ValueError(
            "`pseudo_labels` must be a folder with files "
            f"pseudo-*-of-*.tfrecord and {CLASS_FILES[0]}, which lambdanet "
            f"label writes. Received: {folder!r}."
        )
    check_complete(folder, files)
    if names != tuple(classes):
        raise ValueError(
            "`pseudo_labels` must be of the same classes, in the same order, "
            f"as the data. Received: {', '.join(names[:5])} ... "
            f"({len(names)} in {folder}) and {', '.join(classes[:5])} ... "
            f"({len(classes)})."
        )
    features = {
        IMAGE: tf.io.FixedLenFeature([], tf.string),
        PROBABILITIES: tf.io.FixedLenFeature([len(names)], tf.float32),
    }

    def parse(record):
        example = tf.io.parse_single_example(record, features)
        return example[IMAGE], example[PROBABILITIES]

    sizes = count_records(files)
    return RecordSource(files, sizes, parse, shuffle_buffer, channels)


@users_input()
def unlabelled_images(
    images: str,
    channels: int = 3,
    data_dir: str | None = None,
    validation_split: float = 0.1,
) -> Source:
    """Opens images without labels.

    Args:
        images: a folder with image files in it or below, all of which are
            meant; or an image set as `load_images` takes it, whose training
            images are meant and whose labels are not used.
        channels: 3 for color, 1 for gray.
        data_dir: where TensorFlow Datasets keeps its sets.
        validation_split: fraction of a set's training images that is held out
            for validation; of `records:` none is.

    Returns:
        A source whose labels mean nothing.

    Raises:
        ValueError: if there is no such folder or set, or no image in it.
        ImportError: if an optional package is missing.

    Examples:
        >>> unlabelled_images("digits", channels=1).num_images
        1295
    """
    kind, _, place = images.partition(":")
    if not is_image_set(images):
        files = find_images(images)
        return FileSource(files, np.zeros(len(files), np.int32), channels)
    if kind == "records":
        place, _ = split_options(kind, place)
        files = split_files(place, needed=("train",))[0]["train"]
        sizes = count_records(files)
        return RecordSource(files, sizes, parse_unlabelled, channels=channels)
    if kind == "folder" and ",channels=" not in place:
        images += f",channels={channels}"
    found = load_images(images, validation_split, data_dir)
    if found.channels != channels:
        raise ValueError(
            f"`images` must have {channels} channels. Received: "
            f"{found.channels} in {images}."
        )
    return found.train


def write_example(encoded: bytes, probabilities: np.ndarray) -> bytes:
    """Returns the record of an image.

    Args:
        encoded: the bytes of an image file.
        probabilities: array `(classes,)`.
    """
    example = tf.train.Example()
    feature = example.features.feature
    feature[IMAGE].bytes_list.value.append(encoded)
    feature[LABEL].int64_list.value.append(int(np.argmax(probabilities)))
    feature[PROBABILITIES].float_list.value.extend(probabilities)
    return example.SerializeToString()


def read_probabilities(record: bytes) -> np.ndarray:
    """Returns the probabilities of a record, float32 `(classes,)`."""
    example = tf.train.Example.FromString(record)
    values = example.features.feature[PROBABILITIES]
    return np.array(values.float_list.value, np.float32)
