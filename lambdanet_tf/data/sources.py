"""Sources of labelled images: in a random order, or each image once.

The way of an image: `stream` (training) or `scan` (evaluation) yields where it
is, `decode` opens it, and `examples` maps a function over the images and skips
those that fail.
"""

import abc
import copy
import dataclasses
import itertools
import os
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from lambdanet_tf.data.images import Image

# `num_parallel_calls` of every map.
THREADS = os.cpu_count() or 1
_INT64_MAX = np.iinfo(np.int64).max
_PARALLEL_FILES = 16
_BLOCK = 256
# With which `tf.random.experimental.index_shuffle` begins each seed.
_INDEX_SHUFFLE = np.int64(498247692)


@dataclasses.dataclass(frozen=True)
class Shard:
    """The part of a source that pipeline `index`, from 0, of `count` reads."""

    index: int = 0
    count: int = 1

    def size_of(self, total: int) -> int:
        """Returns how many of `total` elements, dealt in turn, it has."""
        return len(range(self.index, total, self.count))


class Source(abc.ABC):
    """Labelled images that can be read any number of times.

    An element is a pair: the position, int64, the number of the element in the
    stream of all shards together, from which every random choice about the
    image is derived; and the item, which `decode` opens.

    Attributes:
        num_images: number of images, at least one.
        may_be_corrupt: whether decoding can fail; such images are skipped.

    Examples:
        >>> source = data.load_digits().train
        >>> position, item = next(iter(source.stream(seed=1)))
        >>> image, label = source.decode(item)
        >>> image.size().numpy().tolist()
        [8, 8]
    """

    may_be_corrupt: bool = False

    def __init__(self, num_images: int):
        if num_images < 1:
            raise ValueError(
                "A source must hold at least one image. Received: 0."
            )
        self.num_images = num_images

    @abc.abstractmethod
    def stream(
        self, seed: int, start: int = 0, shard: Shard | None = None
    ) -> tf.data.Dataset:
        """Returns an endless dataset of elements, in a new order every pass.

        Args:
            seed: of the orders.
            start: number of elements, of all shards together, to leave out at
                the beginning: a multiple of the number of shards.
            shard: what to read; None for all.
        """

    @abc.abstractmethod
    def scan(self, shard: Shard | None = None) -> tf.data.Dataset:
        """Returns a dataset of each element once, in a fixed order."""

    @abc.abstractmethod
    def decode(self, item: Any) -> tuple[Image, tf.Tensor]:
        """Returns the image of an item, and its label.

        The label is a class, int32, or float32 probabilities `(classes,)`.
        """

    @abc.abstractmethod
    def shard_size(self, shard: Shard) -> int:
        """Returns the number of elements that `scan` has for a shard."""

    @abc.abstractmethod
    def check(self) -> Iterator[str]:
        """Yields name and error, in a line, of each image that is corrupt."""

    def name(self, position: int) -> str:
        """Returns the file, or the number, of an image of `scan`."""
        return f"image {position}"

    def examples(
        self,
        elements: tf.data.Dataset,
        prepare: Callable[[Image, tf.Tensor, tf.Tensor], Any],
    ) -> tf.data.Dataset:
        """Maps a function over images, in parallel; skips corrupt ones.

        `prepare` takes image, label and position of an element of `stream` or
        `scan`.
        """

        def example(position, item):
            image, label = self.decode(item)
            return prepare(image, label, position)

        examples = without_tuner(elements).map(
            example, num_parallel_calls=THREADS
        )
        if self.may_be_corrupt:
            examples = examples.ignore_errors(log_warning=True)
        return examples


class IndexedSource(Source):
    """Images at random access, such as arrays or files.

    The order of a pass is a pseudo-random permutation that is computed, not
    stored, so that a stream begins anywhere without reading what is before.
    An item is a row of the columns, with its number as "index".

    Args:
        columns: arrays with a row for each image, "label" among them, the
            number of its class; also an attribute.
    """

    def __init__(self, columns: Mapping[str, np.ndarray]):
        super().__init__(len(columns["label"]))
        self.columns = columns

    def take(self, rows: np.ndarray) -> "IndexedSource | None":
        """Returns a source of the rows of these numbers; None for none."""
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

        return self._rows(_positions(start, shard), index_at)

    def scan(self, shard: Shard | None = None) -> tf.data.Dataset:
        positions = _positions(0, shard, self.num_images)
        return self._rows(positions, lambda positions: positions)

    def shard_size(self, shard: Shard) -> int:
        return shard.size_of(self.num_images)

    def check(self) -> Iterator[str]:
        items = self.scan().map(lambda position, item: item)
        for number, error in _corrupt_items(self, items, self.num_images):
            yield f"{self.name(number)}: {error}"

    def _rows(self, positions, index_at):
        # Tensors of the pipeline, neither constants in a graph nor on an
        # accelerator.
        with tf.device("CPU:0"):
            columns = {
                name: tf.constant(column)
                for name, column in self.columns.items()
            }

        def rows(positions):
            indices = index_at(positions)
            items = {
                name: tf.gather(column, indices)
                for name, column in columns.items()
            }
            return positions, {**items, "index": indices}

        # A call costs as much for a block of images as for one.
        return positions.batch(_BLOCK).map(rows).unbatch()


class StreamedSource(Source):
    """Images that are read one after the other from several files.

    In a pass the files come in a random order, several are read at once, and
    a buffer shuffles what comes out of them. Each shard reads files of its own
    if there are enough, and its elements of all files otherwise.

    Args:
        sizes: the number of images in each file.
        shuffle_buffer: elements among which the next one is drawn.
    """

    may_be_corrupt = True

    def __init__(self, sizes: ArrayLike, shuffle_buffer: int):
        self._sizes = np.array(sizes, np.int64)
        self._shuffle_buffer = shuffle_buffer
        super().__init__(int(self._sizes.sum()))

    @abc.abstractmethod
    def read_file(self, number: tf.Tensor) -> tf.data.Dataset:
        """Returns a dataset of the items of a file, by its int64 number."""

    def stream(
        self, seed: int, start: int = 0, shard: Shard | None = None
    ) -> tf.data.Dataset:
        shard = shard or Shard()
        files, dealt = self._share(shard)
        first, skipped = divmod(start // shard.count, self.shard_size(shard))

        def one_pass(number):
            pass_seed = tf.stack([np.int64(seed), number])
            order = tf.random.experimental.stateless_shuffle(files, pass_seed)
            items = _shuffled(
                self._read(order, dealt), self._shuffle_buffer, pass_seed
            )
            is_first = tf.cast(tf.equal(number, first), tf.int64)
            return items.skip(is_first * skipped)

        passes = tf.data.Dataset.range(first, _INT64_MAX).flat_map(one_pass)
        return tf.data.Dataset.zip((_positions(start, shard), passes))

    def scan(self, shard: Shard | None = None) -> tf.data.Dataset:
        items = self._read(*self._share(shard or Shard()))
        return tf.data.Dataset.zip((_positions(0, shard), items))

    def shard_size(self, shard: Shard) -> int:
        files, dealt = self._share(shard)
        return dealt.size_of(self._sizes[files].sum())

    def check(self) -> Iterator[str]:
        for file, size in enumerate(self._sizes):
            items = self.read_file(tf.constant(file, tf.int64))
            for number, error in _corrupt_items(self, items, size):
                yield f"{self._name(file)}: image {number}: {error}"

    def _name(self, file):
        return f"file {file}"

    def _share(self, shard):
        """Returns the files that a shard reads, and how items are dealt."""
        files = np.arange(len(self._sizes))
        if len(files) < shard.count:
            return files, shard
        return files[shard.index :: shard.count], Shard()

    def _read(self, order, dealt):
        items = tf.data.Dataset.from_tensor_slices(order).interleave(
            self.read_file,
            cycle_length=_PARALLEL_FILES,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        return items.shard(dealt.count, dealt.index)


def element_seed(seed: int, position: tf.Tensor) -> tf.Tensor:
    """Returns the seed of everything random about one element of a stream.

    Args:
        seed: int, of the stream.
        position: int64 scalar, of the element in the stream.
    """
    mixed = tf.stack([tf.cast(seed, tf.int64), position])
    return tf.random.experimental.stateless_fold_in(mixed, 1)


def without_tuner(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Switches off the tuner's thread, for which an iterator's end waits."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def _corrupt_items(source, items, size):
    """Yields number and error, in a line, of each item that is corrupt."""

    def read(number, item):
        image, label = source.decode(item)
        with tf.control_dependencies([image.decode(), label]):
            return tf.identity(number)

    numbered = without_tuner(items.enumerate())
    good = numbered.map(read, num_parallel_calls=THREADS).ignore_errors()
    expected = 0
    for number in itertools.chain(good.as_numpy_iterator(), [size]):
        for corrupt in range(expected, number):
            item = next(iter(items.skip(corrupt)), None)
            if item is None:
                yield corrupt, "the file is damaged from here on"
                return
            try:
                source.decode(item)[0].decode()
            # Called without a graph, Pillow's own errors come through.
            except Exception as error:
                text = getattr(error, "message", str(error)).strip()
                yield corrupt, text.partition("\n")[0]
        expected = number + 1


def _shuffled(elements, buffer_size, seed):
    """Shuffles as `Dataset.shuffle` does, by a seed that may be a tensor.

    The method itself mixes in the global seed, and fails if that is 0.
    """
    spec = elements.element_spec
    parts = tf.nest.flatten(spec)
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(elements),
        buffer_size=tf.constant(buffer_size, tf.int64),
        seed=seed[0],
        # Both 0 would mean a random seed.
        seed2=seed[1] + 1,
        reshuffle_each_iteration=False,
        output_types=[part.dtype for part in parts],
        output_shapes=[part.shape for part in parts],
    )
    return tf.data.experimental.from_variant(variant, spec)


def _positions(start, shard, end=_INT64_MAX):
    shard = shard or Shard()
    return tf.data.Dataset.range(start + shard.index, end, shard.count)
