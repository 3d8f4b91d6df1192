"""A folder of images with a folder for each class."""

import os

import numpy as np
import tensorflow as tf

from lambdanet_tf.data.arrays import indexed_split
from lambdanet_tf.data.decode import EncodedImage
from lambdanet_tf.data.images import ImageSet
from lambdanet_tf.data.splitting import three_parts

_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
_TRAIN = ("train", "training")
_TEST = ("test", "val", "validation")


def read_folder(path, holdout=0.1, channels=3):
    """The `ImageSet` of a folder.

    Either `path/<class>/<image>`, of which a fifth becomes the test set, or
    `path/train/<class>/<image>` and `path/test/<class>/<image>` (or `val`, or
    `validation`).

    Args:
        path: str. The folder; it may be on any file system that `tf.io.gfile`
            knows.
        holdout: float. Share of the training images that is held out.
        channels: int. 3 for colour, 1 for grey.

    Returns:
        An `ImageSet`.

    Raises:
        ValueError: if there is no such folder, no image in it, or the parts
            do not have the same classes.
    """
    if not tf.io.gfile.isdir(path):
        raise ValueError(f"There is no folder {path!r}.")
    below = set(_folders(path))
    train = next((name for name in _TRAIN if name in below), None)
    test = next((name for name in _TEST if name in below), None)
    if (train is None) != (test is None):
        raise ValueError(
            f"{path} must hold both train/ and test/ (or val/), or folders of "
            f"classes alone. Received: {', '.join(sorted(below))}."
        )
    root = os.path.join(path, train) if train else path
    classes, files, labels = _labelled_files(root)
    parts = three_parts(labels, holdout, test_share=0.0 if test else 0.2)
    parts = [(files[part], labels[part]) for part in parts]
    if test:
        of_test = _labelled_files(os.path.join(path, test))
        _same_classes(path, classes, of_test[0])
        parts[2] = of_test[1:]
    splits = [
        _file_split(*part, channels) if len(part[0]) else None for part in parts
    ]
    return ImageSet(
        name=f"folder:{path}",
        classes=classes,
        channels=channels,
        train=splits[0],
        validation=splits[1],
        test=splits[2],
        description=(
            f"The folder {path}: {len(parts[0][0])} images to learn from, "
            f"{len(parts[1][0])} to choose the best epoch, "
            f"{len(parts[2][0])} to test, {len(classes)} classes."
        ),
    )


def _file_split(files, labels, channels):
    return indexed_split(
        len(files),
        lambda: (tf.constant(files), tf.constant(labels)),
        lambda path: EncodedImage(tf.io.read_file(path), channels),
        can_fail=True,
    )


def _labelled_files(root):
    """Class names, sorted paths, and the label of each path."""
    classes = tuple(sorted(_folders(root)))
    files, labels = [], []
    for label, name in enumerate(classes):
        folder = os.path.join(root, name)
        found = sorted(
            os.path.join(folder, file)
            for file in tf.io.gfile.listdir(folder)
            if file.lower().endswith(_ENDINGS)
        )
        files += found
        labels += [label] * len(found)
    if not files:
        raise ValueError(
            f"{root} must hold a folder for each class, with images "
            f"({', '.join(_ENDINGS)}) in it. Received: none."
        )
    return classes, np.array(files), np.array(labels, np.int32)


def _folders(path):
    return [
        name.rstrip("/")
        for name in tf.io.gfile.listdir(path)
        if not name.startswith(".")
        and tf.io.gfile.isdir(os.path.join(path, name))
    ]


def _same_classes(path, classes, of_test):
    if classes != of_test:
        different = sorted(set(classes) ^ set(of_test))
        raise ValueError(
            f"The parts of {path} must have the same classes. Only in one of "
            f"them: {', '.join(different)}."
        )
