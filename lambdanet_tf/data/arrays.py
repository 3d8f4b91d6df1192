"""Images in memory: arrays, .npz and IDX files, scikit-learn's digits."""

import gzip
import os
import zlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf import files
from lambdanet_tf.data.images import ArrayImage
from lambdanet_tf.data.sets import SPLIT_SEED
from lambdanet_tf.data.sets import TEST_SHARE
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.data.sets import note_empty_classes
from lambdanet_tf.data.sets import read_class_names
from lambdanet_tf.data.sets import three_parts
from lambdanet_tf.data.sources import IndexedSource
from lambdanet_tf.environment import require

Labelled = tuple[np.ndarray, np.ndarray]

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_MAX_SPARE_CLASSES = 1000
_UINT8 = 8  # The code of the type, the third byte of an IDX file.
FASHION_MNIST = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


class ArraySource(IndexedSource):
    """Images in memory.

    Args:
        images: array `(number, height, width, channels)`, or without channels,
            in [0, 255].
        labels: array `(number,)` of class indices.

    Raises:
        ValueError: if the arrays do not fit together or hold no image.

    Examples:
        >>> ArraySource(np.zeros([4, 8, 8, 3]), np.arange(4)).num_images
        4
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray):
        images, labels = _checked(images, labels)
        super().__init__({"image": images, "label": labels})

    def decode(
        self, item: dict[str, tf.Tensor]
    ) -> tuple[ArrayImage, tf.Tensor]:
        return ArrayImage(item["image"]), item["label"]


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
        validation_split: share of the training images of each class that
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
    for part, pair in {"train": train, "test": test}.items():
        if pair is not None and not np.size(pair[0]):
            raise ValueError(
                f"`{part}` must hold at least one image. Received: images of "
                f"shape {np.shape(pair[0])}."
            )
    whole = ArraySource(*train)
    images, labels = whole.columns["image"], whole.columns["label"]
    divided = three_parts(
        labels, validation_split, test_share=TEST_SHARE if test is None else 0.0
    )
    parts = [whole.take(rows) for rows in divided]
    if test is not None:
        parts[2] = ArraySource(*test)
        shape = parts[2].columns["image"].shape
        if shape[-1] != images.shape[-1]:
            raise ValueError(
                "`test` must have as many channels as `train`. Received: "
                f"shapes {shape} and {images.shape}."
            )
    classes = _name_classes(
        classes, [part.columns["label"] for part in parts if part]
    )
    return ImageSet.build(
        name,
        classes,
        images.shape[-1],
        parts,
        name,
        [
            f"split by class with seed {SPLIT_SEED}",
            *notes,
            *note_empty_classes(classes, labels, "training "),
        ],
    )


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

    Examples:
        >>> images, labels = np.zeros([20, 8, 8]), np.arange(20) % 2
        >>> np.savez(
        ...     "set.npz",
        ...     x_train=images,
        ...     y_train=labels,
        ...     x_test=images,
        ...     y_test=labels,
        ... )
        >>> read_arrays("set.npz").test.num_images
        20
    """
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise ValueError(f"There is no file {path!r}.")
    arrays = files.read_arrays(path)
    missing = [name for name in _ARRAYS if name not in arrays]
    if missing:
        raise ValueError(
            f"{path} must hold the arrays {', '.join(_ARRAYS)}. Missing: "
            f"{', '.join(missing)}."
        )
    classes = _decode_names(path, arrays.pop("classes", np.array([], "U")))
    x_train, y_train, x_test, y_test = (arrays.pop(name) for name in _ARRAYS)
    try:
        return array_set(
            (x_train, y_train),
            (x_test, y_test),
            classes,
            validation_split,
            f"arrays:{path}",
            [f"not read: {', '.join(arrays)}"] if arrays else (),
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_idx(path: str, validation_split: float = 0.1) -> ImageSet:
    """Reads the `ImageSet` of a folder of IDX files, MNIST's own format.

    The files are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`,
    `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, or the same with
    `.gz`; the last two are the test set. The names of the classes stand in
    `classes.txt`, one a line; those of Fashion-MNIST are known if the folder is
    called fashion, fashion-mnist or fashion_mnist, and holds images of 28x28
    and the labels 0 to 9.

    Args:
        path: the folder, on any file system that `tf.io.gfile` knows.
        validation_split: share of the training images of each class that
            becomes validation images.

    Returns:
        An `ImageSet`; its pixels are in [0, 255].

    Raises:
        ValueError: if a file is missing or damaged.

    Examples:
        >>> def write(name, array):
        ...     header = np.array([2048 + array.ndim, *array.shape], ">i4")
        ...     tf.io.write_file(name, header.tobytes() + array.tobytes())
        >>> for part in ("train", "t10k"):
        ...     labels = np.arange(20, dtype="uint8") % 2
        ...     write(f"{part}-labels-idx1-ubyte", labels)
        ...     write(
        ...         f"{part}-images-idx3-ubyte", np.zeros([20, 8, 8], "uint8")
        ...     )
        >>> read_idx(".").test.num_images
        20
    """
    train, test = (
        (
            read_idx_file(_find(path, f"{part}-images-idx3-ubyte")),
            read_idx_file(_find(path, f"{part}-labels-idx1-ubyte")),
        )
        for part in ("train", "t10k")
    )
    classes = read_class_names(path)
    if classes is None and _is_fashion_mnist(path, train, test):
        classes = FASHION_MNIST
    return array_set(train, test, classes, validation_split, f"idx:{path}")


def read_idx_file(path: str) -> np.ndarray:
    """Reads the array of bytes in an IDX file.

    Args:
        path: the file; it is decompressed if its name ends in `.gz`.

    Raises:
        ValueError: if it is none, or damaged.
    """
    with tf.io.gfile.GFile(path, "rb") as stream:
        content = stream.read()
    try:
        content = gzip.decompress(content) if path.endswith(".gz") else content
        rank = content[3]
        shape = np.frombuffer(content, ">i4", rank, offset=4)
        array = np.frombuffer(content, np.uint8, offset=4 + 4 * rank)
        if content[:3] != bytes([0, 0, _UINT8]) or array.size != shape.prod():
            raise ValueError(f"{array.size} bytes for the shape {shape}")
    except (EOFError, IndexError, OSError, ValueError, zlib.error) as error:
        raise ValueError(
            f"{path} must be a whole IDX file of bytes. Received: {error}."
        ) from error
    return array.reshape(shape)


def load_digits(validation_split: float = 0.1) -> ImageSet:
    """Loads scikit-learn's handwritten digits: 1,797 gray images of 8x8.

    The three parts are the same for every run: a fifth of the images of each
    class is the test set, `validation_split` of the rest the validation set.

    Args:
        validation_split: share of the training images of each class that
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


def _checked(images, labels):
    """Images with channels, and labels as int32 `(number,)`."""
    images, labels = np.asarray(images), np.asarray(labels)
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.ndim != 4:
        raise ValueError(
            "`images` must have the shape (number, height, width, channels). "
            f"Received: shape {images.shape}."
        )
    check_pixels("images", images)
    labels = labels.reshape(-1) if labels.shape[1:] == (1,) else labels
    if labels.shape != images.shape[:1]:
        raise ValueError(
            "`labels` must hold one class index for each image. Received: "
            f"shape {labels.shape} for images of shape {images.shape}."
        )
    is_number = labels.dtype.kind in "iuf"
    if not is_number or np.any((labels < 0) | (labels != np.floor(labels))):
        least = f", minimum {labels.min(initial=0)}" if is_number else ""
        raise ValueError(
            "`labels` must be whole numbers from 0, the names of the classes "
            f"in `classes`. Received: {labels.dtype}{least}."
        )
    if labels.max(initial=0) > np.iinfo(np.int32).max:
        raise ValueError(
            f"`labels` must be below 2**31. Received: {labels.max()}."
        )
    return images, labels.astype(np.int32)


def check_pixels(name: str, images: np.ndarray) -> None:
    """Checks that images can be pixels in [0, 255].

    Args:
        name: of the argument.
        images: of any shape.

    Raises:
        ValueError: if they are no numbers, or not in this range.

    Examples:
        >>> check_pixels("images", np.full([2, 8, 8, 1], 255))
    """
    if images.dtype.kind not in "iuf":
        raise ValueError(
            f"`{name}` must be numbers in [0, 255]. Received: "
            f"{images.dtype}. Give truth values as 0 and 255."
        )
    if not images.size:
        return
    low, high = images.min(), images.max()
    if not (low >= 0 and high <= 255) or 0 < high <= 1:
        raise ValueError(
            f"`{name}` must be pixels in [0, 255], as files have them; "
            f"networks normalize them. Received: {images.dtype} from {low} to "
            f"{high}. Scale them to 0 (black) to 255 (white)."
        )


def _name_classes(classes, labels):
    """The names of all labels; their numbers where there are no names."""
    count = max(int(part.max(initial=-1)) for part in labels) + 1
    if not len(classes or ()):
        if count > max(_MAX_SPARE_CLASSES, sum(map(len, labels))):
            raise ValueError(
                "`labels` must be numbers of classes, from 0 without gaps. "
                f"Received: labels up to {count - 1} for "
                f"{sum(map(len, labels))} images."
            )
        return list(map(str, range(count)))
    if count > len(classes):
        raise ValueError(
            "`classes` must name every label. Received: "
            f"{len(classes)} names, labels up to {count - 1}."
        )
    return list(classes)


def _decode_names(path, names):
    if names.ndim != 1:
        raise ValueError(
            f"{path} must hold the names of the classes as an array of one "
            f"axis. Received: `classes` of shape {names.shape}."
        )
    try:
        return [
            name.decode() if isinstance(name, bytes) else str(name)
            for name in names
        ]
    except UnicodeDecodeError as error:
        raise ValueError(
            f"The `classes` of {path} must be UTF-8. Received: "
            f"{error.object!r}."
        ) from error


def _is_fashion_mnist(path, train, test):
    """Whether the folder has its name, its size of images and its labels."""
    name = os.path.basename(os.path.abspath(path)).lower().replace("_", "-")
    return (
        name in ("fashion", "fashion-mnist")
        and train[0].shape[1:] == (28, 28)
        and np.array_equal(np.union1d(train[1], test[1]), np.arange(10))
    )


def _find(path, name):
    for file in (name, f"{name}.gz"):
        found = os.path.join(path, file)
        if tf.io.gfile.exists(found):
            return found
    raise ValueError(f"{path} must hold the file {name} or {name}.gz.")
