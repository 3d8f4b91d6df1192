"""Images that cannot be read: left out, counted, and named in a file.

All of it happens inside the pipeline's graph, without Python.
"""

import os
import tempfile

import tensorflow as tf

_MOST_IN_A_ROW = 1000


class BadImages:
    """The list of the images that could not be read.

    Args:
        path: str or None. The file that names them, one in each line; None for
            a temporary one. It is local: pipelines append to it.
    """

    def __init__(self, path=None):
        self.path = path or os.path.join(tempfile.mkdtemp(), "bad_images.txt")

    def names(self):
        """The names of the images, each once, in the order they were met."""
        if not os.path.exists(self.path):
            return []
        with open(self.path, encoding="utf-8") as stream:
            return list(dict.fromkeys(stream.read().splitlines()))

    def skip_in(self, elements, prepare, output_signature):
        """Prepares the elements; those that fail are left out and noted.

        Args:
            elements: `tf.data.Dataset` of dictionaries with a "name".
            prepare: callable from an element to a tuple of tensors. Failing
                means an error of one of its operations.
            output_signature: tuple of `tf.TensorSpec`, fully defined: what
                `prepare` returns.

        Returns:
            A `tf.data.Dataset` of such tuples. Reading it fails if a thousand
            images in a row cannot be read: then it is not the images.
        """
        blank = tuple(tf.zeros(s.shape, s.dtype) for s in output_signature)

        def attempt(element):
            good = tf.data.Dataset.from_tensors(element).map(
                lambda e: (True, prepare(e))
            )
            either = good.ignore_errors().concatenate(
                tf.data.Dataset.from_tensors((False, blank))
            )
            is_good, prepared = either.take(1).get_single_element()
            prepared = tuple(
                tf.ensure_shape(x, s.shape)
                for x, s in zip(prepared, output_signature, strict=True)
            )
            return element["name"], is_good, prepared

        return (
            elements.map(attempt, num_parallel_calls=tf.data.AUTOTUNE)
            .scan(tf.constant(0), self._count)
            .filter(lambda is_good, prepared: is_good)
            .map(lambda is_good, prepared: prepared)
        )

    def _count(self, in_a_row, element):
        name, is_good, prepared = element

        def note():
            shown = tf.print(name, output_stream=f"file://{self.path}")
            check = tf.debugging.assert_less(
                in_a_row,
                _MOST_IN_A_ROW,
                f"{_MOST_IN_A_ROW} images in a row cannot be read. Their "
                f"names are in {self.path}.",
            )
            with tf.control_dependencies([shown, check]):
                return in_a_row + 1

        in_a_row = tf.cond(is_good, lambda: tf.constant(0), note)
        return in_a_row, (is_good, prepared)
