"""Images in NumPy arrays, and images that are fetched by their number."""

import numpy as np
import tensorflow as tf

from lambdanet_tf.data.decode import ArrayImage
from lambdanet_tf.data.images import ImageSet
from lambdanet_tf.data.images import Split
from lambdanet_tf.data.splitting import three_parts

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def array_set(train, test=None, classes=None, holdout=0.1, name="arrays"):
    """An `ImageSet` of images in memory.

    Args:
        train: (images, labels). The images, `(number, height, width,
            channels)` or without channels, in [0, 255].
        test: (images, labels) or None for a fifth of `train`.
        classes: sequence of str or None. The names of the labels.
        holdout: float. Share of the training images that is held out.
        name: str.

    Returns:
        An `ImageSet`.

    Raises:
        ValueError: if the arrays do not fit together.
    """
    images, labels = _checked(*train)
    train_part, validation_part, rest = three_parts(
        labels, holdout, test_share=0.2 if test is None else 0.0
    )
    parts = [(images[i], labels[i]) for i in (train_part, validation_part)]
    parts.append((images[rest], labels[rest]) if test is None else test)
    count = max(int(_checked(*part)[1].max(initial=-1)) for part in parts) + 1
    classes = tuple(classes or (str(i) for i in range(count)))
    if count > len(classes):
        raise ValueError(
            "`classes` must name every label. Received: "
            f"{len(classes)} names, labels up to {count - 1}."
        )
    splits = [array_split(*part) if len(part[1]) else None for part in parts]
    return ImageSet(
        name=name,
        classes=classes,
        channels=images.shape[-1],
        train=splits[0],
        validation=splits[1],
        test=splits[2],
        description=(
            f"{name}: {len(parts[0][1])} images to learn from, "
            f"{len(parts[1][1])} to choose the best epoch, "
            f"{len(parts[2][1])} to test."
        ),
    )


def read_arrays(path, holdout=0.1):
    """The `ImageSet` of an .npz file.

    Args:
        path: str. A file with the arrays `x_train`, `y_train`, `x_test` and
            `y_test`, as `array_set` takes them, and maybe `classes`.
        holdout: float. Share of the training images that is held out.

    Returns:
        An `ImageSet`.

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
        (x_train, y_train), (x_test, y_test), classes, holdout, name=path
    )


def array_split(images, labels):
    """A `Split` of images in memory.

    Args:
        images: array `(number, height, width, channels)`, in [0, 255].
        labels: array `(number,)` of class indices.

    Returns:
        A `Split`.

    Raises:
        ValueError: if the arrays do not fit together or hold no image.
    """
    images, labels = _checked(images, labels)
    return indexed_split(
        len(images),
        lambda: (tf.constant(images), tf.constant(labels)),
        ArrayImage,
    )


def indexed_split(num_images, make_columns, open_image, can_fail=False):
    """A `Split` of images that can be fetched by their number.

    The order of a pass is a pseudo-random permutation that is computed, not
    stored, so reading can start at any position without reading what is
    before it.

    Args:
        num_images: int.
        make_columns: callable without arguments that returns two tensors, the
            images (or their paths) and the labels.
        open_image: callable from one of the images to an `ArrayImage` or an
            `EncodedImage`.
        can_fail: bool. Whether that can fail.

    Returns:
        A `Split`.

    Raises:
        ValueError: if there is no image.
    """
    if num_images < 1:
        raise ValueError("A split must hold at least one image. Received: 0.")

    def fetch_from(positions, index_of):
        with tf.device("CPU:0"):
            images, labels = make_columns()

        def fetch(position):
            index = index_of(position)
            image = tf.gather(images, index)
            is_path = image.dtype == tf.string
            return {
                "position": position,
                "name": image if is_path else tf.strings.as_string(index),
                "image": image,
                "label": tf.gather(labels, index),
            }

        return positions.map(fetch)

    def endless(seed, start, share):
        def index_of(position):
            pass_number = position // num_images
            return tf.random.experimental.index_shuffle(
                position % num_images,
                tf.cast(tf.stack([seed, pass_number]), tf.int32),
                num_images - 1,
            )

        positions = tf.data.Dataset.range(
            start + share.index, np.iinfo(np.int64).max, share.count
        )
        return fetch_from(positions, index_of)

    def once(share):
        positions = tf.data.Dataset.range(share.index, num_images, share.count)
        return fetch_from(positions, lambda position: position)

    def read(element):
        return open_image(element["image"]), element["label"]

    return Split(num_images, endless, once, read, can_fail)


def _checked(images, labels):
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
