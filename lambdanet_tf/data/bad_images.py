"""Bad images: left out, counted, and named in a file.

All of it happens inside the pipeline's graph, without Python.
"""

import os
import tempfile
from collections.abc import Callable

import tensorflow as tf

from lambdanet_tf.data.parallel import THREADS

_MOST_IN_A_ROW = 1000


class BadImages:
    """The list of the images that cannot be read or have no valid label.

    Args:
        path: the file that names them, one in each line; None for a temporary
            one. It is local: pipelines append to it.
    """

    def __init__(self, path: str | None = None):
        self.path = path or os.path.join(tempfile.mkdtemp(), "bad_images.txt")

    def names(self) -> list[str]:
        """Reads the names of the images, each once, in the order met."""
        if not os.path.exists(self.path):
            return []
        with open(self.path, encoding="utf-8") as stream:
            return list(dict.fromkeys(stream.read().splitlines()))

    def map_or_skip(
        self,
        elements: tf.data.Dataset,
        prepare: Callable,
        signature: tuple[tf.TensorSpec, ...],
        num_classes: int | None = None,
    ) -> tf.data.Dataset:
        """Maps a function over elements and leaves out those that fail.

        Args:
            elements: a dataset of dictionaries with a "name".
            prepare: from an element to a tuple of tensors, the label second.
                It fails by an error of one of its operations.
            signature: what `prepare` returns, fully defined.
            num_classes: labels outside [0, num_classes) fail as well; None if
                labels need no check.

        Returns:
            A dataset of such tuples. Reading it fails if a thousand images in
            a row fail: then it is not the images.
        """
        blank = tuple(tf.zeros(s.shape, s.dtype) for s in signature)

        def attempt(element):
            # A dataset is the one place in a graph where an error can be
            # caught.
            prepared = tf.data.Dataset.from_tensors(element).map(
                lambda e: (True, prepare(e))
            )
            failed = tf.data.Dataset.from_tensors((False, blank))
            caught = prepared.ignore_errors().concatenate(failed)
            is_good, outputs = caught.take(1).get_single_element()
            outputs = tuple(
                tf.ensure_shape(x, s.shape)
                for x, s in zip(outputs, signature, strict=True)
            )
            name = element["name"]
            if num_classes is not None:
                problem = _label_problem(outputs[1], num_classes)
                name = tf.strings.join([name, problem])
                is_good &= tf.equal(problem, "")
            return name, is_good, outputs

        return (
            elements.map(attempt, num_parallel_calls=THREADS)
            .scan(tf.constant(0), self._count)
            .filter(lambda is_good, outputs: is_good)
            .map(lambda is_good, outputs: outputs)
        )

    def _count(self, in_a_row, element):
        name, is_good, outputs = element

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
        return in_a_row, (is_good, outputs)


def _label_problem(label, num_classes):
    """Returns what is wrong with a label, as a text, or ""."""
    number = tf.strings.as_string(label)
    text = f", counted from 0, is none of {num_classes} classes"
    is_valid = (label >= 0) & (label < num_classes)
    return tf.where(is_valid, "", tf.strings.join([": label ", number, text]))
