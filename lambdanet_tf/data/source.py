"""Sources of labelled images, read in a random order or each image once.

The way of an image: `Source.stream` (training) or `Source.scan` (evaluation)
yields elements, `Source.decode` opens an element, and `lambdanet_tf.data.
pipeline` augments or crops the image and makes batches.
"""

import abc
import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf.data.decode import Image

Element = dict[str, tf.Tensor]

_INT64_MAX = np.iinfo(np.int64).max
_PARALLEL_PIECES = 16


@dataclasses.dataclass(frozen=True)
class Shard:
    """The part of a source that one of several input pipelines reads.

    Attributes:
        index: number of the part, from 0.
        count: number of parts.
    """

    index: int = 0
    count: int = 1


EVERYTHING = Shard()


class Source(abc.ABC):
    """Labelled images that can be read any number of times.

    An element is a dictionary of tensors that `decode` understands. It has a
    "position", int64: its number in the stream of all shards together, from
    which every random choice about the image is derived. Where `can_fail`, it
    has a "name" as well: where the image is, for messages.

    Attributes:
        num_images: number of images.
        can_fail: whether decoding an image can fail; an image that fails is
            left out and noted, see `BadImages`.
        num_classes: labels outside [0, num_classes) make an image a bad one;
            None if all labels are known to be right.
        label_spec: of a label: a class, or a probability for each class.
    """

    num_images: int
    can_fail: bool = False
    num_classes: int | None = None
    label_spec: tf.TensorSpec = tf.TensorSpec([], tf.int32)

    @abc.abstractmethod
    def stream(
        self, seed: int, start: int = 0, shard: Shard = EVERYTHING
    ) -> tf.data.Dataset:
        """Returns an endless dataset of shuffled elements.

        One complete pass follows the other, each in an order of its own that
        depends on the seed alone.

        Args:
            seed: of the order.
            start: number of elements, of all shards together, to leave out at
                the beginning: a run resumes where it stopped. A multiple of
                the number of shards.
            shard: the part to read.
        """

    @abc.abstractmethod
    def scan(self, shard: Shard = EVERYTHING) -> tf.data.Dataset:
        """Returns a dataset of each element once, in a fixed order."""

    @abc.abstractmethod
    def decode(self, element: Element) -> tuple[Image, tf.Tensor]:
        """Returns the image of an element, and its label: `label_spec`."""


class IndexedSource(Source):
    """Images at random access, such as arrays or files.

    The order of a pass is a pseudo-random permutation that is computed, not
    stored, so that a stream begins anywhere without reading what is before.
    An element holds a row of each column, and the number of the row, "index".

    Args:
        columns: arrays with a row for each image, "label" among them.

    Raises:
        ValueError: if there is no image.
    """

    def __init__(self, columns: Mapping[str, np.ndarray]):
        self.num_images = len(columns["label"])
        _require_images(self.num_images)
        self._columns = columns

    def stream(
        self, seed: int, start: int = 0, shard: Shard = EVERYTHING
    ) -> tf.data.Dataset:
        def index_at(position):
            pass_number = position // self.num_images
            return tf.random.experimental.index_shuffle(
                position % self.num_images,
                tf.cast(tf.stack([seed, pass_number]), tf.int32),
                self.num_images - 1,
            )

        positions = tf.data.Dataset.range(
            start + shard.index, _INT64_MAX, shard.count
        )
        return self._elements(positions, index_at)

    def scan(self, shard: Shard = EVERYTHING) -> tf.data.Dataset:
        positions = tf.data.Dataset.range(
            shard.index, self.num_images, shard.count
        )
        return self._elements(positions, lambda position: position)

    def _elements(self, positions, index_at):
        # Tensors of the pipeline, neither constants in a graph nor on an
        # accelerator.
        with tf.device("CPU:0"):
            columns = {
                name: tf.constant(column)
                for name, column in self._columns.items()
            }

        def element(position):
            index = index_at(position)
            row = {
                name: tf.gather(column, index)
                for name, column in columns.items()
            }
            return {"position": position, "index": index, **row}

        return positions.map(element)


class StreamedSource(Source):
    """Images that are read one after the other in pieces, such as files.

    In a pass the pieces come in a random order, several are read at once, and
    a buffer shuffles what comes out of them. To start inside a pass the
    elements before it are read but not decoded.

    Several shards divide the pieces among them if there are enough, and the
    elements otherwise.

    Args:
        piece_sizes: the number of images in each piece. If they are off, a
            stream of several shards that starts in the middle is as well.
        shuffle_buffer: elements among which the next one is drawn.
        num_classes: see `Source`.

    Raises:
        ValueError: if there is no image.
    """

    can_fail = True

    def __init__(
        self,
        piece_sizes: Sequence[int],
        shuffle_buffer: int,
        num_classes: int | None = None,
    ):
        self._piece_sizes = np.array(piece_sizes, np.int64)
        self._shuffle_buffer = shuffle_buffer
        self.num_images = int(self._piece_sizes.sum())
        self.num_classes = num_classes
        _require_images(self.num_images)

    @abc.abstractmethod
    def read_piece(self, number: tf.Tensor) -> tf.data.Dataset:
        """Returns the elements of a piece, without their positions.

        Args:
            number: scalar int64 tensor. Which piece, from 0.
        """

    def stream(
        self, seed: int, start: int = 0, shard: Shard = EVERYTHING
    ) -> tf.data.Dataset:
        first, skipped = self._begin(seed, start, shard)

        def one_pass(number):
            elements = shuffled(
                self._read(self._piece_order(seed, number), shard),
                self._shuffle_buffer,
                _pass_seed(seed, number),
            )
            is_first = tf.cast(tf.equal(number, first), tf.int64)
            return elements.skip(is_first * skipped)

        passes = tf.data.Dataset.range(first, _INT64_MAX)
        return _with_positions(passes.flat_map(one_pass), start, shard)

    def scan(self, shard: Shard = EVERYTHING) -> tf.data.Dataset:
        order = tf.range(len(self._piece_sizes), dtype=tf.int64)
        return _with_positions(self._read(order, shard), 0, shard)

    def _read(self, order, shard):
        """The elements of one shard of one pass, piece by piece."""
        by_piece = self._divides_pieces(shard)
        if by_piece:
            order = order[shard.index :: shard.count]
        elements = tf.data.Dataset.from_tensor_slices(order).interleave(
            self.read_piece,
            cycle_length=_PARALLEL_PIECES,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        if by_piece:
            return elements
        return elements.shard(shard.count, shard.index)

    def _divides_pieces(self, shard):
        return len(self._piece_sizes) >= shard.count

    def _piece_order(self, seed, number):
        return tf.random.experimental.stateless_shuffle(
            tf.range(len(self._piece_sizes), dtype=tf.int64),
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
        """How many images a shard has in one pass."""
        if not self._divides_pieces(shard):
            return len(range(shard.index, self.num_images, shard.count))
        with tf.init_scope():
            order = self._piece_order(seed, number).numpy()
        return self._piece_sizes[order[shard.index :: shard.count]].sum()


def shuffled(
    elements: tf.data.Dataset, buffer_size: int, seed: tf.Tensor
) -> tf.data.Dataset:
    """Shuffles as `Dataset.shuffle` does, by a seed that may be a tensor.

    The method itself mixes in the global seed, and fails if that is 0.

    Args:
        elements: to be shuffled.
        buffer_size: elements among which the next one is drawn.
        seed: int64 tensor `(2,)`, neither number below 0.
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


def _pass_seed(seed, number):
    return tf.stack([tf.cast(seed, tf.int64), tf.cast(number, tf.int64)])


def _with_positions(elements, start, shard):
    def with_position(number, element):
        position = start + number * shard.count + shard.index
        return {**element, "position": position}

    return elements.enumerate().map(with_position)


def _require_images(number):
    if number < 1:
        raise ValueError("A source must hold at least one image. Received: 0.")
