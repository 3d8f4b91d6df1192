"""Image sets by name, as recipes and the command line give them."""

import dataclasses
import os
import re
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.arguments import fraction
from lambdanet_tf.arguments import users_input
from lambdanet_tf.data.arrays import load_digits
from lambdanet_tf.data.arrays import read_arrays
from lambdanet_tf.data.folders import read_folder
from lambdanet_tf.data.records import read_records
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.data.tfds import read_tfds

SOURCES = ("digits", "tfds:NAME", "folder:PATH", "records:PATH", "arrays:FILE")
_READERS: Mapping[str, Callable[..., ImageSet]] = {
    "tfds": read_tfds,
    "folder": read_folder,
    "records": read_records,
    "arrays": read_arrays,
}
# What may stand behind the place, as ",option=number".
_OPTIONS = {
    "folder": ("channels",),
    "records": ("classes", "first_label", "channels"),
}


@users_input()
def load_images(
    name: str,
    validation_split: float = 0.1,
    data_dir: str | None = None,
    shuffle_buffer: int = 16_384,
    download: bool = True,
) -> ImageSet:
    """Loads an image set by its name.

    Args:
        name: digits, tfds:NAME, folder:PATH, records:PATH or arrays:FILE.
        validation_split: fraction of the training images that becomes the
            validation set, which chooses the best epoch.
        data_dir: where TensorFlow Datasets keeps its sets; None for the
            default.
        shuffle_buffer: shuffle buffer, in images, where they are read one
            after the other (`tfds:` and `records:`).
        download: whether to download and prepare a set of TensorFlow Datasets
            that is not prepared.

    Raises:
        ValueError: if there is no such set, or it cannot be read.
        ImportError: if an optional package is missing.
    """
    fraction("validation_split", validation_split, below_one=True)
    if name == "digits":
        return load_digits(validation_split)
    kind, _, place = name.partition(":")
    if kind not in _READERS or not place:
        raise ValueError(
            f"`data` must be one of {', '.join(SOURCES)}. Received: {name!r}."
            f"{did_you_mean(kind, ['digits', *_READERS])}"
        )
    place, options = split_options(kind, place)
    if kind in ("tfds", "records"):
        options["shuffle_buffer"] = shuffle_buffer
    if kind == "tfds":
        options |= {"data_dir": data_dir, "download": download}
    images = _READERS[kind](place, validation_split, **options)
    return dataclasses.replace(images, name=name)


def is_image_set(name: str) -> bool:
    """Returns whether a text begins as one of `SOURCES` does."""
    return name.partition(":")[0] in ("digits", *_READERS)


def split_options(kind: str, place: str) -> tuple[str, dict[str, Any]]:
    """Splits "PATH,classes=10" into "PATH" and {"classes": 10}.

    A "~" at the beginning becomes the folder of the user.
    """
    place, *pairs = re.split(r",(?=\w+=)", place)
    options = dict(pair.split("=", maxsplit=1) for pair in pairs)
    allowed = _OPTIONS.get(kind, ())
    if unknown := [name for name in options if name not in allowed]:
        raise ValueError(
            f"`data` must have options that {kind}: takes "
            f"({', '.join(allowed) or 'none'}). Received: {unknown[0]}."
            f"{did_you_mean(unknown[0], allowed)}"
        )
    numbers = {name: int(value) for name, value in options.items()}
    return os.path.expanduser(place), numbers
