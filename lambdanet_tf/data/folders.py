"""Folders of images with a folder for each class."""

import collections
import dataclasses
import os
import unicodedata
import warnings

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from lambdanet_tf.data.images import EncodedImage
from lambdanet_tf.data.images import open_image
from lambdanet_tf.data.sets import CLASS_FILES
from lambdanet_tf.data.sets import TEST_SHARE
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.data.sets import find_parts
from lambdanet_tf.data.sets import note_empty_classes
from lambdanet_tf.data.sets import three_parts
from lambdanet_tf.data.sources import IndexedSource
from lambdanet_tf.data.sources import Source
from lambdanet_tf.environment import MissingPackage
from lambdanet_tf.environment import require

_NATIVE = (".jpg", ".jpeg", ".png")
_ENDINGS = (*_NATIVE, ".bmp", ".gif", ".webp", ".tif", ".tiff")
_NOT_SHOWN = "__MACOSX"  # What a zip file of a Mac holds of its own.


class FileSource(IndexedSource):
    """Image files: JPEG and PNG; with Pillow BMP, GIF, WebP and TIFF.

    Args:
        files: paths on any file system that `tf.io.gfile` knows.
        labels: a class index for each file.
        channels: 3 for color, 1 for gray.

    Raises:
        ValueError: if there is no file.
        ImportError: if a file needs Pillow, which is not installed.
    """

    may_be_corrupt = True

    def __init__(self, files: ArrayLike, labels: ArrayLike, channels: int = 3):
        super().__init__(
            {"name": np.array(files), "label": np.array(labels, np.int32)}
        )
        self._channels = channels
        names = self.columns["name"]
        for_pillow = [name for name in names if _ending(name) not in _NATIVE]
        if for_pillow:
            _require_pillow(len(for_pillow), len(names))

    def decode(
        self, item: dict[str, tf.Tensor]
    ) -> tuple[EncodedImage, tf.Tensor]:
        encoded = tf.io.read_file(item["name"])
        return open_image(encoded, self._channels), item["label"]

    def _name(self, item):
        return item["name"].numpy().decode()


def read_folder(
    path: str, validation_split: float = 0.1, channels: int = 3
) -> ImageSet:
    """Reads the `ImageSet` of a folder.

    Either `path/<class>/<image>`, of which a fifth of each class becomes the
    test set; or `path/train/<class>/<image>` and the same in `test/`, in
    `val/` (or `valid/`, `validation/`, `dev/`), or in both. `test/` is the
    test set, and `val/` where there is no `test/`. With both, `val/` is the
    validation set and `validation_split` is not used.

    Files that are left out are counted in the description and in a warning.

    Args:
        path: the folder, on any file system that `tf.io.gfile` knows.
        validation_split: share of the training images of each class that
            becomes validation images.
        channels: 3 for color, 1 for gray.

    Returns:
        An `ImageSet`; its pixels are in [0, 255].

    Raises:
        ValueError: if there is no such folder, no image in it, or the parts
            have no classes or not the same.
        ImportError: if there are files for Pillow, which is not installed.

    Examples:
        >>> png = tf.io.encode_png(tf.zeros([8, 8, 3], tf.uint8))
        >>> for name in ("cat", "dog"):
        ...     for number in range(5):
        ...         tf.io.write_file(f"photographs/{name}/{number}.png", png)
        >>> images = read_folder("photographs")
        >>> images.classes, images.test.num_images
        (('cat', 'dog'), 2)
    """
    folders, notes = _part_folders(path)
    listings = {part: _list_images(folder) for part, folder in folders.items()}
    train = listings["train"]
    for part, listing in listings.items():
        _check_same_classes(path, part, listing.classes, train.classes)
        notes += listing.notes
    divided = three_parts(
        train.labels,
        0.0 if "validation" in listings else validation_split,
        0.0 if "test" in listings else TEST_SHARE,
    )
    whole = FileSource(train.files, train.labels, channels)
    parts: list[Source | None] = [whole.take(rows) for rows in divided]
    for number, part in ((1, "validation"), (2, "test")):
        if part in listings:
            there = listings[part]
            parts[number] = FileSource(there.files, there.labels, channels)
    if "test" not in listings and len(divided[2]):
        # What is nowhere has a note of its own.
        nowhere = {*range(len(train.classes))} - {*train.labels.tolist()}
        tested = {*nowhere, *train.labels[divided[2]].tolist()}
        notes += note_empty_classes(train.classes, tested, "test ")
    if notes:
        warnings.warn(f"{path}: {'; '.join(notes)}.", stacklevel=2)
    origin = f"the folder {path}"
    return ImageSet.build(
        f"folder:{path}", train.classes, channels, parts, origin, notes
    )


def find_images(path: str) -> list[str]:
    """Lists the image files in a folder and below it, sorted.

    Hidden folders are left out; what links reach more than once counts once.

    Args:
        path: the folder, on any file system that `tf.io.gfile` knows.

    Raises:
        ValueError: if there is no such folder, or no image in it.
    """
    if not tf.io.gfile.isdir(path):
        raise ValueError(f"There is no folder {path!r}.")
    found, folders, seen = [], [path], set()
    while folders:
        folder = folders.pop()
        real = os.path.realpath(folder)
        if real not in seen:
            seen.add(real)
            for name in _list(folder):
                below = os.path.join(folder, name)
                if _ending(name) in _ENDINGS:
                    found.append(below)
                elif tf.io.gfile.isdir(below):
                    folders.append(below)
    if not found:
        raise ValueError(
            f"{path} must hold images ({', '.join(_ENDINGS)}), in it or in "
            "folders of it. Received: none."
        )
    return sorted(found)


@dataclasses.dataclass(frozen=True)
class _Listing:
    """The images in the folders of the classes, and notes on what is not."""

    classes: tuple[str, ...]
    files: np.ndarray
    labels: np.ndarray
    notes: list[str]


def _part_folders(path):
    """The folders of the parts, and notes on what is not read."""
    if not tf.io.gfile.isdir(path):
        raise ValueError(f"There is no folder {path!r}.")
    below = _folders(path)
    # A part holds folders of classes; a class of that name holds images.
    classes = [name for name in below if _is_class(path, name)]
    found = find_parts(path, [name for name in below if name not in classes])
    _check_labels(path, found, classes)
    notes = [
        f"{file} is not read, the folders name the classes"
        for file in CLASS_FILES
        if tf.io.gfile.exists(os.path.join(path, file))
    ]
    if not found:
        return {"train": path}, notes
    if "train" not in found or "test" not in found:
        raise ValueError(
            f"{path} must hold both train/ and test/ (or val/), or folders of "
            f"classes alone. Received: {', '.join(below)}."
        )
    others = sorted(set(below) - set(found.values()))
    if others:
        notes.append(f"not read: {', '.join(others)}")
    return {p: os.path.join(path, name) for p, name in found.items()}, notes


def _check_labels(path, found, classes):
    """Raises a ValueError if what seem to be classes are parts without any."""
    flat = [name for name in classes if find_parts(path, [name])]
    has_parts = "train" in found and "test" in found
    if has_parts or not flat or (len(flat) == 1 and not found):
        return
    advice = ". Move each image to the folder of its class in it."
    if "train" in found:
        advice = (
            ", hence without labels. Read "
            f"folder:{os.path.join(path, found['train'])}, of which a fifth "
            "becomes the test set."
        )
    raise ValueError(
        f"{path}: each part must hold a folder for each class. Received: "
        f"images in {', '.join(flat)} without such folders{advice}"
    )


def _is_class(path, name):
    """Whether a folder holds images, and no folders."""
    folder = os.path.join(path, name)
    has_images = any(_ending(file) in _ENDINGS for file in _list(folder))
    return has_images and not _folders(folder)


def _list_images(root):
    """Lists the images below a folder, class by class, sorted."""
    folders = sorted((_class_name(name), name) for name in _folders(root))
    files, labels, left_out = [], [], collections.Counter()
    for label, (_, name) in enumerate(folders):
        folder = os.path.join(root, name)
        for file in _list(folder):
            path = os.path.join(folder, file)
            if _ending(file) in _ENDINGS:
                files.append(path)
                labels.append(label)
            elif tf.io.gfile.isdir(path):
                left_out["folders"] += 1
            else:
                left_out[_ending(file) or "without an ending"] += 1
    for file in _list(root):
        if _ending(file) in _ENDINGS:
            left_out["images next to the folders of the classes"] += 1
    if not files:
        inside = ", ".join(_list(root)[:10]) or "nothing"
        raise ValueError(
            f"{root} must hold a folder for each class, with images "
            f"({', '.join(_ENDINGS)}) in it. Received: {inside}."
        )
    classes = tuple(name for name, _ in folders)
    notes = note_empty_classes(classes, labels)
    if left_out:
        kinds = sorted(left_out.items())
        text = ", ".join(f"{kind}: {number}" for kind, number in kinds)
        notes.append(f"left out in {root}: {text}")
    return _Listing(classes, np.array(files), np.array(labels, np.int32), notes)


def _folders(path):
    return [
        name
        for name in _list(path)
        if _ending(name) not in _ENDINGS
        and tf.io.gfile.isdir(os.path.join(path, name))
    ]


def _list(path):
    """Lists a folder, sorted, without what is hidden."""
    try:
        names = [name.rstrip("/") for name in tf.io.gfile.listdir(path)]
    except UnicodeDecodeError as error:
        raise ValueError(
            f"The names of files in {path} must be UTF-8. Received: "
            f"{error.object!r}."
        ) from error
    return sorted(
        name
        for name in names
        if not name.startswith(".") and name != _NOT_SHOWN
    )


def _class_name(folder):
    return unicodedata.normalize("NFC", folder.strip())


def _ending(path):
    return os.path.splitext(path.rstrip())[1].lower()


def _check_same_classes(path, part, classes, of_train):
    if classes != of_train:
        different = sorted(set(classes) ^ set(of_train))
        raise ValueError(
            f"The parts of {path} must have the same classes. In train or "
            f"{part} alone: {', '.join(different)}."
        )


def _require_pillow(number, total):
    try:
        require("PIL.Image", extra="data")
    except ImportError as error:
        raise MissingPackage(
            f"{number} of {total} images are BMP, GIF, WebP or TIFF files, "
            f"which Pillow decodes. {error}"
        ) from error
