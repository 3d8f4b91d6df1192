"""TFRecord files: ImageNet in its usual layout, or one's own images."""

import os
import re
from collections.abc import Callable
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from lambdanet_tf.arguments import one_of
from lambdanet_tf.data import sets
from lambdanet_tf.data.images import EncodedImage
from lambdanet_tf.data.images import open_image
from lambdanet_tf.data.sources import StreamedSource
from lambdanet_tf.files import matching

# ILSVRC 2012 as it is usually converted: training files and images.
_IMAGENET_FILES, _IMAGENET_IMAGES = 1024, 1_281_167
_IMAGENET_CLASSES = 1000
# To count its training images would mean reading 140 GB.
_IMAGENET_SIZES = np.diff(
    np.linspace(0, _IMAGENET_IMAGES, _IMAGENET_FILES + 1).astype(np.int64)
)
IMAGE = "image/encoded"
LABEL = "image/class/label"
_HEADER, _FOOTER = 12, 4
_PARALLEL_CALLS = 32
_CHECKED_RECORDS = 8192

Parse = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


class RecordSource(StreamedSource):
    """Encoded images in TFRecord files.

    Of a damaged file the records before the damage are read. `parse` maps a
    record to the bytes of an image file and the label. With `skipped`, `sizes`
    records of each file are read after so many; else each file is read whole.
    """

    def __init__(
        self,
        files: Sequence[str],
        sizes: ArrayLike,
        parse: Parse,
        shuffle_buffer: int = 1,
        channels: int = 3,
        skipped: ArrayLike | None = None,
    ):
        super().__init__(sizes, shuffle_buffer)
        self._files, self._parse, self._channels = [*files], parse, channels
        self._skipped = skipped

    def read_file(self, number: tf.Tensor) -> tf.data.Dataset:
        file = tf.gather(self._files, number)
        records = tf.data.TFRecordDataset(file).ignore_errors(log_warning=True)
        if self._skipped is None:
            return records
        skipped = tf.gather(tf.constant(self._skipped, tf.int64), number)
        return records.skip(skipped).take(tf.gather(self._sizes, number))

    def decode(self, item: tf.Tensor) -> tuple[EncodedImage, tf.Tensor]:
        encoded, label = self._parse(item)
        return open_image(encoded, self._channels), label

    def _name(self, file):
        return self._files[file]


def parse_labelled(num_classes: int, first_label: int = 0) -> Parse:
    """Parses a `tf.train.Example` as ImageNet's; fails without valid label."""
    features = {
        IMAGE: tf.io.FixedLenFeature([], tf.string),
        LABEL: tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record):
        example = tf.io.parse_single_example(record, features)
        label = example[LABEL] - first_label
        tf.debugging.assert_less(
            tf.cast(label, tf.uint64),  # Negative ones become large.
            tf.constant(num_classes, tf.uint64),
            f"the label is none of {num_classes} classes",
        )
        return example[IMAGE], tf.cast(label, tf.int32)

    return parse


def parse_unlabelled(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Parses the image of a `tf.train.Example`; its label means nothing."""
    features = {IMAGE: tf.io.FixedLenFeature([], tf.string)}
    return tf.io.parse_single_example(record, features)[IMAGE], tf.constant(0)


def read_records(
    path: str,
    validation_split: float = 0.02,
    shuffle_buffer: int = 16_384,
    classes: int | None = None,
    first_label: int | None = None,
    channels: int = 3,
) -> sets.ImageSet:
    """Reads the `ImageSet` of a folder of TFRecord files, as docs/data.md says.

    Without validation files `validation_split` of the training files, the last
    ones, at least one, are held out; 0 holds out none. `classes` is their
    number; None stands for those of `classes.txt`, and `first_label=None` for
    0, or 1 with ImageNet.
    """
    files = split_files(path)
    is_imagenet = len(files["train"]) == _IMAGENET_FILES
    if validation_split and "validation" not in files:
        kept = len(files["train"])
        kept -= max(round(validation_split * kept), 1)
        if not kept:
            raise ValueError(
                f"{path} must hold validation files, or several training "
                "files, of which the last are held out. Received: one, and "
                f"validation_split={validation_split} (0 holds out none)."
            )
        files["validation"] = files["train"][kept:]
        files["train"] = files["train"][:kept]
    names = _class_names(path, classes, is_imagenet)
    first_label = int(is_imagenet) if first_label is None else first_label
    one_of("first_label", first_label, (0, 1))
    parse = parse_labelled(len(names), first_label)
    sources: dict[str, Any] = {"validation": None}
    for split, found in files.items():
        if is_imagenet and split == "train":
            sizes = _IMAGENET_SIZES[: len(found)]
        else:
            sizes = count_records(found)
        source = RecordSource(found, sizes, parse, shuffle_buffer, channels)
        _check_labels(source, len(found), len(names), first_label)
        sources[split] = source
    return sets.ImageSet(f"records:{path}", names, channels, **sources)


def split_files(
    path: str, needed: Sequence[str] = ("train", "test")
) -> dict[str, list[str]]:
    """Returns the files of each split."""
    named: dict[str, list[str]] = {}
    for file in matching(path, "*"):
        name = os.path.basename(file)
        if re.search(r"-\d+-of-\d+|\.tfrecord", name):
            split = re.split(r"[^a-zA-Z]", name, maxsplit=1)[0]
            named.setdefault(split, []).append(file)
    splits = sets.find_splits(path, named)
    if missing := [split for split in needed if split not in splits]:
        raise ValueError(
            f"{path} must hold TFRecord files {missing[0]}-*-of-* or "
            f"{missing[0]}*.tfrecord (for the test set validation-*-of-* as "
            f"well). Received: {', '.join(named) or 'none'}."
        )
    files = {split: named[name] for split, name in splits.items()}
    for found in files.values():
        check_complete(path, found)
    return files


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
    """Counts the records of each file, from their lengths alone."""
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


def _class_names(path, classes, is_imagenet):
    count = classes or _IMAGENET_CLASSES * is_imagenet
    names = sets.read_class_names(path) or tuple(map(str, range(count)))
    if classes and len(names) != classes:
        raise ValueError(
            f"`classes` must be the number of names in {path}/classes.txt, "
            f"{len(names)}. Received: {classes}."
        )
    if not names:
        raise ValueError(
            f"The classes of {path} are unknown. Write their names to the file "
            "classes.txt in it, one a line, or give their number: "
            f"records:{path},classes=N"
        )
    return names


def _check_labels(source, num_files, num_classes, first_label):
    """Raises a ValueError if one of the first labels is no class.

    If labels count from another number, all are wrong.
    """
    feature = {LABEL: tf.io.FixedLenFeature([], tf.int64)}
    each = max(_CHECKED_RECORDS // num_files, 1)
    examples = (
        tf.data.Dataset.range(num_files)
        .flat_map(lambda number: source.read_file(number).take(each))
        .map(lambda record: tf.io.parse_single_example(record, feature))
        .ignore_errors()
    )
    labels = [int(x[LABEL]) for x in examples.as_numpy_iterator()]
    last_label = first_label + num_classes - 1
    stray = [x for x in labels if not first_label <= x <= last_label]
    if stray:
        raise ValueError(
            f"The labels of {num_classes} classes must be from {first_label} "
            f"to {last_label}. Received: {stray[0]}. Give another number of "
            f"classes, or first_label={1 - first_label}."
        )
