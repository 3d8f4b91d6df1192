"""Folders of images with a folder for each class."""

import collections
import dataclasses
import os
import warnings
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf.data.decode import EncodedImage
from lambdanet_tf.data.decode import convert_to_png
from lambdanet_tf.data.image_set import PARTS
from lambdanet_tf.data.image_set import TEST_SHARE
from lambdanet_tf.data.image_set import ImageSet
from lambdanet_tf.data.image_set import name_test_part
from lambdanet_tf.data.image_set import three_parts
from lambdanet_tf.data.source import Element
from lambdanet_tf.data.source import IndexedSource
from lambdanet_tf.environment import require

_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
_PILLOW_ENDINGS = (".webp", ".tif", ".tiff")


class FileSource(IndexedSource):
    """Image files: JPEG, PNG, BMP, GIF; with Pillow WebP and TIFF.

    Args:
        files: paths on any file system that `tf.io.gfile` knows.
        labels: a class index for each file.
        channels: 3 for color, 1 for gray.

    Raises:
        ValueError: if there is no file.
        ImportError: if a file needs Pillow, which is not installed.
    """

    can_fail = True

    def __init__(
        self, files: Sequence[str], labels: Sequence[int], channels: int = 3
    ):
        super().__init__(
            {"name": np.array(files), "label": np.array(labels, np.int32)}
        )
        self._channels = channels
        self._needs_pillow = any(map(_is_for_pillow, files))
        if self._needs_pillow:
            _require_pillow(files)

    def decode(self, element: Element) -> tuple[EncodedImage, tf.Tensor]:
        path = element["name"]
        encoded = tf.io.read_file(path)
        if self._needs_pillow:  # Python in the pipeline, for these files only
            endings = "|".join(ending[1:] for ending in _PILLOW_ENDINGS)
            encoded = tf.cond(
                tf.strings.regex_full_match(path, rf"(?is).*\.({endings})"),
                lambda: convert_to_png(encoded),
                lambda: encoded,
            )
        return EncodedImage(encoded, self._channels), element["label"]


def read_folder(
    path: str, validation_split: float = 0.1, channels: int = 3
) -> ImageSet:
    """Reads the `ImageSet` of a folder.

    Either `path/<class>/<image>`, of which a fifth of each class becomes the
    test set; or `path/train/<class>/<image>` and the same in `test/`, in
    `val/` (or `validation/`), or in both. `test/` is the test set, and `val/`
    where there is no `test/`. With both, `val/` is the validation set and
    `validation_split` is not used.

    Files that are left out are counted in the description and in a warning.

    Args:
        path: the folder, on any file system that `tf.io.gfile` knows.
        validation_split: share of the training images of each class that
            becomes validation images.
        channels: 3 for color, 1 for gray.

    Raises:
        ValueError: if there is no such folder, no image in it, or the parts
            do not have the same classes.
        ImportError: if there are WebP or TIFF files and Pillow is not
            installed.
    """
    folders = _part_folders(path)
    listings = {part: _list_images(folder) for part, folder in folders.items()}
    train = listings["train"]
    for part, listing in listings.items():
        _check_same_classes(path, part, listing.classes, train.classes)
    indices = three_parts(
        train.labels,
        0.0 if "validation" in listings else validation_split,
        0.0 if "test" in listings else TEST_SHARE,
    )
    parts = [(train.files[part], train.labels[part]) for part in indices]
    for number, part in ((1, "validation"), (2, "test")):
        if part in listings:
            parts[number] = listings[part].files, listings[part].labels
    sources = [
        FileSource(*part, channels) if len(part[0]) else None for part in parts
    ]
    notes = [note for listing in listings.values() for note in listing.notes]
    if notes:
        warnings.warn(f"{path}: {'; '.join(notes)}.", stacklevel=2)
    origin = f"the folder {path}"
    return ImageSet.build(
        f"folder:{path}", train.classes, channels, sources, origin, notes
    )


def find_images(path: str) -> list[str]:
    """Lists the image files in a folder and below it, sorted.

    Args:
        path: the folder, on any file system that `tf.io.gfile` knows.

    Raises:
        ValueError: if there is no such folder, or no image in it.
    """
    if not tf.io.gfile.isdir(path):
        raise ValueError(f"There is no folder {path!r}.")
    endings = _ENDINGS + _PILLOW_ENDINGS
    found = [
        os.path.join(folder, file)
        for folder, _, files in tf.io.gfile.walk(path)
        for file in files
        if _ending(file) in endings and not file.startswith(".")
    ]
    if not found:
        raise ValueError(
            f"{path} must hold images ({', '.join(endings)}), in it or in "
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
    """The folders of the parts: "train", maybe "test" and "validation"."""
    if not tf.io.gfile.isdir(path):
        raise ValueError(f"There is no folder {path!r}.")
    below = set(_folders(path))
    found = {
        part: os.path.join(path, name)
        for part, names in PARTS.items()
        for name in names
        if name in below
    }
    if not found:
        return {"train": path}
    found = name_test_part(found)
    if "train" not in found or "test" not in found:
        raise ValueError(
            f"{path} must hold both train/ and test/ (or val/), or folders of "
            f"classes alone. Received: {', '.join(sorted(below))}."
        )
    return found


def _list_images(root):
    """Lists the images below a folder, class by class, sorted."""
    classes = tuple(sorted(_folders(root)))
    files, labels, left_out = [], [], collections.Counter()
    for label, name in enumerate(classes):
        folder = os.path.join(root, name)
        for file in _visible(folder):
            path = os.path.join(folder, file)
            if _ending(file) in _ENDINGS + _PILLOW_ENDINGS:
                files.append(path)
                labels.append(label)
            elif tf.io.gfile.isdir(path):
                left_out["folders"] += 1
            else:
                left_out[_ending(file) or "without an ending"] += 1
    for file in _visible(root):
        if _ending(file) in _ENDINGS + _PILLOW_ENDINGS:
            left_out["images beside the folders of the classes"] += 1
    if not files:
        raise ValueError(
            f"{root} must hold a folder for each class, with images "
            f"({', '.join(_ENDINGS + _PILLOW_ENDINGS)}) in it. Received: none."
        )
    empty = sorted(set(range(len(classes))) - set(labels))
    notes = [f"no image of {classes[label]}" for label in empty]
    if left_out:
        kinds = sorted(left_out.items())
        text = ", ".join(f"{kind}: {number}" for kind, number in kinds)
        notes.append(f"left out in {root}: {text}")
    return _Listing(classes, np.array(files), np.array(labels, np.int32), notes)


def _folders(path):
    return [
        name.rstrip("/")
        for name in _visible(path)
        if tf.io.gfile.isdir(os.path.join(path, name))
    ]


def _visible(path):
    names = sorted(tf.io.gfile.listdir(path))
    return [name for name in names if not name.startswith(".")]


def _ending(path):
    return os.path.splitext(path)[1].lower()


def _check_same_classes(path, part, classes, of_train):
    if classes != of_train:
        different = sorted(set(classes) ^ set(of_train))
        raise ValueError(
            f"The parts of {path} must have the same classes. In train or "
            f"{part} alone: {', '.join(different)}."
        )


def _is_for_pillow(path):
    return _ending(path) in _PILLOW_ENDINGS


def _require_pillow(files):
    try:
        require("PIL.Image", extra="data")
    except ImportError as error:
        number = sum(map(_is_for_pillow, files))
        raise ImportError(
            f"{number} of {len(files)} images are WebP or TIFF files, which "
            f"Pillow decodes. {error}"
        ) from error
