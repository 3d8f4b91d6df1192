"""TFRecord files: ImageNet in its usual layout, or one's own images."""

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.data.decode import EncodedImage
from lambdanet_tf.data.image_set import CLASS_FILES
from lambdanet_tf.data.image_set import PARTS
from lambdanet_tf.data.image_set import ImageSet
from lambdanet_tf.data.image_set import name_test_part
from lambdanet_tf.data.image_set import read_class_names
from lambdanet_tf.data.image_set import validation_count
from lambdanet_tf.data.source import Element
from lambdanet_tf.data.source import StreamedSource

# ILSVRC 2012 as it is usually converted: files and images of each part.
_IMAGENET = {("train", 1024): 1_281_167, ("test", 128): 50_000}
_IMAGENET_CLASSES = 1000
_ENCODED = {"image/encoded": tf.io.FixedLenFeature([], tf.string)}
_FEATURES = {
    **_ENCODED,
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}
PROBABILITIES = "image/class/probabilities"
_HEADER, _FOOTER = 12, 4
_CHECKED_RECORDS = 32


@dataclasses.dataclass(frozen=True)
class EvenlySpaced:
    """Some of the records of a set, evenly spaced; or all the others.

    Attributes:
        chosen: how many are chosen.
        total: of how many.
        others: whether the others are meant.
    """

    chosen: int
    total: int
    others: bool = False

    def contains(self, number: Any) -> Any:
        """Returns whether records are meant, by their int64 numbers."""
        before = number * self.chosen // self.total
        after = (number + 1) * self.chosen // self.total
        return (before == after) if self.others else (before != after)


class RecordSource(StreamedSource):
    """Encoded images in TFRecord files.

    A record is a `tf.train.Example` with the features `image/encoded`, the
    bytes of an image file, and `image/class/label`; with soft labels
    `image/class/probabilities` in the place of that.

    Of a damaged file the records before the damage are read. One more element
    stands for the rest: it cannot be decoded, and its name says from which
    record on nothing could be read.

    Args:
        files: paths on any file system that `tf.io.gfile` knows.
        counts: the number of records in each file.
        num_classes: number of classes.
        first_label: the label of the first class, in the files.
        shuffle_buffer: records among which the next one is drawn.
        channels: 3 for color, 1 for gray.
        subset: the records to read; None for all.
        soft_labels: whether the labels are probabilities of the classes.

    Raises:
        ValueError: if there is no record.
    """

    def __init__(
        self,
        files: Sequence[str],
        counts: np.ndarray,
        num_classes: int,
        first_label: int,
        shuffle_buffer: int,
        channels: int = 3,
        subset: EvenlySpaced | None = None,
        soft_labels: bool = False,
    ):
        ends = np.cumsum(counts)
        if subset is not None:
            numbers = np.split(np.arange(ends[-1]), ends[:-1])
            counts = np.array([subset.contains(n).sum() for n in numbers])
        # Probabilities have no range of classes to check.
        checked = None if soft_labels else num_classes
        super().__init__(counts, shuffle_buffer, checked)
        self._files = list(files)
        self._bytes = [tf.io.gfile.stat(file).length for file in files]
        self._first_numbers = np.concatenate([[0], ends[:-1]])
        self._first_label = first_label
        self._channels = channels
        self._subset = subset
        self._features = _FEATURES
        if soft_labels:
            self.label_spec = tf.TensorSpec([num_classes], tf.float32)
            row = tf.io.FixedLenFeature([num_classes], tf.float32)
            self._features = {**_ENCODED, PROBABILITIES: row}

    def read_piece(self, number: tf.Tensor) -> tf.data.Dataset:
        records = read_file(
            tf.gather(self._files, number),
            tf.gather(tf.constant(self._bytes, tf.int64), number),
        )
        if self._subset is not None:
            first = tf.gather(self._first_numbers, number)
            records = records.filter(
                lambda element: self._subset.contains(first + element["number"])
            )
        return records

    def decode(self, element: Element) -> tuple[EncodedImage, tf.Tensor]:
        example = tf.io.parse_single_example(element["record"], self._features)
        image = EncodedImage(example["image/encoded"], self._channels)
        if PROBABILITIES in example:
            return image, example[PROBABILITIES]
        label = tf.cast(example["image/class/label"], tf.int32)
        return image, label - self._first_label


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
    the same way `validation-...` (or `val`) and `test-...`. The test files are
    the test set, and the validation files where there are no test files. With
    both, the validation files are the validation set and `validation_split` is
    not used. Without, the last files of the training set are the validation
    set; or, where there are too few files, evenly spaced records.

    The names of the classes stand in `classes.txt` (or `labels.txt`) in the
    folder, one a line. ImageNet is known by its number of files or images: its
    labels count from 1 to 1,000.

    Args:
        path: the folder, on any file system that `tf.io.gfile` knows.
        validation_split: share of the training files, or images, that becomes
            the validation set.
        shuffle_buffer: records among which the next one is drawn.
        classes: number of classes; None for that of the file of names.
        first_label: the label of the first class, 0 or 1; None for 0, and for
            1 with ImageNet.
        channels: 3 for color, 1 for gray.

    Raises:
        ValueError: if there are no such files, one is cut off, the number of
            classes is unknown, or the first labels are not among them.
    """
    files = _part_files(path)
    counts = {part: _count(part, found) for part, found in files.items()}
    is_imagenet = counts["train"].sum() == _IMAGENET["train", 1024]
    names = _class_names(path, classes, is_imagenet)
    first_label = int(is_imagenet) if first_label is None else first_label
    one_of("first_label", first_label, (0, 1))
    _check_first_labels(files["train"], len(names), first_label)
    make_source = functools.partial(
        RecordSource,
        num_classes=len(names),
        first_label=first_label,
        shuffle_buffer=shuffle_buffer,
        channels=channels,
    )
    sources = {part: make_source(files[part], counts[part]) for part in files}
    if validation_split and "validation" not in files:
        sources |= _hold_out(
            make_source, files["train"], counts["train"], validation_split
        )
    parts = [sources.get(part) for part in ("train", "validation", "test")]
    origin = f"TFRecords in {path}"
    return ImageSet.build(f"records:{path}", names, channels, parts, origin)


def count_records(path: str) -> int:
    """Counts the records of a TFRecord file, from their lengths alone.

    Raises:
        ValueError: if the file ends inside a record.
    """
    size = tf.io.gfile.stat(path).length
    count = position = 0
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


def read_file(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
    """Reads the records of a file; of a damaged one those before the damage.

    A damaged file ends with an empty record whose name says what happened.

    Args:
        path: scalar string tensor.
        size: scalar int64 tensor. Bytes of the file.

    Returns:
        A dataset of {"name", "number", "record"}.
    """
    records = tf.data.TFRecordDataset(path).ignore_errors()
    end = tf.data.Dataset.from_tensors(("", True))

    def follow(seen, numbered):
        number, (record, is_end) = numbered
        what = tf.where(is_end, "damaged, nothing read from record", "record")
        text = tf.strings.as_string(number)
        element = {
            "name": tf.strings.join([path, ": ", what, " ", text]),
            "number": number,
            "record": record,
        }
        is_undamaged_end = is_end & tf.equal(seen, size)
        length = tf.cast(tf.strings.length(record), tf.int64)
        return seen + _HEADER + length + _FOOTER, (is_undamaged_end, element)

    return (
        records.map(lambda record: (record, False))
        .concatenate(end)
        .enumerate()
        .scan(tf.constant(0, tf.int64), follow)
        .filter(lambda is_undamaged_end, element: ~is_undamaged_end)
        .map(lambda is_undamaged_end, element: element)
    )


def _hold_out(make_source, files, counts, validation_split):
    """Divides the training records into training and validation sources.

    The last files where their share makes one, else evenly spaced records.
    """
    total = int(counts.sum())
    num_train = len(files) - round(validation_split * len(files))
    if 0 < num_train < len(files):
        held = np.array([count_records(file) for file in files[num_train:]])
        kept = counts[:num_train].copy()
        kept[-1] += total - held.sum() - kept.sum()  # estimates add up again
        return {
            "train": make_source(files[:num_train], kept),
            "validation": make_source(files[num_train:], held),
        }
    held = validation_count(validation_split, total)
    subset = EvenlySpaced(held, total)
    others = dataclasses.replace(subset, others=True)
    return {
        "train": make_source(files, counts, subset=others),
        "validation": make_source(files, counts, subset=subset),
    }


def _part_files(path):
    """The files of each part: "train", "test" and maybe "validation"."""
    found = {}
    for part, names in PARTS.items():
        for name in names:
            for pattern in (f"{name}-*-of-*", f"{name}*.tfrecord*"):
                matches = tf.io.gfile.glob(os.path.join(path, pattern))
                if matches and part not in found:
                    found[part] = sorted(matches)
    found = name_test_part(found)
    for part in ("train", "test"):
        if part not in found:
            raise ValueError(
                f"{path} must hold TFRecord files {part}-*-of-* or "
                f"{part}*.tfrecord (for the test set validation-*-of-* as "
                "well). Received: none."
            )
    for files in found.values():
        check_complete(path, files)
    return found


def check_complete(path: str, files: Sequence[str]) -> None:
    """Raises a ValueError unless all files `-of-` their number are there."""
    name = os.path.basename(files[0])
    if "-of-" in name:
        announced = int(name.rsplit("-of-", 1)[1].split(".")[0])
        if announced != len(files):
            raise ValueError(
                f"{path} must hold all {announced} files "
                f"{name.split('-')[0]}-*-of-*. Received: {len(files)} of them."
            )


def _count(part, files):
    """The number of records in each file; with ImageNet an estimate."""
    if total := _IMAGENET.get((part, len(files))):
        return np.diff(np.linspace(0, total, len(files) + 1).astype(int))
    return np.array([count_records(file) for file in files])


def _class_names(path, classes, is_imagenet):
    names = read_class_names(path)
    if classes is None and names is None and is_imagenet:
        classes = _IMAGENET_CLASSES
    if classes is None and names is None:
        raise ValueError(
            f"The classes of {path} are unknown. Write their names to "
            f"{os.path.join(path, CLASS_FILES[0])}, one a line, or give their "
            f"number: records:{path},classes=N"
        )
    if classes is None:
        return names
    count = positive_int("classes", classes)
    if names and len(names) != count:
        raise ValueError(
            f"`classes` must be the number of names in {path}, {len(names)}. "
            f"Received: {count}."
        )
    return names or tuple(str(i) for i in range(count))


def _check_first_labels(files, num_classes, first_label):
    """Looks at some records, to refuse what is wrong before training."""
    labels, error = [], None
    for file in dict.fromkeys([files[0], files[-1]]):
        records = tf.data.TFRecordDataset(file).take(_CHECKED_RECORDS)
        for record in records.ignore_errors():
            try:
                example = tf.io.parse_single_example(record, _FEATURES)
            except tf.errors.InvalidArgumentError as failure:
                error = failure
            else:
                labels.append(int(example["image/class/label"]) - first_label)
    if error and not labels:
        raise ValueError(
            f"{files[0]} must hold tf.train.Examples with the features "
            f"{' and '.join(_FEATURES)}."
        ) from error
    for label in labels:
        if not 0 <= label < num_classes:
            raise ValueError(
                f"The labels of {num_classes} classes must be from "
                f"{first_label} to {first_label + num_classes - 1}. Received: "
                f"{label + first_label} in {files[0]} or {files[-1]}. Give "
                "another number of classes, or first_label=0 or 1."
            )
