"""MNIST's own file format, IDX: MNIST, Fashion-MNIST and their like."""

import gzip
import os

import numpy as np
import tensorflow as tf

from lambdanet_tf.data.arrays import array_set
from lambdanet_tf.data.image_set import ImageSet
from lambdanet_tf.data.image_set import read_class_names

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
_UINT8 = 8  # the code of the type, the third byte of a file


def read_idx(path: str, validation_split: float = 0.1) -> ImageSet:
    """Reads the `ImageSet` of a folder of IDX files.

    The files are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`,
    `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, or the same with
    `.gz`; the last two are the test set. The names of the classes stand in
    `classes.txt`, one a line; those of Fashion-MNIST are known if "fashion" is
    in the path.

    Args:
        path: the folder, on any file system that `tf.io.gfile` knows.
        validation_split: share of the training images of each class that
            becomes validation images.

    Raises:
        ValueError: if a file is missing or damaged.
    """
    train, test = (
        (
            read_idx_file(_find(path, f"{part}-images-idx3-ubyte")),
            read_idx_file(_find(path, f"{part}-labels-idx1-ubyte")),
        )
        for part in ("train", "t10k")
    )
    classes = read_class_names(path)
    if classes is None and "fashion" in path.lower():
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
    except (EOFError, IndexError, OSError, ValueError) as error:
        raise ValueError(
            f"{path} must be a whole IDX file of bytes. Received: {error}."
        ) from error
    return array.reshape(shape)


def _find(path, name):
    for file in (name, f"{name}.gz"):
        found = os.path.join(path, file)
        if tf.io.gfile.exists(found):
            return found
    raise ValueError(f"{path} must hold the file {name} or {name}.gz.")
