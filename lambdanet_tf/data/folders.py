"""Image folders with one folder per class."""

import collections
import contextlib
import os
import unicodedata
import warnings
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import check_int
from lambdanet_tf.data import sets
from lambdanet_tf.data.images import EncodedImage
from lambdanet_tf.data.images import highest_of_16_bits
from lambdanet_tf.data.images import open_image
from lambdanet_tf.data.sources import IndexedSource
from lambdanet_tf.environment import require
from lambdanet_tf.files import matching

_NATIVE = (".jpg", ".jpeg", ".png")
_ENDINGS = (*_NATIVE, ".bmp", ".gif", ".webp", ".tif", ".tiff")
_DEEP = (".png", ".tif", ".tiff")  # These may have 16 bits.
_LOOKED_AT = 64
_NOT_SHOWN = "__MACOSX"  # Zip files from a Mac contain it.
_RUN_FILE = "run.json"  # A run folder has pictures that are not data.


class FileSource(IndexedSource):
    """Image files, opened by `open_image` with its options."""

    may_be_corrupt = True

    def __init__(self, files: ArrayLike, labels: ArrayLike, **options: int):
        super().__init__(
            {"name": np.array(files), "label": np.array(labels, np.int32)}
        )
        self._options = options
        if any(_ending(name) not in _NATIVE for name in self.columns["name"]):
            require("PIL.Image", extra="data")

    def decode(self, item: Any) -> tuple[EncodedImage, tf.Tensor]:
        encoded = tf.io.read_file(item["name"])
        return open_image(encoded, **self._options), item["label"]

    def name(self, position: int) -> str:
        return str(self.columns["name"][position])


def read_folder(
    path: str, validation_split: float = 0.1, channels: int = 3, bits: int = 16
) -> sets.ImageSet:
    """Reads the `ImageSet` of a folder, see docs/data.md.

    The description and a warning count the files that are ignored, and say if
    images with 16 bits are nearly black.
    """
    check_int("bits", bits, 8, 16)
    splits, left_out = _list_splits(path)
    classes = sorted(splits["train"])
    sources = {}
    for split, found in splits.items():
        files = [file for name in classes for file in found[name]]
        counts = [len(found[name]) for name in classes]
        labels = np.repeat(np.arange(len(classes)), counts)
        sources[split] = FileSource(files, labels, channels=channels, bits=bits)
    kinds = [f"{kind}: {count}" for kind, count in sorted(left_out.items())]
    notes = [f"ignored files: {', '.join(kinds)}"] if kinds else []
    if bits == 16 and 0 < _highest(sources["train"].columns["name"]) < 2**12:
        notes.append(
            "files with 16 bits have no value above 4095 and are nearly black; "
            "add `,bits=12` to the path to scale them"
        )
    images = sets.ImageSet(
        f"folder:{path}",
        tuple(classes),
        channels,
        **sets.divide(sources, validation_split),
        notes=tuple(notes),
        bits=bits,
    )
    if notes:
        warnings.warn(images.description, stacklevel=2)
    return images


def _list_splits(path):
    """Returns the files of each split by class, and counts ignored files."""
    files = [*_files(path)]
    places = [os.path.relpath(file, path).split(os.sep) for file in files]
    names = sets.find_splits({place[0] for place in places if place[1:]})
    if "train" not in names:
        names = {"train": ""}
    found = {name: collections.defaultdict(list) for name in names.values()}
    left_out = collections.Counter()
    for file, (*folders, name) in zip(files, places, strict=True):
        top = folders.pop(0) if folders and "" not in found else ""
        if top and top not in found:
            left_out[f"{top}/"] += 1
        elif len(folders) == 1 and _ending(name) in _ENDINGS:
            class_name = unicodedata.normalize("NFC", folders[0].strip())
            found[top][class_name].append(file)
        else:
            left_out[_ending(name) or "without an extension"] += 1
    for name, listing in found.items():
        unknown = sorted(listing.keys() - found[names["train"]].keys())
        if unknown or not listing:
            added = f"{', '.join(unknown)}, which the training images lack"
            raise ValueError(
                f"{os.path.join(path, name)} must contain a folder of images "
                f"({', '.join(_ENDINGS)}) for each class. Received: "
                f"{added if unknown else 'no images'}."
            )
    return {split: found[name] for split, name in names.items()}, left_out


def _highest(files):
    """Returns the largest value of some files with 16 bits, or 0."""
    deep = [file for file in files if _ending(file) in _DEEP]
    highest = 0
    for file in deep[:: len(deep) // _LOOKED_AT + 1]:
        with contextlib.suppress(Exception):  # Pillow raises many types.
            encoded = tf.io.read_file(file).numpy()
            highest = max(highest, highest_of_16_bits(encoded))
    return highest


def find_images(folder: str) -> list[str]:
    """Lists the image files in a folder and its subfolders, except hidden."""
    found = [file for file in _files(folder) if _ending(file) in _ENDINGS]
    if not found:
        raise UserError(
            f"{folder} must be a folder with images ({', '.join(_ENDINGS)}), "
            "also in subfolders. Received: no images."
        )
    return found


def _files(folder):
    """Yields the sorted files in a folder and its subfolders.

    It ignores hidden files and run folders.
    """
    paths = matching(folder, "*")
    if not paths and not tf.io.gfile.isdir(folder):
        raise UserError(f"No such folder: {folder}.")
    if os.path.join(folder, _RUN_FILE) in paths:
        return
    for path in paths:
        name = os.path.basename(path)
        if name.startswith(".") or name == _NOT_SHOWN:
            continue
        if _ending(name) not in _ENDINGS and tf.io.gfile.isdir(path):
            yield from _files(path)
        else:
            yield path


def _ending(path):
    return os.path.splitext(path.rstrip())[1].lower()
