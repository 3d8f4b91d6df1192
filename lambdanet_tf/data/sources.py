"""Sources of labelled images: in a random order, or each image once.

The way of an image: `stream` (training) or `scan` (evaluation) yields where it
is, `decode` opens it, and `batches` maps a function over the images, leaves
out those that fail, and batches the rest.
"""

import abc
import copy
import dataclasses
import hashlib
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

# Calls of a map at once.
THREADS = os.cpu_count() or 1
_INT64_MAX = np.iinfo(np.int64).max
_PARALLEL_FILES = 16
_MAX_ERRORS_IN_A_ROW = 1000
TOO_MANY_ERRORS = (
    f"{_MAX_ERRORS_IN_A_ROW} images in a row cannot be read. `lambdanet check` "
    "names them, and what is wrong."
)
_BLOCK = 256
# With which `tf.random.experimental.index_shuffle` begins each seed.
_INDEX_SHUFFLE = np.int64(498247692)
# The name that TensorFlow gives to variables that live as long as their handle.
_ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"


@dataclasses.dataclass(frozen=True)
class Shard:
    """The part of a source that one of several input pipelines reads.

    Attributes:
        index: number of the part, from 0.
        count: number of parts.

    Examples:
        >>> Shard(index=1, count=3).size_of(8)
        3
    """

    index: int = 0
    count: int = 1

    def size_of(self, total: int) -> int:
        """Returns how many of `total` elements the part has, dealt in turn.

        Args:
            total: int. Elements of all parts.

        Returns:
            An int.
        """
        return len(range(self.index, total, self.count))


class Source(abc.ABC):
    """Labelled images that can be read any number of times.

    An element is a pair: the position, int64, the number of the element in the
    stream of all shards together, from which every random choice about the
    image is derived; and the item, which `decode` opens.

    Args:
        num_images: number of images.
        num_classes: labels outside [0, num_classes) make an image a bad one;
            None if all labels are known to be right.

    Attributes:
        may_be_corrupt: whether decoding an image can fail; an image that fails
            is left out and counted.

    The arguments are attributes, too.

    Raises:
        ValueError: if there is no image.

    Examples:
        >>> source = data.fake_set("8x8x1", images=100).train
        >>> position, item = next(iter(source.stream(seed=1)))
        >>> image, label = source.decode(item)
        >>> image.size().numpy().tolist()
        [8, 8]
    """

    may_be_corrupt: bool = False

    def __init__(self, num_images: int, num_classes: int | None = None):
        if num_images < 1:
            raise ValueError(
                "A source must hold at least one image. Received: 0."
            )
        self.num_images, self.num_classes = num_images, num_classes

    @abc.abstractmethod
    def stream(
        self, seed: int, start: int = 0, shard: Shard | None = None
    ) -> tf.data.Dataset:
        """Returns an endless dataset of shuffled elements.

        One complete pass follows the other, each in an order of its own that
        depends on the seed alone.

        Args:
            seed: of the order.
            start: number of elements, of all shards together, to leave out at
                the beginning: a run resumes where it stopped. A multiple of
                the number of shards.
            shard: the part to read; None for all.

        Returns:
            A dataset of pairs: position, int64, and item.
        """

    @abc.abstractmethod
    def scan(self, shard: Shard | None = None) -> tf.data.Dataset:
        """Returns a dataset of each element once, in a fixed order.

        Args:
            shard: the part to read; None for all.

        Returns:
            A dataset of pairs, as `stream`.
        """

    @abc.abstractmethod
    def shard_size(self, shard: Shard) -> int:
        """Returns the number of elements that `scan` has for a shard.

        Args:
            shard: the part.

        Returns:
            An int.
        """

    @abc.abstractmethod
    def decode(self, item: Any) -> tuple[Image, tf.Tensor]:
        """Returns the image of an item, and its label.

        The label is a class, int32, or float32 probabilities `(classes,)`.

        Args:
            item: of an element of the source.

        Returns:
            An `ArrayImage` or `EncodedImage`, and the label.
        """

    @abc.abstractmethod
    def check(self) -> Iterator[str]:
        """Reads each image once, and yields the names of the bad ones.

        Yields:
            For each, where it is and what is wrong with it, in a line.
        """

    def fingerprint(self) -> str:
        """Returns a text that another source, or a changed one, has not."""
        digest = hashlib.blake2b(digest_size=8)
        for part in self._identity():
            digest.update(part)
        return digest.hexdigest()

    @abc.abstractmethod
    def _identity(self) -> Iterator[bytes]:
        """Yields what makes a source another one."""

    def batches(
        self,
        elements: tf.data.Dataset,
        prepare: Callable[[Image, tf.Tensor, tf.Tensor], Any],
        batch_size: int,
        drop_remainder: bool = False,
    ) -> tf.data.Dataset:
        """Maps a function over images and batches the results.

        Images that cannot be read, and those with labels that are no class,
        are left out: their positions are missing.

        Args:
            elements: of `stream` or `scan`.
            prepare: from an image, its label and its position to tensors of
                static shape.
            batch_size: images in each batch.
            drop_remainder: whether a last, smaller batch is left out.

        Returns:
            A dataset of (what `prepare` returns, positions). Where `elements`
            are endless, by their cardinality, reading it fails if a thousand
            images in a row fail: without a good one it would never end.
        """

        def example(position, item):
            image, label = self._open(item)
            return prepare(image, label, position), position

        elements = without_tuner(elements)
        if self.may_be_corrupt and _is_endless(elements):
            examples = _map_and_skip_errors(elements, example)
            return examples.batch(batch_size, drop_remainder).map(_check_batch)
        examples = elements.map(example, num_parallel_calls=THREADS)
        if self.may_be_corrupt:
            examples = examples.ignore_errors()
        return examples.batch(batch_size, drop_remainder)

    def _open(self, item):
        """Decodes an item; fails if its label is no class."""
        image, label = self.decode(item)
        if self.num_classes is not None:
            is_class = (label >= 0) & (label < self.num_classes)
            with tf.control_dependencies([tf.debugging.Assert(is_class, [""])]):
                label = tf.identity(label)
        return image, label

    def _bad_items(self, items, size):
        """Yields number, item and error of the items that cannot be read."""

        def read(number, item):
            with tf.control_dependencies([self._open(item)[0].decode()]):
                return tf.identity(number)

        numbered = without_tuner(items.enumerate())
        good = numbered.map(read, num_parallel_calls=THREADS).ignore_errors()
        expected = 0
        for number in itertools.chain(good.as_numpy_iterator(), [size]):
            for bad in range(expected, number):
                item = next(iter(items.skip(bad)))
                yield bad, item, self._error(item)
            expected = number + 1

    def _error(self, item):
        """What is wrong with an item, in a line."""
        try:
            image, label = self.decode(item)
            if self.num_classes and not 0 <= label < self.num_classes:
                return (
                    f"label {int(label)}, counted from 0, is none of "
                    f"{self.num_classes} classes"
                )
            image.decode()
        # Called without a graph, Pillow's own errors come through.
        except Exception as error:
            text = getattr(error, "message", str(error)).strip()
            return text.splitlines()[0] if text else type(error).__name__
        return "could not be read at the first attempt"


class IndexedSource(Source):
    """Images at random access, such as arrays or files.

    The order of a pass is a pseudo-random permutation that is computed, not
    stored, so that a stream begins anywhere without reading what is before.
    What `decode` is given holds a row of each column, and the number of the
    row, "index".

    Args:
        columns: arrays with a row for each image, "label" among them, the
            number of its class; also an attribute.

    Raises:
        ValueError: if there is no image.

    Examples:
        >>> source = data.ArraySource(np.zeros([4, 8, 8, 3]), np.arange(4))
        >>> source.take(np.array([0, 2])).num_images
        2
    """

    def __init__(self, columns: Mapping[str, np.ndarray]):
        super().__init__(len(columns["label"]))
        self.columns = columns

    def take(self, rows: np.ndarray) -> "IndexedSource | None":
        """Returns the source of some rows; None for none.

        Args:
            rows: their numbers.

        Returns:
            A source of the same kind, or None.
        """
        if not len(rows):
            return None
        part = copy.copy(self)
        part.num_images = len(rows)
        part.columns = {k: column[rows] for k, column in self.columns.items()}
        return part

    @abc.abstractmethod
    def decode(self, item: dict[str, tf.Tensor]) -> tuple[Image, tf.Tensor]:
        """Returns the image of a row, and its label.

        Args:
            item: a row of the columns.

        Returns:
            An `ArrayImage` or `EncodedImage`, and the label.
        """

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

        return _endless(self._rows(_positions(start, shard), index_at))

    def scan(self, shard: Shard | None = None) -> tf.data.Dataset:
        shard = shard or Shard()
        positions = _positions(0, shard, self.num_images)
        rows = self._rows(positions, lambda position: position)
        # Keras 3 warns where it cannot know how many batches there are.
        size = tf.data.experimental.assert_cardinality(self.shard_size(shard))
        return rows.apply(size)

    def shard_size(self, shard: Shard) -> int:
        return shard.size_of(self.num_images)

    def check(self) -> Iterator[str]:
        items = self.scan().map(lambda position, item: item)
        for _, item, error in self._bad_items(items, self.num_images):
            yield f"{self._name(item)}: {error}"

    def _name(self, item):
        return f"image {int(item['index'])}"

    def _identity(self) -> Iterator[bytes]:
        for name, column in self.columns.items():
            yield name.encode()
            yield np.ascontiguousarray(column).data.tobytes()

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
    a buffer shuffles what comes out of them. To start inside a pass the
    elements before it are read but not decoded.

    Several shards divide the files among them if there are enough, and the
    elements otherwise.

    Args:
        sizes: the number of images in each file.
        shuffle_buffer: elements among which the next one is drawn.
        num_classes: see `Source`.
        exact: whether `sizes` are right one by one, not only their sum. If
            not, a stream of several shards that starts in the middle can be
            off by some images.

    Raises:
        ValueError: if there is no image.

    Examples:
        >>> class Numbers(StreamedSource):
        ...     decode = _identity = None
        ...
        ...     def read_file(self, number):
        ...         return tf.data.Dataset.range(3)
        >>> len(list(Numbers([3, 3], shuffle_buffer=2).scan()))
        6
    """

    may_be_corrupt = True

    def __init__(
        self,
        sizes: ArrayLike,
        shuffle_buffer: int,
        num_classes: int | None = None,
        exact: bool = True,
    ):
        self._sizes = np.array(sizes, np.int64)
        self._shuffle_buffer = shuffle_buffer
        self._exact = exact
        super().__init__(int(self._sizes.sum()), num_classes)

    @abc.abstractmethod
    def read_file(self, number: tf.Tensor) -> tf.data.Dataset:
        """Returns the items of a file.

        Args:
            number: scalar int64 tensor. Which file, from 0.

        Returns:
            A dataset of what `decode` opens.
        """

    def stream(
        self, seed: int, start: int = 0, shard: Shard | None = None
    ) -> tf.data.Dataset:
        shard = shard or Shard()
        by_file = self._has_files_for(shard)
        first, skipped = self._begin(seed, start, shard)

        def one_pass(number):
            items = _shuffled(
                self._read(self._file_order(seed, number), shard, by_file),
                self._shuffle_buffer,
                _pass_seed(seed, number),
            )
            is_first = tf.cast(tf.equal(number, first), tf.int64)
            return items.skip(is_first * skipped)

        passes = tf.data.Dataset.range(first, _INT64_MAX).flat_map(one_pass)
        return _endless(tf.data.Dataset.zip((_positions(start, shard), passes)))

    def scan(self, shard: Shard | None = None) -> tf.data.Dataset:
        shard = shard or Shard()
        order = tf.range(len(self._sizes), dtype=tf.int64)
        # Elements are dealt exactly, whatever is known of the files.
        items = self._read(order, shard, self._scans_by_file(shard))
        return tf.data.Dataset.zip((_positions(0, shard), items))

    def shard_size(self, shard: Shard) -> int:
        if self._scans_by_file(shard):
            return int(self._sizes[shard.index :: shard.count].sum())
        return shard.size_of(self.num_images)

    def check(self) -> Iterator[str]:
        for file, size in enumerate(self._sizes):
            items = self.read_file(tf.constant(file, tf.int64))
            for number, item, error in self._bad_items(items, size):
                yield self._describe(file, number, item, error)

    def _describe(self, file, number, item, error):
        return f"file {file}: image {number}: {error}"

    def _identity(self) -> Iterator[bytes]:
        yield self._sizes.tobytes()

    def _read(self, order, shard, by_file):
        """The items of one shard of one pass, file by file."""
        if by_file:
            order = order[shard.index :: shard.count]
        items = tf.data.Dataset.from_tensor_slices(order).interleave(
            self.read_file,
            cycle_length=_PARALLEL_FILES,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        return items if by_file else items.shard(shard.count, shard.index)

    def _has_files_for(self, shard):
        return len(self._sizes) >= shard.count

    def _scans_by_file(self, shard):
        return self._exact and self._has_files_for(shard)

    def _file_order(self, seed, number):
        return tf.random.experimental.stateless_shuffle(
            tf.range(len(self._sizes), dtype=tf.int64),
            _pass_seed(seed, number),
        )

    def _begin(self, seed, start, shard):
        """The pass in which a shard begins, and how much of it to skip."""
        if self.num_images < shard.count:
            raise ValueError(
                "`shard` must hold at least one image. Received: "
                f"{shard.count} shards of {self.num_images} images."
            )
        if shard.count == 1:
            return divmod(start, self.num_images)
        number, skipped = 0, start // shard.count
        while skipped >= (size := self._pass_size(seed, number, shard)):
            number, skipped = number + 1, skipped - size
        return number, skipped

    def _pass_size(self, seed, number, shard):
        """How many images a shard has in one pass of a stream."""
        if not self._has_files_for(shard):
            return shard.size_of(self.num_images)
        with tf.init_scope():
            order = self._file_order(seed, number).numpy()
        return self._sizes[order[shard.index :: shard.count]].sum()


def element_seed(seed: int, position: tf.Tensor) -> tf.Tensor:
    """Returns the seed of everything random about one element of a stream.

    Args:
        seed: int. That of the stream.
        position: int64 scalar. That of the element in the stream.

    Returns:
        An int64 tensor of two numbers, for `tf.random.stateless_uniform`.

    Examples:
        >>> element_seed(1, tf.constant(7, tf.int64)).shape
        TensorShape([2])
    """
    mixed = tf.stack([tf.cast(seed, tf.int64), position])
    return tf.random.experimental.stateless_fold_in(mixed, 1)


def fill_up(items: tf.data.Dataset, size: tf.Tensor) -> tf.data.Dataset:
    """Returns a damaged file's items, blank ones in the place of lost ones.

    A blank item holds empty texts and zeros: it must fail to be decoded. So
    what is lost is counted, and moves nothing that follows.
    """
    blank = tf.nest.map_structure(
        lambda spec: tf.zeros(spec.shape, spec.dtype), items.element_spec
    )
    blanks = tf.data.Dataset.from_tensors(blank).repeat()
    return items.ignore_errors().concatenate(blanks).take(size)


def without_tuner(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Switches off the thread that tunes a dataset and those made of it.

    The thread sleeps ever longer, up to a minute, and an iterator's end waits
    for it: when it is cancelled, TensorFlow (2.15 to 2.21) wakes it before it
    can see that it was, and often it goes back to sleep. Each evaluation and
    each run would end with such a wait, about every other time.

    Args:
        dataset: any. Maps of it must say how many calls they make at once.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def _endless(elements):
    """Gives elements the cardinality of a stream: it is never repeated."""
    return elements.repeat()


def _is_endless(elements):
    return int(elements.cardinality()) == tf.data.INFINITE_CARDINALITY


def _map_and_skip_errors(elements, function):
    """Maps elements to (results, position), without those that fail.

    After a thousand failures in a row it gives a blank of position -1, lest an
    endless stream without a good image is read for ever.
    """
    # Of this pipeline's host, and of no strategy, as a `tf.Variable` might be.
    with tf.device("CPU:0"):
        errors = tf.raw_ops.VarHandleOp(
            dtype=tf.int64, shape=[], shared_name=_ANONYMOUS
        )
        tf.raw_ops.AssignVariableOp(resource=errors, value=np.int64(0))

    specs, _ = elements.map(function).element_spec
    blank = tf.nest.map_structure(
        lambda spec: tf.zeros(spec.shape, spec.dtype), specs
    )

    def attempt(position, item):
        number = tf.raw_ops.ReadVariableOp(resource=errors, dtype=tf.int64)
        tf.raw_ops.AssignAddVariableOp(resource=errors, value=np.int64(1))
        result = tf.cond(
            number < _MAX_ERRORS_IN_A_ROW,
            lambda: function(position, item),
            lambda: (blank, tf.constant(-1, tf.int64)),
        )
        with tf.control_dependencies(tf.nest.flatten(result)):
            tf.raw_ops.AssignVariableOp(resource=errors, value=np.int64(0))
        return result

    return elements.map(attempt, num_parallel_calls=THREADS).ignore_errors()


def _check_batch(results, positions):
    """Fails where a thousand images in a row have failed."""
    check = tf.debugging.Assert(
        tf.reduce_min(positions) >= 0, [TOO_MANY_ERRORS]
    )
    with tf.control_dependencies([check]):
        return results, tf.identity(positions)


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


def _pass_seed(seed, number):
    return tf.stack([tf.cast(seed, tf.int64), tf.cast(number, tf.int64)])
