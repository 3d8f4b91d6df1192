"""ImageNet as TFRecord files in the usual layout."""

import os

import tensorflow as tf

from lambdanet_tf.data.decode import EncodedImage
from lambdanet_tf.data.images import ImageSet
from lambdanet_tf.data.streams import streamed_split

# Files and images of the usual conversion of ILSVRC 2012.
_IMAGENET = {("train", 1024): 1_281_167, ("validation", 128): 50_000}
_HEADER, _FOOTER = 12, 4


def read_records(path, holdout=0.02, shuffle_buffer=16_384, num_classes=1000):
    """The `ImageSet` of a folder of TFRecord files.

    The files are `train-00000-of-01024` and so on, and `validation-...`; the
    records are `tf.train.Example`s with `image/encoded` and
    `image/class/label`, counted from 1 as in the usual conversion. The
    validation files are the test set; the last `holdout` of the training files
    choose the best epoch.

    Args:
        path: str. The folder; it may be on any file system that `tf.io.gfile`
            knows.
        holdout: float. Share of the training files that is held out, rounded,
            but at least one file unless it is 0.
        shuffle_buffer: int. Records among which the next one is drawn.
        num_classes: int.

    Returns:
        An `ImageSet`.

    Raises:
        ValueError: if there are no such files, or they are damaged.
    """
    train = _files(path, "train")
    test = _files(path, "validation")
    held = max(round(holdout * len(train)), 1) if holdout else 0
    if held >= len(train):
        raise ValueError(
            f"`holdout` must leave training files. Received: {holdout} of "
            f"{len(train)} files in {path}."
        )
    total = _count(train, "train")
    held_files = train[len(train) - held :]
    held_images = sum(count_records(file) for file in held_files)
    counts = [total - held_images, held_images, _count(test, "validation")]
    parts = [train[: len(train) - held], held_files, test]
    splits = [
        _split(files, count, shuffle_buffer) if files else None
        for files, count in zip(parts, counts, strict=True)
    ]
    return ImageSet(
        name=f"records:{path}",
        classes=tuple(str(i) for i in range(num_classes)),
        channels=3,
        train=splits[0],
        validation=splits[1],
        test=splits[2],
        description=(
            f"TFRecords in {path}: {counts[0]:,} images to learn from, "
            f"{counts[1]:,} to choose the best epoch, {counts[2]:,} to test."
        ),
    )


def count_records(path):
    """How many records a TFRecord file holds, from their lengths alone.

    Args:
        path: str.

    Returns:
        An int.

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
        raise ValueError(f"{path} is damaged: its last record is cut off.")
    return count


def _count(files, part):
    known = _IMAGENET.get((part, len(files)))
    return known or sum(count_records(file) for file in files)


def _files(path, part):
    found = sorted(tf.io.gfile.glob(os.path.join(path, f"{part}-*-of-*")))
    if not found:
        raise ValueError(
            f"{path} must hold TFRecord files {part}-*-of-*. Received: none."
        )
    announced = int(found[0].rsplit("-of-", 1)[1].split(".")[0])
    if announced != len(found):
        raise ValueError(
            f"{path} must hold all {announced} files {part}-*-of-*. Received: "
            f"{len(found)} of them."
        )
    return found


def _split(files, num_images, shuffle_buffer):
    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    sizes = [tf.io.gfile.stat(file).length for file in files]
    sizes = tf.constant(sizes, tf.int64)

    def piece(index):
        return whole_file(tf.gather(files, index), tf.gather(sizes, index))

    def read(element):
        example = tf.io.parse_single_example(element["record"], features)
        label = tf.cast(example["image/class/label"], tf.int32) - 1
        return EncodedImage(example["image/encoded"], channels=3), label

    return streamed_split(num_images, len(files), piece, read, shuffle_buffer)


def whole_file(path, size):
    """The records of a file; of a damaged one those before the damage.

    A damaged file ends with an empty record, which cannot be read as an image
    and whose name says what happened.

    Args:
        path: scalar string tensor.
        size: scalar int64 tensor. Bytes of the file.

    Returns:
        A `tf.data.Dataset` of {"name", "record"}.
    """
    zero = tf.constant(0, tf.int64)

    def follow(state, element):
        count, seen = state
        is_end, record = element
        length = tf.cast(tf.strings.length(record), tf.int64)
        seen += tf.where(is_end, zero, _HEADER + length + _FOOTER)
        what = tf.where(is_end, "damaged, nothing read from record", "record")
        number = tf.strings.as_string(count)
        name = tf.strings.join([path, ": ", what, " ", number])
        keep = tf.logical_not(is_end) | tf.not_equal(seen, size)
        return (count + 1, seen), (keep, {"name": name, "record": record})

    records = tf.data.TFRecordDataset(path).ignore_errors()
    return (
        records.map(lambda record: (False, record))
        .concatenate(tf.data.Dataset.from_tensors((True, "")))
        .scan((zero, zero), follow)
        .filter(lambda keep, element: keep)
        .map(lambda keep, element: element)
    )
