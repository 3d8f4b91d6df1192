"""Images in memory: arrays, .npz files, scikit-learn's digits."""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from lambdanet_tf import files
from lambdanet_tf.data import sets
from lambdanet_tf.data.images import ArrayImage
from lambdanet_tf.data.sources import IndexedSource
from lambdanet_tf.environment import require

Labelled = tuple[np.ndarray, np.ndarray]

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")


class ArraySource(IndexedSource):
    """Images in memory, with or without channels, and their labels."""

    def __init__(self, images: np.ndarray, labels: np.ndarray):
        images, labels = np.asarray(images), np.asarray(labels)
        images = images[..., np.newaxis] if images.ndim == 3 else images
        labels = labels.reshape(-1) if labels.shape[1:] == (1,) else labels
        is_empty = not images.size
        if images.ndim != 4 or labels.shape != images.shape[:1] or is_empty:
            raise ValueError(
                "`images` must have the shape (number, height, width, "
                "channels), not empty, and `labels` the shape (number,). "
                f"Received: {images.shape} and {labels.shape}."
            )
        low, high = images.min(), images.max()
        is_number = images.dtype.kind in "iuf"
        # If trained on [0, 1], the network would fail on files in [0, 255].
        if not is_number or not 0 <= low <= high <= 255 or 0 < high <= 1:
            raise ValueError(
                "`images` must be pixels in [0, 255], because the networks "
                f"normalize them. Received: {images.dtype} from {low} to "
                f"{high}. Scale them: 0 is black, 255 is white."
            )
        super().__init__({"image": images, "label": labels.astype(np.int64)})

    def decode(self, item: Any) -> tuple[ArrayImage, tf.Tensor]:
        return ArrayImage(item["image"]), tf.cast(item["label"], tf.int32)


def array_set(
    train: Labelled,
    test: Labelled | None = None,
    classes: ArrayLike | None = None,
    validation_split: float = 0.1,
    name: str = "arrays",
) -> sets.ImageSet:
    """Builds an `ImageSet` from images in memory.

    Args:
        train: images `(number, height, width[, channels])` in [0, 255], and
            class indices `(number,)`.
        test: images and labels, or None to use a fifth of `train`.
        classes: the names of the classes, or None for their numbers.
        validation_split: as in `load_images`.
        name: the name of the set.
    """
    given = {"train": ArraySource(*train)}
    if test is not None:
        given["test"] = ArraySource(*test)
    splits = sets.divide(given, validation_split)
    if classes is None:
        last = max(x.columns["label"].max() for x in given.values())
        classes = range(last + 1)
    names = np.asarray(classes).astype(str).tolist()
    channels = given["train"].columns["image"].shape[-1]
    note = f"split by class with seed {sets.SPLIT_SEED}"
    return sets.ImageSet(name, tuple(names), channels, **splits, notes=(note,))


def read_arrays(path: str, validation_split: float = 0.1) -> sets.ImageSet:
    """Reads the `ImageSet` of an .npz file, see docs/data.md."""
    arrays = files.read_arrays(path)
    if missing := [name for name in _ARRAYS if name not in arrays]:
        raise ValueError(f"{path} lacks the arrays {', '.join(missing)}.")
    x, y, x_test, y_test = (arrays[name] for name in _ARRAYS)
    classes, name = arrays.get("classes"), f"arrays:{path}"
    return array_set((x, y), (x_test, y_test), classes, validation_split, name)


def load_digits(validation_split: float = 0.1) -> sets.ImageSet:
    """Loads scikit-learn's handwritten digits: 1,797 gray images of 8x8.

    Args:
        validation_split: as in `load_images`.
    """
    digits = require("sklearn.datasets", extra="data").load_digits()
    images = digits.images.astype(np.float32) * (255 / 16)
    train = images, digits.target
    return array_set(train, validation_split=validation_split, name="digits")
