"""Sources of labelled images: in a random order, or each image once.

`stream` (for training) or `scan` (for evaluation) yields items, `decode` opens
the image of an item, and `examples` maps a function over the images and skips
those that fail.
"""

import abc
import copy
import dataclasses
import itertools
import os
import re
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.data.images import Image

# `num_parallel_calls` of every map.
THREADS = os.cpu_count() or 1
INT64_MAX = np.iinfo(np.int64).max
_BLOCK = 256
# The parts of a TensorFlow error that describe its graph.
_WHERE = re.compile(r"\{\{.*?\}\} ?|Error in user.* iterator: \S+: | \[Op:.*")
# The constant with which `tf.random.experimental.index_shuffle` begins each
# seed. That function itself does not take a vector of seeds.
_INDEX_SHUFFLE = np.int64(498247692)


@dataclasses.dataclass(frozen=True)
class Shard:
    """The part of a source that one of `count` pipelines reads."""

    index: int = 0
    count: int = 1

    def size_of(self, total: int) -> int:
        """Returns how many of `total` elements it has."""
        return len(range(self.index, total, self.count))


class Source(abc.ABC):
    """Labelled images that can be read any number of times.

    An element is a pair of a position and an item, which `decode` opens. The
    position, int64, counts over the stream of all shards, and determines all
    random numbers for the image.

    Attributes:
        num_images: number of images.
        may_be_corrupt: whether decoding can fail; such images are skipped.
    """

    may_be_corrupt: bool = False

    def __init__(self, num_images: int):
        self.num_images = num_images

    @abc.abstractmethod
    def stream(
        self, seed: int, start: int = 0, shard: Shard | None = None
    ) -> tf.data.Dataset:
        """Returns an endless dataset of elements, in a new order every pass.

        It skips the first `start` elements of all shards together, a multiple
        of the number of shards.
        """

    @abc.abstractmethod
    def scan(self, shard: Shard | None = None) -> tf.data.Dataset:
        """Returns a dataset with each element once, in a fixed order."""

    @abc.abstractmethod
    def decode(self, item: Any) -> tuple[Image, tf.Tensor]:
        """Returns image and label: an int32, or probabilities `(classes,)`."""

    def shard_size(self, shard: Shard) -> int:
        """Returns the number of elements that `scan` has for a shard."""
        return shard.size_of(self.num_images)

    def check(self) -> Iterator[str]:
        """Yields one line per corrupt image: name and error."""
        items = self.scan().map(lambda position, item: item)
        for number, error in corrupt_items(self, items):
            yield f"{self.name(number)}: {error}"

    def name(self, position: int) -> str:
        """Returns the file or the number of an image of `scan`."""
        return f"image {position}"

    def examples(
        self,
        elements: tf.data.Dataset,
        prepare: Callable[[Image, tf.Tensor, tf.Tensor], Any],
    ) -> tf.data.Dataset:
        """Maps `prepare` over images, labels and positions; skips errors."""

        def example(position, item):
            image, label = self.decode(item)
            return prepare(image, label, position)

        examples = _without_tuner(elements).map(
            example, num_parallel_calls=THREADS
        )
        if self.may_be_corrupt:
            examples = examples.ignore_errors(log_warning=True)
        return examples


class IndexedSource(Source):
    """Images with random access, such as arrays or files.

    Each pass follows a pseudo-random permutation that is computed, not stored.
    So a stream can begin anywhere, without reading the elements before.

    Args:
        columns: arrays with a row per image, including its class as "label";
            also an attribute. An item is a row, with its number as "index".
    """

    def __init__(self, columns: Mapping[str, np.ndarray]):
        super().__init__(len(columns["label"]))
        self.columns = columns

    def take(self, rows: np.ndarray) -> "IndexedSource | None":
        """Returns a source with these rows, or None if there are none."""
        if not len(rows):
            return None
        taken = copy.copy(self)
        taken.num_images = len(rows)
        taken.columns = {k: column[rows] for k, column in self.columns.items()}
        return taken

    def stream(
        self, seed: int, start: int = 0, shard: Shard | None = None
    ) -> tf.data.Dataset:
        def index_at(positions):
            passes = positions // self.num_images
            first = tf.fill(tf.shape(passes), _INDEX_SHUFFLE)
            seeds = tf.fill(tf.shape(passes), np.int64(seed))
            return tf.raw_ops.RandomIndexShuffle(
                index=positions % self.num_images,
                seed=tf.stack([first, seeds, passes], axis=1),
                max_index=np.int64(self.num_images - 1),
                rounds=4,
            )

        return self._rows(positions(start, shard), index_at)

    def scan(self, shard: Shard | None = None) -> tf.data.Dataset:
        numbers = positions(0, shard, self.num_images)
        return self._rows(numbers, lambda numbers: numbers)

    def _rows(self, numbers, index_at):
        # Keeps them out of the graph and off the accelerator.
        with tf.device("CPU:0"):
            columns = {k: tf.constant(x) for k, x in self.columns.items()}

        def rows(positions):
            indices = index_at(positions)
            items = {k: tf.gather(x, indices) for k, x in columns.items()}
            return positions, {**items, "index": indices}

        # A call for a block of images costs the same as for one.
        return numbers.batch(_BLOCK).map(rows).unbatch()


def element_seed(seed: int, position: tf.Tensor) -> tf.Tensor:
    """Returns the seed of all random numbers for an element of a stream.

    Args:
        seed: int, the seed of the stream.
        position: int64 scalar, the position of the element.
    """
    mixed = tf.stack([tf.cast(seed, tf.int64), position])
    return tf.random.experimental.stateless_fold_in(mixed, 1)


def _without_tuner(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Disables the tuner, for whose thread an iterator waits at its end."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def corrupt_items(
    source: Source, items: tf.data.Dataset
) -> Iterator[tuple[int, str]]:
    """Yields the number and the error, in one line, of each corrupt item."""

    def read(item):
        image, label = source.decode(item)
        return tf.shape(image.decode()), label

    results = iter(_without_tuner(items).map(read, num_parallel_calls=THREADS))
    for number in itertools.count():
        try:
            next(results)
        except StopIteration:
            return
        except tf.errors.OpError as error:
            yield number, _WHERE.sub("", error.message).partition("\n")[0]


def positions(
    start: int, shard: Shard | None, end: int = INT64_MAX
) -> tf.data.Dataset:
    """Returns the numbers of the elements of a shard, as a dataset."""
    shard = shard or Shard()
    return tf.data.Dataset.range(start + shard.index, end, shard.count)
