"""Folders of images with a folder for each class."""

import collections
import os
import unicodedata
import warnings

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from lambdanet_tf.data import sets
from lambdanet_tf.data.images import EncodedImage
from lambdanet_tf.data.images import open_image
from lambdanet_tf.data.sources import IndexedSource
from lambdanet_tf.environment import require

_NATIVE = (".jpg", ".jpeg", ".png")
_ENDINGS = (*_NATIVE, ".bmp", ".gif", ".webp", ".tif", ".tiff")
_NOT_SHOWN = "__MACOSX"  # What a zip file of a Mac holds of its own.
_RUN_FILE = "run.json"  # A run folder has pictures, but no images to train on.


class FileSource(IndexedSource):
    """Image files: JPEG and PNG; with Pillow BMP, GIF, WebP and TIFF."""

    may_be_corrupt = True

    def __init__(self, files: ArrayLike, labels: ArrayLike, channels: int = 3):
        super().__init__(
            {"name": np.array(files), "label": np.array(labels, np.int32)}
        )
        self._channels = channels
        if any(_ending(name) not in _NATIVE for name in self.columns["name"]):
            require("PIL.Image", extra="data")

    def decode(
        self, item: dict[str, tf.Tensor]
    ) -> tuple[EncodedImage, tf.Tensor]:
        encoded = tf.io.read_file(item["name"])
        return open_image(encoded, self._channels), item["label"]

    def name(self, position: int) -> str:
        return str(self.columns["name"][position])


def read_folder(
    path: str, validation_split: float = 0.1, channels: int = 3
) -> sets.ImageSet:
    """Reads the `ImageSet` of a folder.

    Either `path/<class>/<image>`, of which a fifth of each class becomes the
    test set; or `path/train/<class>/<image>` and the same in `test/`, in
    `val/`, or in both, where `val/` is the validation set. What is left out is
    counted in the description and in a warning.

    Args:
        path: the folder, on any file system that `tf.io.gfile` knows.
        validation_split: fraction of the training images of each class that
            becomes validation images.
        channels: 3 for color, 1 for gray.

    Raises:
        ValueError: if there is no image in the folder, or a split has no
            classes or others than the training images.
        ImportError: if there are files for Pillow, which is not installed.
    """
    listings, left_out = _list_splits(path)
    classes = sorted(listings["train"])
    sources = {}
    for split, listing in listings.items():
        pairs = [
            (file, label)
            for label, name in enumerate(classes)
            for file in listing[name]
        ]
        files, labels = zip(*pairs, strict=True)
        sources[split] = FileSource(files, labels, channels)
    splits = sets.divide(sources, validation_split)
    counts = [f"{kind}: {count}" for kind, count in sorted(left_out.items())]
    notes = (f"left out: {', '.join(counts)}",) if counts else ()
    images = sets.ImageSet(
        f"folder:{path}", tuple(classes), channels, **splits, notes=notes
    )
    if notes:
        warnings.warn(images.description, stacklevel=2)
    return images


def _list_splits(path):
    """Returns the images of each split by class, and what is left out."""
    below = tf.io.gfile.listdir(path) if tf.io.gfile.isdir(path) else []
    splits = sets.find_splits(path, [name.rstrip("/") for name in below])
    if splits and not {"train", "test"} <= splits.keys():
        raise ValueError(
            f"{path} must hold both train/ and test/ (or val/), or folders of "
            f"classes alone. Received: {', '.join(splits.values())}."
        )
    left_out, listings = collections.Counter(), {}
    for split, name in (splits or {"train": ""}).items():
        listing = _list_images(os.path.join(path, name), left_out)
        listings[split] = listing  # That of training comes first.
        if unknown := sorted(listing.keys() - listings["train"].keys()):
            raise ValueError(
                f"The splits of {path} must have the same classes. In {split} "
                f"alone: {', '.join(unknown)}."
            )
    return listings, left_out


def find_images(folder: str) -> list[str]:
    """Lists the image files in a folder and below it; hidden ones are not."""
    return [file for file in _files(folder) if _ending(file) in _ENDINGS]


def _list_images(root, left_out):
    """Lists the images of each class of a split; counts what is left out."""
    listing, runs = collections.defaultdict(list), set()
    for file in _files(root):
        *folders, name = os.path.relpath(file, root).split(os.sep)
        if name == _RUN_FILE:
            runs.update(folders[:1])
        elif len(folders) == 1 and _ending(name) in _ENDINGS:
            class_name = unicodedata.normalize("NFC", folders[0].strip())
            listing[class_name].append(file)
        else:
            left_out[_ending(name) or "without an ending"] += 1
    for name in runs & listing.keys():
        left_out["pictures of a run"] += len(listing.pop(name))
    if not listing:
        raise ValueError(
            f"{root} must hold a folder for each class, with images "
            f"({', '.join(_ENDINGS)}) in it. Received: none."
        )
    return listing


def _files(folder):
    """Yields the files in a folder and below it, sorted, hidden ones not."""
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    for name in sorted(name.rstrip("/") for name in names):
        path = os.path.join(folder, name)
        if name.startswith(".") or name == _NOT_SHOWN:
            continue
        if _ending(name) not in _ENDINGS and tf.io.gfile.isdir(path):
            yield from _files(path)
        else:
            yield path


def _ending(path):
    return os.path.splitext(path.rstrip())[1].lower()
