"""TFRecord files: ImageNet in its usual layout, or your own images."""

import os
import re
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from lambdanet_tf.data import sets
from lambdanet_tf.data.images import EncodedImage
from lambdanet_tf.data.images import open_image
from lambdanet_tf.data.sources import INT64_MAX
from lambdanet_tf.data.sources import Shard
from lambdanet_tf.data.sources import Source
from lambdanet_tf.data.sources import corrupt_items
from lambdanet_tf.data.sources import positions
from lambdanet_tf.files import matching

# ILSVRC 2012 in its usual conversion. To count the 1,281,167 training images,
# we would have to read 140 GB; these sizes are right within one per file.
_IMAGENET_FILES, _IMAGENET_CLASSES = 1024, 1000
_IMAGENET_SIZES = np.diff(
    np.linspace(0, 1_281_167, _IMAGENET_FILES + 1, dtype=np.int64)
)
IMAGE = "image/encoded"
LABEL = "image/class/label"
_HEADER, _FOOTER = 12, 4
_PARALLEL_CALLS, _PARALLEL_FILES = 32, 16

Parse = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


class RecordSource(Source):
    """Encoded images in TFRecord files, read sequentially.

    Each pass reads the files in a random order, several at once, and shuffles
    their records in a buffer. If there are enough files, each shard reads its
    own; otherwise it reads its records of all files. It reads the records of a
    damaged file up to the damage.

    Args:
        files: paths.
        sizes: the number of images in each file.
        parse: maps a record to the bytes of an image file and the label.
        shuffle_buffer: number of records in the shuffle buffer.
        channels: 3 for color, 1 for gray.
        skipped: number of records to skip at the beginning of each file; None
            to read whole files.
    """

    may_be_corrupt = True

    def __init__(
        self,
        files: Sequence[str],
        sizes: ArrayLike,
        parse: Parse,
        shuffle_buffer: int = 1,
        channels: int = 3,
        skipped: ArrayLike | None = None,
    ):
        self._sizes = np.array(sizes, np.int64)
        super().__init__(int(self._sizes.sum()))
        self._files, self._parse, self._channels = [*files], parse, channels
        self._shuffle_buffer, self._skipped = shuffle_buffer, skipped

    def stream(
        self, seed: int, start: int = 0, shard: Shard | None = None
    ) -> tf.data.Dataset:
        shard = shard or Shard()
        files, dealt = self._share(shard)
        first, begun = divmod(start // shard.count, self.shard_size(shard))

        def one_pass(number):
            pass_seed = tf.stack([np.int64(seed), number])
            order = tf.random.experimental.stateless_shuffle(files, pass_seed)
            items = self._read(order, dealt)
            items = _shuffled(items, self._shuffle_buffer, pass_seed)
            is_first = tf.cast(tf.equal(number, first), tf.int64)
            return items.skip(is_first * begun)

        passes = tf.data.Dataset.range(first, INT64_MAX).flat_map(one_pass)
        return tf.data.Dataset.zip((positions(start, shard), passes))

    def scan(self, shard: Shard | None = None) -> tf.data.Dataset:
        items = self._read(*self._share(shard or Shard()))
        return tf.data.Dataset.zip((positions(0, shard), items))

    def shard_size(self, shard: Shard) -> int:
        files, dealt = self._share(shard)
        return dealt.size_of(self._sizes[files].sum())

    def check(self) -> Iterator[str]:
        for file, name in enumerate(self._files):
            items = self.read_file(tf.constant(file, tf.int64))
            for number, error in corrupt_items(self, items):
                yield f"{name}: image {number}: {error}"

    def decode(self, item: tf.Tensor) -> tuple[EncodedImage, tf.Tensor]:
        encoded, label = self._parse(item)
        return open_image(encoded, self._channels), label

    def read_file(self, number: tf.Tensor) -> tf.data.Dataset:
        """Returns the records of a file; fails if it reaches damage."""
        records = tf.data.TFRecordDataset(tf.gather(self._files, number))
        if self._skipped is None:
            return records
        skipped = tf.gather(tf.constant(self._skipped, tf.int64), number)
        return records.skip(skipped).take(tf.gather(self._sizes, number))

    def _share(self, shard):
        """Returns the files of a shard, and its shard of their items."""
        files = np.arange(len(self._sizes))
        if len(files) < shard.count:
            return files, shard
        return files[shard.index :: shard.count], Shard()

    def _read(self, order, dealt):
        items = tf.data.Dataset.from_tensor_slices(order).interleave(
            lambda file: self.read_file(file).ignore_errors(log_warning=True),
            cycle_length=_PARALLEL_FILES,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        return items.shard(dealt.count, dealt.index)


def parse_labelled(num_classes: int, first_label: int = 0) -> Parse:
    """Returns a parser of examples as for ImageNet, which checks labels."""

    def parse(record):
        encoded, label = parse_example(record, LABEL, [], tf.int64)
        label -= first_label
        is_class = (label >= 0) & (label < num_classes)
        message = f"the label is not one of the {num_classes} classes"
        tf.debugging.Assert(is_class, [message])
        return encoded, tf.cast(label, tf.int32)

    return parse


def parse_example(
    record: tf.Tensor, label: str, shape: Sequence[int], dtype: tf.DType
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the bytes of an image file, and a label."""
    features = {
        IMAGE: tf.io.FixedLenFeature([], tf.string),
        label: tf.io.FixedLenFeature(shape, dtype),
    }
    example = tf.io.parse_single_example(record, features)
    return example[IMAGE], example[label]


def read_records(
    path: str,
    validation_split: float = 0.02,
    shuffle_buffer: int = 16_384,
    classes: int = 0,
    first_label: int | None = None,
    channels: int = 3,
) -> sets.ImageSet:
    """Reads the `ImageSet` of a folder of TFRecord files, see docs/data.md.

    `classes` is the number of classes if there is no classes.txt. `first_label`
    is the first label; None for 0, or for 1 with ImageNet.
    """
    files = _split_files(path)
    is_imagenet = len(files["train"]) == _IMAGENET_FILES
    names = sets.read_class_names(path) or tuple(
        map(str, range(classes or _IMAGENET_CLASSES * is_imagenet))
    )
    if not names:
        raise ValueError(
            f"The classes of {path} are unknown. Write their names to a file "
            "classes.txt in this folder, one per line, or pass their number: "
            f"records:{path},classes=N"
        )
    if validation_split and "validation" not in files:
        train = files["train"]
        kept = len(train) - max(round(validation_split * len(train)), 1)
        files["train"], files["validation"] = train[:kept], train[kept:]
    first_label = int(is_imagenet) if first_label is None else first_label
    parse = parse_labelled(len(names), first_label)

    def source(split) -> Any:
        if not files.get(split):
            return None
        sizes = _IMAGENET_SIZES[: len(files[split])]
        if split != "train" or not is_imagenet:
            sizes = count_records(files[split])
        return RecordSource(
            files[split], sizes, parse, shuffle_buffer, channels
        )

    return sets.ImageSet(
        f"records:{path}", names, channels, *map(source, sets.SPLITS)
    )


def _split_files(path):
    """Returns the files of each split."""
    named: dict[str, list[str]] = {}
    for file in matching(path, "*"):
        name = os.path.basename(file)
        if re.search(r"-\d+-of-\d+|\.tfrecord", name):
            split = re.split(r"[^a-zA-Z]", name, maxsplit=1)[0]
            named.setdefault(split, []).append(file)
    splits = sets.find_splits(named)
    if not {"train", "test"} <= splits.keys():
        raise ValueError(
            f"{path} must contain TFRecord files train-*-of-* or "
            "train*.tfrecord, and the same for test or validation. Received: "
            f"{', '.join(named) or 'no such files'}."
        )
    files = {split: named[name] for split, name in splits.items()}
    for found in files.values():
        check_complete(path, found)
    return files


def check_complete(path: str, files: Sequence[str]) -> None:
    """Raises a ValueError if a file of `*-of-*` is missing."""
    name = os.path.basename(files[0])
    announced = re.search(r"-of-(\d+)", name)
    if announced and int(announced[1]) != len(files):
        raise ValueError(
            f"{path} must contain all {int(announced[1])} files "
            f"{name.split('-')[0]}-*-of-*. Received: {len(files)} of them."
        )


def count_records(files: Sequence[str]) -> np.ndarray:
    """Counts the records of each file; reads only their lengths."""
    # In parallel, because thousands of files of a bucket take minutes.
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
            f"{path} is damaged (its last record is cut off), or it is not an "
            "uncompressed TFRecord file."
        )
    return count


def _shuffled(elements, buffer_size, seed):
    """Shuffles like `Dataset.shuffle`, but the seed can be a tensor.

    `Dataset.shuffle` mixes in the global seed, and fails if that is 0.
    """
    spec = elements.element_spec
    parts = tf.nest.flatten(spec)
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(elements),
        buffer_size=tf.constant(buffer_size, tf.int64),
        seed=seed[0],
        # Two zeros would mean a random seed.
        seed2=seed[1] + 1,
        reshuffle_each_iteration=False,
        output_types=[part.dtype for part in parts],
        output_shapes=[part.shape for part in parts],
    )
    return tf.data.experimental.from_variant(variant, spec)
