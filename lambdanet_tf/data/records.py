"""TFRecord files: ImageNet in its usual layout, or one's own images."""

import functools
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from lambdanet_tf.arguments import one_of
from lambdanet_tf.data.images import EncodedImage
from lambdanet_tf.data.images import open_image
from lambdanet_tf.data.sets import CLASS_FILES
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.data.sets import find_parts
from lambdanet_tf.data.sets import read_class_names
from lambdanet_tf.data.sources import StreamedSource
from lambdanet_tf.files import matching

# ILSVRC 2012 as it is usually converted: training files and images.
_IMAGENET_FILES, _IMAGENET_IMAGES = 1024, 1_281_167
_IMAGENET_CLASSES = 1000
IMAGE = "image/encoded"
LABEL = "image/class/label"
PROBABILITIES = "image/class/probabilities"
_HEADER, _FOOTER = 12, 4
_PARALLEL_CALLS = 32
_CHECKED_RECORDS = 8192


class RecordSource(StreamedSource):
    """Encoded images in TFRecord files.

    A record is a `tf.train.Example` with the features `image/encoded`, the
    bytes of an image file, and `image/class/label`; with soft labels
    `image/class/probabilities` in the place of that. Of a damaged file the
    records before the damage are read.

    Args:
        files: paths on any file system that `tf.io.gfile` knows.
        sizes: the number of records in each file.
        num_classes: number of classes; 0 if the records have no labels.
        first_label: the label of the first class, in the files.
        shuffle_buffer: records among which the next one is drawn.
        channels: 3 for color, 1 for gray.
        soft_labels: whether the labels are probabilities of the classes.

    Raises:
        ValueError: if there is no record.
    """

    def __init__(
        self,
        files: Sequence[str],
        sizes: ArrayLike,
        num_classes: int,
        first_label: int = 0,
        shuffle_buffer: int = 1,
        channels: int = 3,
        soft_labels: bool = False,
    ):
        super().__init__(sizes, shuffle_buffer)
        self._files = list(files)
        self._num_classes, self._first_label = num_classes, first_label
        self._channels = channels
        self._features = {IMAGE: tf.io.FixedLenFeature([], tf.string)}
        if soft_labels:
            row = tf.io.FixedLenFeature([num_classes], tf.float32)
            self._features[PROBABILITIES] = row
        elif num_classes:
            self._features[LABEL] = tf.io.FixedLenFeature([], tf.int64)

    def read_file(self, number: tf.Tensor) -> tf.data.Dataset:
        file = tf.gather(self._files, number)
        return tf.data.TFRecordDataset(file).ignore_errors(log_warning=True)

    def decode(self, item: tf.Tensor) -> tuple[EncodedImage, tf.Tensor]:
        example = tf.io.parse_single_example(item, self._features)
        image = open_image(example[IMAGE], self._channels)
        if PROBABILITIES in example:
            return image, example[PROBABILITIES]
        if LABEL not in example:
            return image, tf.constant(0)
        label = example[LABEL] - self._first_label
        tf.debugging.assert_less(
            tf.cast(label, tf.uint64),  # Negative ones become large.
            tf.constant(self._num_classes, tf.uint64),
            f"the label is none of {self._num_classes} classes",
        )
        return image, tf.cast(label, tf.int32)

    def _name(self, file):
        return self._files[file]


def read_records(
    path: str,
    validation_split: float = 0.02,
    shuffle_buffer: int = 16_384,
    classes: int | None = None,
    first_label: int | None = None,
    channels: int = 3,
) -> ImageSet:
    """Reads the `ImageSet` of a folder of TFRecord files.

    The files are `train-00000-of-01024` and so on, or `train*.tfrecord`; in
    the same way `validation-...` (or `val`, `valid`, `dev`) and `test-...`.
    The test files are the test set, and the validation files where there are
    no test files. With both, the validation files are the validation set and
    `validation_split` is not used. Without, the last files of the training set
    are the validation set.

    The names of the classes stand in `classes.txt` (or `labels.txt`) in the
    folder, one a line. ImageNet is known by its number of files or images: its
    labels count from 1 to 1,000.

    Args:
        path: the folder, on any file system that `tf.io.gfile` knows.
        validation_split: fraction of the training files held out for
            validation, at least one; 0 for none.
        shuffle_buffer: records among which the next one is drawn.
        classes: number of classes; None for that of the file of names.
        first_label: the label of the first class, 0 or 1; None for 0, and for
            1 with ImageNet.
        channels: 3 for color, 1 for gray.

    Returns:
        An `ImageSet`; its pixels are in [0, 255].

    Raises:
        ValueError: if there are no such files, one is cut off, there is but
            one to hold out from, the number of classes is unknown, or the first
            labels are not among them.

    Examples:
        >>> png = tf.io.encode_png(tf.zeros([8, 8, 3], tf.uint8)).numpy()
        >>> example = tf.train.Example()
        >>> features = example.features.feature
        >>> features["image/encoded"].bytes_list.value.append(png)
        >>> features["image/class/label"].int64_list.value.append(1)
        >>> for split in ("train", "test"):
        ...     with tf.io.TFRecordWriter(f"{split}.tfrecord") as file:
        ...         for _ in range(10):
        ...             file.write(example.SerializeToString())
        >>> read_records(".", classes=2, validation_split=0).test.num_images
        10
    """
    files, unread = split_files(path)
    sizes = {split: _sizes(split, found) for split, found in files.items()}
    is_imagenet = sizes["train"].sum() == _IMAGENET_IMAGES
    if validation_split and "validation" not in files:
        kept = _kept(path, len(files["train"]), validation_split)
        files["validation"] = files["train"][kept:]
        sizes["validation"] = count_records(files["validation"])
        files["train"], sizes["train"] = (
            files["train"][:kept],
            sizes["train"][:kept],
        )
    names = _class_names(path, classes, is_imagenet)
    first_label = int(is_imagenet) if first_label is None else first_label
    one_of("first_label", first_label, (0, 1))
    for found in files.values():
        _check_labels(found, len(names), first_label)
    make_source = functools.partial(
        RecordSource,
        num_classes=len(names),
        first_label=first_label,
        shuffle_buffer=shuffle_buffer,
        channels=channels,
    )
    sources = {
        split: make_source(found, sizes[split])
        for split, found in files.items()
    }
    parts = [sources.get(part) for part in ("train", "validation", "test")]
    return ImageSet.build(
        f"records:{path}",
        names,
        channels,
        parts,
        f"TFRecords in {path}",
        [f"not read: {name}*" for name in unread],
    )


def split_files(
    path: str, needed: Sequence[str] = ("train", "test")
) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the files of each split, and names of what is not read.

    Raises:
        ValueError: if a needed split is missing or not whole.
    """
    named = {}
    for file in matching(path, "*"):
        name = os.path.basename(file)
        if re.search(r"-\d+-of-\d+|\.tfrecord", name):
            split = re.split(r"[^a-zA-Z]", name, maxsplit=1)[0]
            named.setdefault(split, []).append(file)
    splits = find_parts(path, named)
    for split in needed:
        if split not in splits:
            raise ValueError(
                f"{path} must hold TFRecord files {split}-*-of-* or "
                f"{split}*.tfrecord (for the test set validation-*-of-* as "
                f"well). Received: {', '.join(named) or 'none'}."
            )
    files = {split: named.pop(name) for split, name in splits.items()}
    for found in files.values():
        check_complete(path, found)
    return files, list(named)


def check_complete(path: str, files: Sequence[str]) -> None:
    """Raises a ValueError unless all files `-of-` their number are there."""
    name = os.path.basename(files[0])
    announced = re.search(r"-of-(\d+)", name)
    if announced and int(announced[1]) != len(files):
        raise ValueError(
            f"{path} must hold all {int(announced[1])} files "
            f"{name.split('-')[0]}-*-of-*. Received: {len(files)} of them."
        )


def count_records(files: Sequence[str]) -> np.ndarray:
    """Counts the records of each file, from their lengths alone.

    Raises:
        ValueError: if a file ends inside a record.
    """
    # One by one, thousands of files of a bucket would take minutes.
    with ThreadPoolExecutor(_PARALLEL_CALLS) as pool:
        return np.array([*pool.map(_count, files)], np.int64)


def _count(path):
    size = tf.io.gfile.stat(path).length
    position = count = 0
    with tf.io.gfile.GFile(path, "rb") as stream:
        while position < size:
            stream.seek(position)
            length = int.from_bytes(stream.read(8), "little")
            position += _HEADER + length + _FOOTER
            count += 1
    if position != size:
        raise ValueError(
            f"{path} is damaged, its last record is cut off; or it is not an "
            "uncompressed TFRecord file."
        )
    return count


def _sizes(split, files):
    """Counts files, but not ImageNet's: that would mean reading 140 GB."""
    if split == "train" and len(files) == _IMAGENET_FILES:
        ends = np.linspace(0, _IMAGENET_IMAGES, _IMAGENET_FILES + 1)
        return np.diff(ends.astype(np.int64))
    return count_records(files)


def _kept(path, files, validation_split):
    """Returns how many training files are left for training."""
    kept = files - max(round(validation_split * files), 1)
    if not kept:
        raise ValueError(
            f"{path} must hold several training files, of which the last are "
            f"held out for validation; or validation files. Received: {files}, "
            f"validation_split={validation_split} (0 holds out none)."
        )
    return kept


def _class_names(path, classes, is_imagenet):
    count = classes or _IMAGENET_CLASSES * is_imagenet
    names = read_class_names(path) or tuple(map(str, range(count)))
    if not names:
        raise ValueError(
            f"The classes of {path} are unknown. Write their names to "
            f"{os.path.join(path, CLASS_FILES[0])}, one a line, or give their "
            f"number: records:{path},classes=N"
        )
    if classes not in (None, len(names)):
        raise ValueError(
            f"`classes` must be the number of names in {path}, {len(names)}. "
            f"Received: {classes}."
        )
    return names


def _check_labels(files, num_classes, first_label):
    """Raises a ValueError if one of the first labels is no class.

    Labels that count from another number would all be wrong. (A stray one later
    makes its image a corrupt one.)
    """
    each = max(_CHECKED_RECORDS // len(files), 1)
    feature = {LABEL: tf.io.FixedLenFeature([], tf.int64)}
    found = (
        tf.data.Dataset.from_tensor_slices(files)
        .flat_map(
            lambda file: (
                tf.data.TFRecordDataset(file).ignore_errors().take(each)
            )
        )
        .map(lambda x: tf.io.parse_single_example(x, feature)[LABEL])
        .ignore_errors()
    )
    labels = np.array([*found.as_numpy_iterator()])
    if not labels.size:
        raise ValueError(
            f"{files[0]} must hold tf.train.Examples with the features "
            f"{IMAGE} and {LABEL}."
        )
    last_label = first_label + num_classes - 1
    stray = labels[(labels < first_label) | (labels > last_label)]
    if stray.size:
        raise ValueError(
            f"The labels of {num_classes} classes must be from {first_label} "
            f"to {last_label}. Received: {stray[0]} in {files[0]} or its like. "
            "Give another number of classes, or "
            f"first_label={1 - first_label}."
        )
