"""Images in memory: arrays, .npz files, scikit-learn's digits."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf import files
from lambdanet_tf.data.images import ArrayImage
from lambdanet_tf.data.sets import SPLIT_SEED
from lambdanet_tf.data.sets import TEST_SPLIT
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.data.sets import split_by_class
from lambdanet_tf.data.sources import IndexedSource
from lambdanet_tf.environment import require

Labelled = tuple[np.ndarray, np.ndarray]

_MAX_GAPS = 1000
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")


class ArraySource(IndexedSource):
    """Images in memory.

    Args:
        images: array `(number, height, width, channels)`, or without channels,
            in [0, 255].
        labels: array `(number,)` of class indices.

    Raises:
        ValueError: if the arrays do not fit together, hold no image, or what
            cannot be pixels or labels.

    Examples:
        >>> ArraySource(np.zeros([4, 8, 8, 3]), np.arange(4)).num_images
        4
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray):
        images, labels = np.asarray(images), np.asarray(labels)
        images = images[..., np.newaxis] if images.ndim == 3 else images
        labels = labels.reshape(-1) if labels.shape[1:] == (1,) else labels
        if images.ndim != 4 or labels.shape != images.shape[:1]:
            raise ValueError(
                "`images` must have the shape (number, height, width, "
                "channels), `labels` the shape (number,). Received: "
                f"{images.shape} and {labels.shape}."
            )
        check_pixels("images", images)
        whole = labels.astype(np.int64)
        if not np.array_equal(whole, labels):
            raise ValueError(
                f"`labels` must be whole numbers. Received: {labels.dtype}."
            )
        super().__init__({"image": images, "label": whole})

    def decode(
        self, item: dict[str, tf.Tensor]
    ) -> tuple[ArrayImage, tf.Tensor]:
        return ArrayImage(item["image"]), tf.cast(item["label"], tf.int32)


def array_set(
    train: Labelled,
    test: Labelled | None = None,
    classes: Sequence[str] | None = None,
    validation_split: float = 0.1,
    name: str = "arrays",
    notes: Sequence[str] = (),
) -> ImageSet:
    """Builds an `ImageSet` of images in memory.

    Args:
        train: images and labels, as `ArraySource` takes them.
        test: images and labels, or None for a fifth of `train`.
        classes: the names of the labels, or None for their numbers.
        validation_split: fraction of the training images of each class that
            becomes validation images.
        name: of the set.
        notes: remarks for the description.

    Returns:
        An `ImageSet`; its pixels are in [0, 255].

    Raises:
        ValueError: if the arrays do not fit together, or hold what cannot be
            pixels or labels.

    Examples:
        >>> images, labels = np.zeros([20, 8, 8]), np.arange(20) % 2
        >>> pairs = array_set((images, labels), classes=("cat", "dog"))
        >>> pairs.classes, pairs.test.num_images
        (('cat', 'dog'), 4)
    """
    whole = ArraySource(*train)
    labels = whole.columns["label"]
    rows = split_by_class(
        labels, validation_split, test_split=0.0 if test else TEST_SPLIT
    )
    splits = [whole.take(numbers) for numbers in rows]
    if test is not None:
        splits[2] = ArraySource(*test)
    if classes is None:
        last = max(source.columns["label"].max() for source in splits if source)
        if last > _MAX_GAPS + whole.num_images:
            raise ValueError(
                "`labels` must be numbers of classes, from 0 without gaps. "
                f"Received: {last}, and no names in `classes`."
            )
        classes = [str(number) for number in range(last + 1)]
    notes = (f"split by class with seed {SPLIT_SEED}", *notes)
    channels = whole.columns["image"].shape[-1]
    return ImageSet(name, tuple(classes), channels, *splits, notes)


def read_arrays(path: str, validation_split: float = 0.1) -> ImageSet:
    """Reads the `ImageSet` of an .npz file.

    Args:
        path: a file with the arrays `x_train`, `y_train`, `x_test` and
            `y_test`, as `array_set` takes them, and maybe `classes`.
        validation_split: see `array_set`.

    Returns:
        An `ImageSet`; its pixels are in [0, 255].

    Raises:
        ValueError: if there is no such file or an array is missing.
    """
    arrays = files.read_arrays(path)
    if missing := [name for name in _ARRAYS if name not in arrays]:
        raise ValueError(
            f"{path} must hold the arrays {', '.join(_ARRAYS)}. Missing: "
            f"{', '.join(missing)}."
        )
    x_train, y_train, x_test, y_test = (arrays.pop(name) for name in _ARRAYS)
    classes = arrays.pop("classes", None)
    return array_set(
        (x_train, y_train),
        (x_test, y_test),
        None if classes is None else classes.astype(str).tolist(),
        validation_split,
        f"arrays:{path}",
        [f"not read: {', '.join(arrays)}"] if arrays else (),
    )


def load_digits(validation_split: float = 0.1) -> ImageSet:
    """Loads scikit-learn's handwritten digits: 1,797 gray images of 8x8.

    The splits are the same for every run: a fifth of the images of each class
    is the test set, `validation_split` of the rest the validation set.

    Args:
        validation_split: fraction of the training images of each class that
            becomes validation images.

    Returns:
        An `ImageSet`, pixels float32 in [0, 255].

    Raises:
        ImportError: if scikit-learn is not installed.

    Examples:
        >>> digits = load_digits()
        >>> digits.train.num_images, digits.test.num_images
        (1295, 359)
    """
    digits = require("sklearn.datasets", extra="data").load_digits()
    images = digits.images.astype(np.float32) * (255 / 16)
    return array_set(
        (images, digits.target),
        validation_split=validation_split,
        name="digits",
    )


def check_pixels(name: str, images: np.ndarray) -> None:
    """Checks that images can be pixels in [0, 255].

    Those in [0, 1] or [-1, 1] would be served as if they were black.

    Args:
        name: of the argument.
        images: of any shape.

    Raises:
        ValueError: if they are no numbers, or not in this range.

    Examples:
        >>> check_pixels("images", np.full([2, 8, 8, 1], 255))
    """
    low, high = images.min(initial=0), images.max(initial=0)
    is_number = images.dtype.kind in "iuf"
    if not is_number or not 0 <= low <= high <= 255 or 0 < high <= 1:
        raise ValueError(
            f"`{name}` must be pixels in [0, 255], as files have them; "
            f"networks normalize them. Received: {images.dtype} from {low} to "
            f"{high}. Scale them to 0 (black) to 255 (white)."
        )
