"""Image sets by name, for recipes and the command line."""

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

# Add a new kind here, below, and to the help of `Recipe.data`.
SOURCES = ("digits", "tfds:NAME", "folder:PATH", "records:PATH", "arrays:FILE")
# The reader of each kind, and its options, written as ",option=number".
_KINDS: Mapping[str, tuple[Callable[..., ImageSet], tuple[str, ...]]] = {
    "tfds": (read_tfds, ()),
    "folder": (read_folder, ("channels", "bits")),
    "records": (read_records, ("classes", "first_label", "channels")),
    "arrays": (read_arrays, ()),
}


@users_input()
def load_images(
    name: str,
    validation_split: float = 0.1,
    shuffle_buffer: int = 16_384,
) -> ImageSet:
    """Loads an image set by its name.

    Args:
        name: digits, tfds:NAME, folder:PATH, records:PATH or arrays:FILE.
        validation_split: fraction of the training images held out for
            validation, which selects the best epoch.
        shuffle_buffer: number of images in the shuffle buffer of `tfds:` and
            `records:`, which are read sequentially.

    Raises:
        ValueError: if there is no such set, or if it cannot be read.
        ImportError: if an optional package is missing.
    """
    fraction("validation_split", validation_split, below_one=True)
    if name == "digits":
        return load_digits(validation_split)
    kind, _, place = name.partition(":")
    if kind not in _KINDS or not place:
        raise ValueError(
            f"`data` must be one of {', '.join(SOURCES)}. Received: {name!r}."
            f"{did_you_mean(kind, ['digits', *_KINDS])}"
        )
    read, allowed = _KINDS[kind]
    place, *pairs = re.split(r",(?=\w+=)", place)
    options: dict[str, Any] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key not in allowed:
            raise ValueError(f"Unknown {kind} option {key!r}: use {allowed}.")
        options[key] = int(value)
    if kind in ("tfds", "records"):
        options["shuffle_buffer"] = shuffle_buffer
    # A shell does not expand the "~" of `folder:~/images`.
    images = read(os.path.expanduser(place), validation_split, **options)
    return dataclasses.replace(images, name=name)


def is_image_set(name: str) -> bool:
    """Returns whether a text begins like one of `SOURCES`."""
    return name.partition(":")[0] in ("digits", *_KINDS)
