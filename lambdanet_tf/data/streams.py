"""Images that are read one after the other: records in files."""

import numpy as np
import tensorflow as tf

from lambdanet_tf.data.images import Split

_READ_AT_ONCE = 16


def streamed_split(num_images, num_pieces, piece, read, shuffle_buffer):
    """A `Split` of images that lie in pieces, such as files of records.

    In a pass the pieces come in a random order, several are read at once, and
    a buffer shuffles what comes out of them. To start inside a pass the
    elements before it are read but not decoded.

    With several shares each takes its own pieces where there are enough of
    them, and otherwise every so-many-th element.

    Args:
        num_images: int. Images in all pieces together.
        num_pieces: int.
        piece: callable `int64 tensor -> tf.data.Dataset` of dictionaries with
            a "name".
        read: see `Split`.
        shuffle_buffer: int. Elements among which the next one is drawn.

    Returns:
        A `Split`.
    """

    def pass_of(share, order):
        """One share of one pass, raw."""
        by_piece = num_pieces >= share.count
        if by_piece:
            order = order[share.index :: share.count]
        raw = tf.data.Dataset.from_tensor_slices(order).interleave(
            piece,
            cycle_length=_READ_AT_ONCE,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        return raw if by_piece else raw.shard(share.count, share.index)

    def numbered(raw, share, first):
        def number_it(number, element):
            position = first + number * share.count + share.index
            return {**element, "position": position}

        return raw.enumerate().map(number_it)

    def endless(seed, start, share):
        def one_pass(number):
            seeds = tf.stack([tf.cast(seed, tf.int64), number])
            order = tf.random.experimental.stateless_shuffle(
                tf.range(num_pieces, dtype=tf.int64), seeds
            )
            raw = shuffled(pass_of(share, order), shuffle_buffer, seeds)
            is_first = tf.equal(number, start // num_images)
            done = start % num_images // share.count
            return raw.skip(tf.where(is_first, tf.cast(done, tf.int64), 0))

        passes = tf.data.Dataset.range(
            start // num_images, np.iinfo(np.int64).max
        )
        return numbered(passes.flat_map(one_pass), share, start)

    def once(share):
        order = tf.range(num_pieces, dtype=tf.int64)
        return numbered(pass_of(share, order), share, 0)

    return Split(num_images, endless, once, read, can_fail=True)


def shuffled(elements, buffer_size, seeds):
    """`Dataset.shuffle` with a seed that is a tensor and nothing else.

    The method itself mixes in the global seed, and fails if that is 0.

    Args:
        elements: `tf.data.Dataset`.
        buffer_size: int.
        seeds: int64 tensor `(2,)`.

    Returns:
        A `tf.data.Dataset`.
    """
    spec = elements.element_spec
    parts = tf.nest.flatten(spec)
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(elements),
        buffer_size=tf.constant(buffer_size, tf.int64),
        seed=seeds[0],
        # Both 0 would mean a random seed.
        seed2=seeds[1] + 1,
        reshuffle_each_iteration=False,
        output_types=[part.dtype for part in parts],
        output_shapes=[part.shape for part in parts],
    )
    return tf.data.experimental.from_variant(variant, spec)
