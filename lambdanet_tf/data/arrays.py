"""Images in memory: NumPy arrays, .npz files, scikit-learn's digits."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf.data.decode import ArrayImage
from lambdanet_tf.data.image_set import SPLIT_SEED
from lambdanet_tf.data.image_set import TEST_SHARE
from lambdanet_tf.data.image_set import ImageSet
from lambdanet_tf.data.image_set import three_parts
from lambdanet_tf.data.source import Element
from lambdanet_tf.data.source import IndexedSource
from lambdanet_tf.environment import require

Labelled = tuple[np.ndarray, np.ndarray]

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")


class ArraySource(IndexedSource):
    """Images in memory.

    Args:
        images: array `(number, height, width, channels)`, or without channels,
            in [0, 255].
        labels: array `(number,)` of class indices.

    Raises:
        ValueError: if the arrays do not fit together or hold no image.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray):
        images, labels = check_arrays(images, labels)
        super().__init__({"image": images, "label": labels})

    def decode(self, element: Element) -> tuple[ArrayImage, tf.Tensor]:
        return ArrayImage(element["image"]), element["label"]


def array_set(
    train: Labelled,
    test: Labelled | None = None,
    classes: Sequence[str] | None = None,
    validation_split: float = 0.1,
    name: str = "arrays",
) -> ImageSet:
    """Builds an `ImageSet` of images in memory.

    Args:
        train: images and labels, as `ArraySource` takes them.
        test: images and labels, or None for a fifth of `train`.
        classes: the names of the labels, or None for their numbers.
        validation_split: share of the training images of each class that
            becomes validation images.
        name: of the set.

    Raises:
        ValueError: if the arrays do not fit together.
    """
    images, labels = check_arrays(*train)
    indices = three_parts(
        labels, validation_split, test_share=TEST_SHARE if test is None else 0.0
    )
    parts = [(images[part], labels[part]) for part in indices]
    if test is not None:
        parts[2] = check_arrays(*test)
    if parts[2][0].shape[-1] != images.shape[-1]:
        raise ValueError(
            "`test` must have as many channels as `train`. Received: shapes "
            f"{parts[2][0].shape} and {images.shape}."
        )
    count = max(int(part[1].max(initial=-1)) for part in parts) + 1
    classes = list(classes or map(str, range(count)))
    if count > len(classes):
        raise ValueError(
            "`classes` must name every label. Received: "
            f"{len(classes)} names, labels up to {count - 1}."
        )
    sources = [ArraySource(*part) if len(part[1]) else None for part in parts]
    return ImageSet.build(
        name,
        classes,
        images.shape[-1],
        sources,
        name,
        [f"split by class with seed {SPLIT_SEED}"],
    )


def read_arrays(path: str, validation_split: float = 0.1) -> ImageSet:
    """Reads the `ImageSet` of an .npz file.

    Args:
        path: a file with the arrays `x_train`, `y_train`, `x_test` and
            `y_test`, as `array_set` takes them, and maybe `classes`.
        validation_split: see `array_set`.

    Raises:
        ValueError: if there is no such file or an array is missing.
    """
    if not tf.io.gfile.exists(path):
        raise ValueError(f"There is no file {path!r}.")
    with tf.io.gfile.GFile(path, "rb") as stream, np.load(stream) as file:
        missing = [name for name in _ARRAYS if name not in file]
        if missing:
            raise ValueError(
                f"{path} must hold the arrays {', '.join(_ARRAYS)}. Missing: "
                f"{', '.join(missing)}."
            )
        x_train, y_train, x_test, y_test = (file[name] for name in _ARRAYS)
        classes = [str(c) for c in file["classes"]] if "classes" in file else ()
    return array_set(
        (x_train, y_train),
        (x_test, y_test),
        classes,
        validation_split,
        f"arrays:{path}",
    )


def load_digits(validation_split: float = 0.1) -> ImageSet:
    """Loads scikit-learn's handwritten digits: 1,797 gray images of 8x8.

    The three parts are the same for every run: a fifth of the images of each
    class is the test set, `validation_split` of the rest the validation set.

    Returns:
        An `ImageSet`, pixels float32 in [0, 255].

    Raises:
        ImportError: if scikit-learn is not installed.
    """
    digits = require("sklearn.datasets", extra="data").load_digits()
    images = digits.images.astype(np.float32) * (255 / 16)
    return array_set(
        (images, digits.target),
        validation_split=validation_split,
        name="digits",
    )


def check_arrays(images: np.ndarray, labels: np.ndarray) -> Labelled:
    """Returns images with channels, and labels as int32 `(number,)`.

    Raises:
        ValueError: if they do not fit together.
    """
    images, labels = np.asarray(images), np.asarray(labels)
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.ndim != 4:
        raise ValueError(
            "`images` must have the shape (number, height, width, channels). "
            f"Received: shape {images.shape}."
        )
    labels = labels.reshape(-1) if labels.shape[1:] == (1,) else labels
    if labels.shape != images.shape[:1]:
        raise ValueError(
            "`labels` must hold one class index for each image. Received: "
            f"shape {labels.shape} for images of shape {images.shape}."
        )
    if not np.issubdtype(labels.dtype, np.integer) or np.any(labels < 0):
        raise ValueError(
            "`labels` must be whole numbers from 0. Received: "
            f"{labels.dtype}, minimum {labels.min(initial=0)}."
        )
    return images, labels.astype(np.int32)
