"""Folders of images with a folder for each class."""

import collections
import os
import unicodedata
import warnings

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from lambdanet_tf.data.images import EncodedImage
from lambdanet_tf.data.images import open_image
from lambdanet_tf.data.sets import TEST_SPLIT
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.data.sets import find_splits
from lambdanet_tf.data.sets import split_by_class
from lambdanet_tf.data.sources import IndexedSource
from lambdanet_tf.environment import require

_NATIVE = (".jpg", ".jpeg", ".png")
_ENDINGS = (*_NATIVE, ".bmp", ".gif", ".webp", ".tif", ".tiff")
_NOT_SHOWN = "__MACOSX"  # What a zip file of a Mac holds of its own.
_RUN_FILE = "run.json"  # A run folder has pictures, but no images to train on.


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
        if any(_ending(name) not in _NATIVE for name in self.columns["name"]):
            require("PIL.Image", extra="data")

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

    A class is a folder with images in it. What is left out stands in the
    description and in a warning.

    Args:
        path: the folder, on any file system that `tf.io.gfile` knows.
        validation_split: fraction of the training images of each class that
            becomes validation images.
        channels: 3 for color, 1 for gray.

    Returns:
        An `ImageSet`; its pixels are in [0, 255].

    Raises:
        ValueError: if there is no such folder, no image in it, or a split has
            no classes or others than the training images.
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
    splits = find_splits(path, _list(path))
    if splits and not {"train", "test"} <= splits.keys():
        raise ValueError(
            f"{path} must hold both train/ and test/ (or val/), or folders of "
            f"classes alone. Received: {', '.join(_list(path))}."
        )
    left_out = collections.Counter()
    listings = {
        split: _list_images(os.path.join(path, name), left_out)
        for split, name in (splits or {"train": ""}).items()
    }
    classes = sorted(listings["train"])
    sources = {}
    for split, listing in listings.items():
        if unknown := sorted(listing.keys() - set(classes)):
            raise ValueError(
                f"The splits of {path} must have the same classes. In {split} "
                f"alone: {', '.join(unknown)}."
            )
        files = [listing.get(name, []) for name in classes]
        labels = np.repeat(np.arange(len(classes)), [*map(len, files)])
        sources[split] = FileSource(sum(files, []), labels, channels)
    whole = sources.pop("train")
    rows = split_by_class(
        whole.columns["label"],
        0.0 if "validation" in sources else validation_split,
        0.0 if "test" in sources else TEST_SPLIT,
    )
    train, validation, test = map(whole.take, rows)
    notes = [f"{kind}: {count}" for kind, count in sorted(left_out.items())]
    images = ImageSet(
        f"folder:{path}",
        tuple(classes),
        channels,
        train,
        sources.get("validation", validation),
        sources.get("test", test),
        (f"left out: {', '.join(notes)}",) if notes else (),
    )
    if images.notes or images.missing():
        warnings.warn(images.description, stacklevel=2)
    return images


def find_images(path: str) -> list[str]:
    """Lists the image files in a folder and below it; hidden ones are not."""
    images, folders, _ = _contents(path)
    return images + [image for x in folders for image in find_images(x)]


def _list_images(root, left_out):
    """Lists the images of each class in a split; counts what is left out."""
    beside, folders, _ = _contents(root)
    listing = collections.defaultdict(list)
    left_out.update("images beside the classes" for _ in beside)
    for folder in folders:
        images, below, others = _contents(folder)
        if not images or tf.io.gfile.exists(os.path.join(folder, _RUN_FILE)):
            left_out["folders without images"] += 1
            continue
        name = os.path.basename(folder).strip()
        listing[unicodedata.normalize("NFC", name)] += images
        left_out.update(_ending(p) or "without an ending" for p in others)
        left_out.update("folders in classes" for _ in below)
    if not listing:
        raise ValueError(
            f"{root} must hold a folder for each class, with images "
            f"({', '.join(_ENDINGS)}) in it. Received: "
            f"{', '.join(_list(root)[:10]) or 'nothing'}."
        )
    return listing


def _contents(folder):
    """Returns the paths of images, of folders and of all else in a folder."""
    images, folders, others = [], [], []
    for name in _list(folder):
        path = os.path.join(folder, name)
        if _ending(name) in _ENDINGS:
            images.append(path)
        elif tf.io.gfile.isdir(path):
            folders.append(path)
        else:
            others.append(path)
    return images, folders, others


def _list(folder):
    """Lists a folder, sorted, without what is hidden."""
    if not tf.io.gfile.isdir(folder):
        raise ValueError(f"There is no folder {folder!r}.")
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]
    return sorted(
        name
        for name in names
        if not name.startswith(".") and name != _NOT_SHOWN
    )


def _ending(path):
    return os.path.splitext(path.rstrip())[1].lower()
