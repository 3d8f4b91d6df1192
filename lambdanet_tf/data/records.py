"""TFRecord files: ImageNet in its usual layout, or one's own images."""

import copy
import dataclasses
import functools
import os
import re
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.data.images import EncodedImage
from lambdanet_tf.data.images import open_image
from lambdanet_tf.data.sets import CLASS_FILES
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.data.sets import find_parts
from lambdanet_tf.data.sets import read_class_names
from lambdanet_tf.data.sets import validation_count
from lambdanet_tf.data.sources import StreamedSource
from lambdanet_tf.data.sources import fill_up
from lambdanet_tf.files import matching

# ILSVRC 2012 as it is usually converted: files and images of each part.
_IMAGENET = {("train", 1024): 1_281_167, ("test", 128): 50_000}
_IMAGENET_CLASSES = 1000
IMAGE = "image/encoded"
LABEL = "image/class/label"
PROBABILITIES = "image/class/probabilities"
_TEXT = "image/class/text"
_HEADER, _FOOTER = 12, 4
_PARALLEL_CALLS = 32
_CHECKED_RECORDS, _FIRST_RECORDS = 8192, 32


@dataclasses.dataclass(frozen=True)
class RecordSubset:
    """Some of the records of a set, evenly spaced; or all the others.

    Attributes:
        chosen: how many are chosen.
        total: of how many.
        invert: whether it holds the others instead.
    """

    chosen: int
    total: int
    invert: bool = False

    def contains(self, number: Any) -> Any:
        """Returns whether records belong to it, by their int64 numbers."""
        before = number * self.chosen // self.total
        after = (number + 1) * self.chosen // self.total
        return (before == after) if self.invert else (before != after)


class RecordSource(StreamedSource):
    """Encoded images in TFRecord files.

    A record is a `tf.train.Example` with the features `image/encoded`, the
    bytes of an image file, and `image/class/label`; with soft labels
    `image/class/probabilities` in the place of that.

    Of a damaged file the records before the damage are read; each of the rest
    is a bad image.

    Args:
        files: paths on any file system that `tf.io.gfile` knows.
        counts: the number of records in each file.
        num_classes: number of classes.
        first_label: the label of the first class, in the files; None if the
            records have none.
        shuffle_buffer: records among which the next one is drawn.
        channels: 3 for color, 1 for gray.
        subset: the records to read; None for all.
        soft_labels: whether the labels are probabilities of the classes.
        exact: whether `counts` are right one by one, not only their sum.

    Raises:
        ValueError: if there is no record.
    """

    def __init__(
        self,
        files: Sequence[str],
        counts: np.ndarray,
        num_classes: int,
        first_label: int | None,
        shuffle_buffer: int,
        channels: int = 3,
        subset: RecordSubset | None = None,
        soft_labels: bool = False,
        exact: bool = True,
    ):
        self._files, self._counts = list(files), np.array(counts, np.int64)
        ends = np.cumsum(counts)
        self._firsts = np.concatenate([[0], ends[:-1]])
        sizes = self._counts
        if subset is not None:
            numbers = np.split(np.arange(ends[-1]), ends[:-1])
            sizes = np.array([subset.contains(n).sum() for n in numbers])
        # Probabilities have no range of classes to check.
        is_class = first_label is not None and not soft_labels
        super().__init__(
            sizes, shuffle_buffer, num_classes if is_class else None, exact
        )
        self._first_label = first_label
        self._channels = channels
        self._subset = subset
        self._features = {IMAGE: tf.io.FixedLenFeature([], tf.string)}
        if soft_labels:
            row = tf.io.FixedLenFeature([num_classes], tf.float32)
            self._features[PROBABILITIES] = row
        elif is_class:
            self._features[LABEL] = tf.io.FixedLenFeature([], tf.int64)

    def read_file(self, number: tf.Tensor) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(tf.gather(self._files, number))
        if self._exact:
            records = fill_up(records, tf.gather(self._counts, number))
        else:
            records = records.ignore_errors()
        subset = self._subset
        if subset is None:
            return records
        numbers = tf.data.Dataset.counter(tf.gather(self._firsts, number))
        return (
            tf.data.Dataset.zip((numbers, records))
            .filter(lambda number, record: subset.contains(number))
            .map(lambda number, record: record)
        )

    def decode(self, item: tf.Tensor) -> tuple[EncodedImage, tf.Tensor]:
        example = tf.io.parse_single_example(item, self._features)
        image = open_image(example[IMAGE], self._channels)
        if PROBABILITIES in example:
            return image, example[PROBABILITIES]
        if LABEL not in example:
            return image, tf.constant(0)
        # A cast alone would make classes of labels above 2**32.
        label = tf.clip_by_value(
            example[LABEL] - self._first_label, -1, 2**31 - 1
        )
        return image, tf.cast(label, tf.int32)

    def check(self) -> Iterator[str]:
        exact = self
        if not self._exact:
            exact = copy.copy(self)
            exact._exact = True
            exact._counts = exact._sizes = _count_each(self._files)
        # What is lost of a damaged file is said once.
        yield from dict.fromkeys(super(RecordSource, exact).check())

    def _describe(self, file, number, item, error):
        path = self._files[file]
        if not item.numpy():
            records = tf.data.TFRecordDataset(path).ignore_errors()
            read = records.reduce(0, lambda count, record: count + 1)
            return f"{path}: damaged, nothing read from record {read}"
        if self._subset is not None:
            numbers = self._firsts[file] + np.arange(int(self._counts[file]))
            number = np.flatnonzero(self._subset.contains(numbers))[number]
        return f"{path}: record {number}: {error}"

    def _identity(self) -> Iterator[bytes]:
        names = [os.path.basename(file) for file in self._files]
        # One by one, thousands of files of a bucket would take minutes.
        with ThreadPoolExecutor(_PARALLEL_CALLS) as pool:
            stats = [*pool.map(tf.io.gfile.stat, self._files)]
            # Labels can change where no length does.
            soft = PROBABILITIES in self._features
            checksums = [*pool.map(_all_checksums, self._files if soft else [])]
        lengths = [stat.length for stat in stats]
        yield f"{names} {lengths} {self._sizes} {self._subset}".encode()
        yield from checksums


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
    are the validation set; or, where there are too few files, evenly spaced
    records.

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

    Returns:
        An `ImageSet`; its pixels are in [0, 255].

    Raises:
        ValueError: if there are no such files, one is cut off, the number of
            classes is unknown, or the first labels are not among them.

    Examples:
        >>> png = tf.io.encode_png(tf.zeros([8, 8, 3], tf.uint8)).numpy()
        >>> example = tf.train.Example()
        >>> features = example.features.feature
        >>> features["image/encoded"].bytes_list.value.append(png)
        >>> features["image/class/label"].int64_list.value.append(1)
        >>> for part in ("train", "test"):
        ...     with tf.io.TFRecordWriter(f"{part}.tfrecord") as file:
        ...         for _ in range(10):
        ...             file.write(example.SerializeToString())
        >>> read_records(".", classes=2, validation_split=0.2).test.num_images
        10
    """
    files, notes = _part_files(path)
    counts = {part: _count(part, found) for part, found in files.items()}
    is_imagenet = counts["train"].sum() == _IMAGENET["train", 1024]
    names = _class_names(path, classes, is_imagenet)
    first_label = int(is_imagenet) if first_label is None else first_label
    one_of("first_label", first_label, (0, 1))
    for found in files.values():
        _check_labels(found, names, first_label)
    make_source = functools.partial(
        RecordSource,
        num_classes=len(names),
        first_label=first_label,
        shuffle_buffer=shuffle_buffer,
        channels=channels,
    )
    sources = {
        part: make_source(found, counts[part], exact=not _is_known(part, found))
        for part, found in files.items()
    }
    if validation_split and "validation" not in files:
        sources |= _hold_out(
            make_source, files["train"], counts["train"], validation_split
        )
    parts = [sources.get(part) for part in ("train", "validation", "test")]
    origin = f"TFRecords in {path}"
    return ImageSet.build(
        f"records:{path}", names, channels, parts, origin, notes
    )


def read_unlabelled(path: str, channels: int = 3) -> RecordSource:
    """Opens the training images of a folder of TFRecord files, without labels.

    Args:
        path: as for `read_records`; test files and names are not needed.
        channels: 3 for color, 1 for gray.

    Raises:
        ValueError: if there are no such files, or one is cut off.
    """
    files = _part_files(path, ("train",))[0]["train"]
    return RecordSource(
        files, _count_each(files), 0, None, shuffle_buffer=1, channels=channels
    )


def count_records(path: str) -> int:
    """Counts the records of a TFRecord file, from their lengths alone.

    Raises:
        ValueError: if the file ends inside a record.
    """
    return sum(1 for _ in _checksums(path))


def check_complete(path: str, files: Sequence[str]) -> None:
    """Raises a ValueError unless all files `-of-` their number are there."""
    name = os.path.basename(files[0])
    announced = re.search(r"-of-(\d+)", name)
    if announced and int(announced[1]) != len(files):
        raise ValueError(
            f"{path} must hold all {int(announced[1])} files "
            f"{name.split('-')[0]}-*-of-*. Received: {len(files)} of them."
        )


def _hold_out(make_source, files, counts, validation_split):
    """Divides the training records into training and validation sources.

    The last files where their share makes one, else evenly spaced records.
    """
    total = int(counts.sum())
    exact = not _is_known("train", files)
    num_train = len(files) - round(validation_split * len(files))
    held = _count_each(files[num_train:])
    if 0 < num_train < len(files) and 0 < held.sum() < total:
        kept = counts[:num_train].copy()
        kept[-1] += total - held.sum() - kept.sum()  # estimates add up again
        return {
            "train": make_source(files[:num_train], kept, exact=exact),
            "validation": make_source(files[num_train:], held),
        }
    held = validation_count(validation_split, total)
    subset = RecordSubset(held, total)
    others = dataclasses.replace(subset, invert=True)
    return {
        "train": make_source(files, counts, subset=others, exact=exact),
        "validation": make_source(files, counts, subset=subset, exact=exact),
    }


def _checksums(path):
    """Yields the checksum behind each record, from their lengths alone."""
    size = tf.io.gfile.stat(path).length
    position = 0
    with tf.io.gfile.GFile(path, "rb") as stream:
        while position < size:
            stream.seek(position)
            length = int.from_bytes(stream.read(8), "little")
            position += _HEADER + length + _FOOTER
            if position > size:
                break
            stream.seek(position - _FOOTER)
            yield stream.read(_FOOTER)
    if position != size:
        raise ValueError(
            f"{path} is damaged, its last record is cut off; or it is not an "
            "uncompressed TFRecord file."
        )


def _all_checksums(path):
    return b"".join(_checksums(path))


def _part_files(path, needed=("train", "test")):
    """The files of each part, and notes on what is not read."""
    named = {}
    for file in matching(path, "*"):
        name = os.path.basename(file)
        if re.search(r"-\d+-of-\d+|\.tfrecord", name):
            part = re.split(r"[^a-zA-Z]", name, maxsplit=1)[0]
            named.setdefault(part, []).append(file)
    parts = find_parts(path, named)
    files = {part: named.pop(name) for part, name in parts.items()}
    for part in needed:
        if part not in files:
            raise ValueError(
                f"{path} must hold TFRecord files {part}-*-of-* or "
                f"{part}*.tfrecord (for the test set validation-*-of-* as "
                f"well). Received: {', '.join([*parts.values(), *named])}"
                f"{'' if parts or named else 'none'}."
            )
    for found in files.values():
        check_complete(path, found)
    notes = [f"not read: {name}*" for name in named]
    return files, notes


def _count(part, files):
    """The number of records in each file; with ImageNet an estimate."""
    if total := _IMAGENET.get((part, len(files))):
        return np.diff(np.linspace(0, total, len(files) + 1).astype(int))
    return _count_each(files)


def _is_known(part, files):
    return (part, len(files)) in _IMAGENET


def _count_each(files):
    return np.array([count_records(file) for file in files], np.int64)


def _class_names(path, classes, is_imagenet):
    names = read_class_names(path)
    if classes is None and names is None and is_imagenet:
        classes = _IMAGENET_CLASSES
    if classes is None and names is not None:
        return names
    if classes is None:
        raise ValueError(
            f"The classes of {path} are unknown. Write their names to "
            f"{os.path.join(path, CLASS_FILES[0])}, one a line, or give their "
            f"number: records:{path},classes=N"
        )
    count = positive_int("classes", classes)
    if names is None:
        return tuple(str(i) for i in range(count))
    if count != len(names):
        raise ValueError(
            f"`classes` must be the number of names in {path}, {len(names)}. "
            f"Received: {count}."
        )
    return names


def _check_labels(files, names, first_label):
    """Looks at records of all files, to refuse what is wrong before training.

    A stray label among the first of a file is an error, as are labels that
    count from 1 where 0 is meant; another stray one is a bad image.
    """
    each = max(_CHECKED_RECORDS // len(files), 1)

    def begin(file):
        records = tf.data.TFRecordDataset(file).ignore_errors()
        return records.take(each).enumerate()

    records = tf.data.Dataset.from_tensor_slices(files).flat_map(begin)
    features = {
        IMAGE: tf.io.FixedLenFeature([], tf.string),
        LABEL: tf.io.FixedLenFeature([], tf.int64),
        _TEXT: tf.io.FixedLenFeature([], tf.string, ""),
    }

    def read(number, record):
        example = tf.io.parse_single_example(record, features)
        return number, example[LABEL] - first_label, example[_TEXT]

    found = list(records.map(read).ignore_errors().as_numpy_iterator())
    if not found:
        raise ValueError(
            f"{files[0]} must hold tf.train.Examples with the features "
            f"{IMAGE} and {LABEL}."
        )
    numbers, labels = np.array([row[:2] for row in found]).T
    is_stray = (labels < 0) | (labels >= len(names))
    counts_from_one = np.all(labels > 0) and np.any(labels == len(names))
    if counts_from_one or np.any(is_stray & (numbers < _FIRST_RECORDS)):
        raise ValueError(
            f"The labels of {len(names)} classes must be from {first_label} to "
            f"{first_label + len(names) - 1}. Received: "
            f"{labels[is_stray][0] + first_label} in {files[0]} or its like. "
            "Give another number of classes, or "
            f"first_label={1 - first_label}."
        )
    texts = {text.decode(errors="replace") for *_, text in found}
    for _, label, text in found if texts <= set(names) else ():
        if 0 <= label < len(names) and names[label] != text.decode():
            raise ValueError(
                f"The labels of {files[0]} must fit its texts. Received: "
                f"{label + first_label}, which is {names[label]!r}, for "
                f"{text.decode()!r}. Give first_label={1 - first_label}, or "
                "another order of the names."
            )
