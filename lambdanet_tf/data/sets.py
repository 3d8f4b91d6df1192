"""Sets of labelled images in three splits: training, validation and test."""

import dataclasses
import hashlib
import os
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf import files
from lambdanet_tf.arguments import one_of
from lambdanet_tf.data.sources import IndexedSource
from lambdanet_tf.data.sources import Source

SPLIT_SEED = 2102
TEST_SPLIT = 0.2
CLASS_FILE = "classes.txt"
# Names of folders and files for each split.
SPLITS = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """A set of labelled images in three splits.

    Attributes:
        name: name of the set, as in `load_images`.
        classes: the name of each label.
        channels: channels of an image, 1 or 3.
        train: training images.
        validation: validation images, which select the best epoch, or None.
        test: test images, for the final accuracy.
        notes: remarks for the description.
        bits: bits used in files with 16 bits, see `EncodedImage`.

    Raises:
        ValueError: if there are no training or test images, if there are not
            at least two classes with different names, or if a label of an
            `IndexedSource` is not one of them.
    """

    name: str
    classes: tuple[str, ...]
    channels: int
    train: Source
    validation: Source | None
    test: Source
    notes: tuple[str, ...] = ()
    bits: int = 16

    def __post_init__(self):
        object.__setattr__(self, "classes", tuple(self.classes))
        one_of("channels", self.channels, (1, 3))
        if not (self.sizes.get("train") and self.sizes.get("test")):
            raise ValueError(
                "`data` must contain training and test images. Received: "
                f"{self.description}"
            )
        last = len(self.classes) - 1
        if last < 1 or len({*self.classes, ""}) < last + 2:
            raise ValueError(
                f"{self.name} must have two or more classes with different "
                f"names. Received: {self.classes[:10]}."
            )
        for split, source in self.splits.items():
            if not isinstance(source, IndexedSource):
                continue
            labels = source.columns["label"]
            low, high = labels.min(), labels.max()
            if low < 0 or high > last:
                raise ValueError(
                    f"The {split} labels must be numbers of `classes`, 0 to "
                    f"{last}. Received: {low} to {high}."
                )

    @property
    def splits(self) -> dict[str, Source]:
        """The splits that have images, by name."""
        return {n: getattr(self, n) for n in SPLITS if getattr(self, n)}

    @property
    def sizes(self) -> dict[str, int]:
        """The number of images of each split, by name."""
        return {name: x.num_images for name, x in self.splits.items()}

    @property
    def description(self) -> str:
        """The name, the size of each split, and the notes."""
        train, validation, test = (self.sizes.get(name, 0) for name in SPLITS)
        sizes = (
            f"{self.name}: {train:,} training, {validation:,} validation and "
            f"{test:,} test images, {len(self.classes):,} classes"
        )
        return "; ".join([sizes, *self.notes]) + "."


def check_images(images: ImageSet) -> Iterator[str]:
    """Reads all images; yields one line per bad image: name and error.

    It is corrupt, or also belongs to an earlier split.
    """
    seen: dict[bytes, tuple[str, str]] = {}
    for split, source in images.splits.items():
        yield from source.check()
        files = source.examples(
            source.scan(), lambda image, _, place: (image.encoded(), place)
        )
        for file, place in files.as_numpy_iterator():
            name, digest = source.name(place), hashlib.sha256(file).digest()
            first, at = seen.setdefault(digest, (name, split))
            if split != at:
                yield f"{name}: the {split} image is also {first} in {at}"


def require_readable(images: ImageSet) -> None:
    """Raises a ValueError if all images of a split are corrupt."""
    for split, source in images.splits.items():
        if source.may_be_corrupt:
            sizes = source.examples(
                source.scan(), lambda image, label, _: tf.shape(image.decode())
            )
            if next(iter(sizes), None) is None:
                raise ValueError(
                    f"None of the {split} images can be read. The first is "
                    f"{next(iter(source.check()))}"
                )


def find_splits(names: Iterable[str]) -> dict[str, str]:
    """Returns the names of folders or files for each split.

    If there are no test images, the validation images are used, because many
    sets call them so.
    """
    found = {
        split: name
        for split, meanings in SPLITS.items()
        for name in sorted(names, reverse=True)
        if name.lower() in meanings
    }
    if "validation" in found and "test" not in found:
        found["test"] = found.pop("validation")
    return found


def divide(
    given: Mapping[str, IndexedSource], validation_split: float
) -> dict[str, Any]:
    """Returns all splits; takes missing ones from "train"."""
    rows = split_by_class(
        given["train"].columns["label"],
        0.0 if "validation" in given else validation_split,
        0.0 if "test" in given else TEST_SPLIT,
    )
    taken = map(given["train"].take, rows)
    splits = dict(zip(SPLITS, taken, strict=True))
    return {**splits, **given, "train": splits["train"]}


def split_by_class(
    labels: np.ndarray, validation_split: float, test_split: float = TEST_SPLIT
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Splits images into three sorted arrays of indices, by their labels.

    Each class contributes the same fraction: `test_split`, then
    `validation_split` of the rest. The splits depend only on `SPLIT_SEED`, not
    on the seed of a run.
    """
    generator = np.random.default_rng(SPLIT_SEED)
    rest, test = _hold_out(labels, test_split, generator)
    train, validation = _hold_out(labels[rest], validation_split, generator)
    return rest[train], rest[validation], test


def read_class_names(folder: str) -> tuple[str, ...] | None:
    """Returns the names in a folder's classes.txt, one per line, or None."""
    path = os.path.join(folder, CLASS_FILE)
    if not tf.io.gfile.exists(path):
        return None
    lines = files.read_text(path).rstrip().split("\n")
    return tuple(line.strip() for line in lines)


def _hold_out(labels, fraction, generator):
    """Moves a fraction of each class into a second split."""
    classes, sizes = np.unique(labels, return_counts=True)
    held = np.round(fraction * sizes).astype(int)
    if fraction and not held.any():  # Small classes: some contribute one.
        large = np.flatnonzero(sizes > 1)
        count = min(max(round(fraction * len(labels)), 1), len(large))
        chosen = np.linspace(0, len(large), count, endpoint=False)
        held[large[chosen.astype(int)]] = 1
    second = [
        generator.permutation(np.flatnonzero(labels == label))[:number]
        for label, number in zip(classes, held, strict=True)
    ]
    second = np.sort(np.concatenate(second))
    return np.setdiff1d(np.arange(len(labels)), second), second
