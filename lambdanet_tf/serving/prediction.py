"""Predictions of image files by an export, with TensorFlow and Pillow only."""

import contextlib
import csv
import io
import logging
import os
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import positive_int
from lambdanet_tf.arguments import users_input
from lambdanet_tf.data.folders import find_images
from lambdanet_tf.data.images import as_png
from lambdanet_tf.serving.inference import scores_of
from lambdanet_tf.serving.versions import read_metadata

_NATIVE = (b"\xff\xd8\xff", b"\x89PNG")  # the export decodes these itself


class Prediction(NamedTuple):
    """The most likely classes of an image file.

    Attributes:
        file: path of the file.
        classes: names and probabilities, the most likely first.
        error: the reason why the file cannot be read, or "".
    """

    file: str
    classes: Sequence[tuple[str, float]] = ()
    error: str = ""

    def __str__(self):
        found = [f"{name} {score:.1%}" for name, score in self.classes]
        return f"{self.file}: {', '.join(found)}"

    def csv(self) -> str:
        """Returns a line of CSV: the file, each class and its probability."""
        stream = io.StringIO()
        cells = [f"{cell}" for pair in self.classes for cell in pair]
        csv.writer(stream, lineterminator="").writerow([self.file, *cells])
        return stream.getvalue()


def predict_files(
    folder: str | os.PathLike,
    files: Iterable[str | os.PathLike[str]],
    top: int = 5,
) -> Iterator[Prediction]:
    """Predicts classes of image files, by the signature `serving_bytes`.

    Args:
        folder: the version folder of an export.
        files: paths of JPEG, PNG, BMP, GIF, TIFF or WebP files.
        top: the number of classes to return.

    Yields:
        A `Prediction` for each file, in the same order.

    Raises:
        ValueError: if the folder is not an export of this package.
    """
    with users_input():
        positive_int("top", top)
    metadata = read_metadata(folder)
    labels, max_pixels = metadata["labels"], metadata["options"]["max_pixels"]
    with _without_warnings():
        loaded = tf.saved_model.load(os.fspath(folder))
    serve = loaded.signatures["serving_bytes"]
    for path in files:
        file = os.fspath(path)
        try:
            with tf.io.gfile.GFile(file, "rb") as stream:
                encoded = stream.read()
            if not encoded.startswith(_NATIVE):
                encoded = as_png(encoded)
            outputs = serve(tf.constant([encoded]))
        except tf.errors.InvalidArgumentError:
            error = f"not an image, or more than {max_pixels:,} pixels"
            yield Prediction(file, error=error)
            continue
        except Exception as error:  # Pillow raises many types.
            yield Prediction(file, error=f"{getattr(error, 'message', error)}")
            continue
        [scores] = scores_of(outputs["probabilities"].numpy())
        likely = np.argsort(-scores, kind="stable")[:top]
        found = [(labels[index], float(scores[index])) for index in likely]
        yield Prediction(file, found)


@contextlib.contextmanager
def _without_warnings():
    """Hides TensorFlow's warning that an export has no gradients."""
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


@users_input()
def image_files(paths: Iterable[str]) -> list[str]:
    """Returns paths of files, and replaces folders by the images in them."""
    return [
        file
        for path in paths
        for file in (find_images(path) if tf.io.gfile.isdir(path) else [path])
    ]
