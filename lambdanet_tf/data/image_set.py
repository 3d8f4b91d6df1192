"""Sets of labelled images in three parts: training, validation and test."""

import dataclasses
import os
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import fraction
from lambdanet_tf.data.source import Source

SPLIT_SEED = 2102
TEST_SHARE = 0.2
CLASS_FILES = ("classes.txt", "labels.txt")
# How folders and files of a part may be called.
PARTS = {
    "train": ("train", "training"),
    "validation": ("val", "validation"),
    "test": ("test",),
}

Content = TypeVar("Content")


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """A set of labelled images in three parts.

    Attributes:
        name: as `load_images` takes it.
        classes: the name of each label.
        channels: channels of an image.
        train: training images.
        validation: validation images, which choose the best epoch, or None.
        test: test images, which give the final accuracy.
        description: one line for people: where the images are from, how many
            each part has, and what was left out.

    Raises:
        ValueError: if there are no training or no test images.
    """

    name: str
    classes: tuple[str, ...]
    channels: int
    train: Source
    validation: Source | None
    test: Source
    description: str

    @classmethod
    def build(
        cls,
        name: str,
        classes: Sequence[str],
        channels: int,
        parts: Sequence[Source | None],
        origin: str,
        notes: Sequence[str] = (),
    ) -> "ImageSet":
        """Builds a set and its description.

        Args:
            name: see the attributes, as for the next two.
            classes: see there.
            channels: see there.
            parts: training, validation and test images.
            origin: where the images are from, for the description.
            notes: further remarks, for the description.
        """
        train, validation, test = parts
        counts = [f"{part.num_images if part else 0:,}" for part in parts]
        noun = "class" if len(classes) == 1 else "classes"
        sizes = (
            f"{origin}: {counts[0]} training, {counts[1]} validation and "
            f"{counts[2]} test images, {len(classes):,} {noun}"
        )
        description = "; ".join([sizes, *notes]) + "."
        return cls(
            name, tuple(classes), channels, train, validation, test, description
        )

    def __post_init__(self):
        for part in ("train", "test"):
            if getattr(self, part) is None:
                raise ValueError(
                    f"`data` must hold {part} images. Received: "
                    f"{self.description}"
                )


def name_test_part(found: dict[str, Content]) -> dict[str, Content]:
    """Returns the parts with validation as test, where there is no test.

    Many sets call their test images validation images.

    Args:
        found: what was found of each of `PARTS`.
    """
    if "test" in found or "validation" not in found:
        return found
    return {
        "test" if part == "validation" else part: content
        for part, content in found.items()
    }


def validation_count(validation_split: float, total: int) -> int:
    """Returns how many of `total` examples become validation examples.

    That is `validation_split` of them, rounded, but at least one unless it is
    0.

    Raises:
        ValueError: if no training example is left.
    """
    fraction("validation_split", validation_split, below_one=True)
    count = max(round(validation_split * total), 1) if validation_split else 0
    if count >= total:
        raise ValueError(
            "`validation_split` must leave training images. Received: "
            f"{validation_split} of {total}."
        )
    return count


def three_parts(
    labels: np.ndarray,
    validation_split: float,
    test_share: float = TEST_SHARE,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Divides examples into training, validation and test examples.

    Each class gives the same share to each part. The parts depend on
    `SPLIT_SEED` alone, not on the seed of a run.

    Args:
        labels: class indices.
        validation_split: share of what is not test that becomes validation.
        test_share: share of all that becomes test.

    Returns:
        Three sorted arrays of indices.
    """
    fraction("validation_split", validation_split, below_one=True)
    generator = np.random.default_rng(SPLIT_SEED)
    rest, test = _stratified(labels, test_share, generator)
    train, validation = _stratified(labels[rest], validation_split, generator)
    return rest[train], rest[validation], test


def read_class_names(folder: str) -> tuple[str, ...] | None:
    """Reads the names of the classes, one a line, from a folder.

    Args:
        folder: the file in it is one of `CLASS_FILES`.

    Returns:
        The names in the order of the labels, or None if there is no file.

    Raises:
        ValueError: if a line is empty or two are equal.
    """
    for file in CLASS_FILES:
        path = os.path.join(folder, file)
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path, "rb") as stream:
                text = stream.read().decode("utf-8-sig").rstrip()
            names = tuple(line.strip() for line in text.split("\n"))
            if "" in names or len(set(names)) < len(names):
                raise ValueError(
                    f"{path} must hold a different name for each class, one a "
                    f"line. Received: {', '.join(map(repr, names[:10]))}."
                )
            return names
    return None


def _stratified(labels, share, generator):
    """Moves the same share of each class, rounded, into a second part."""
    second = [
        generator.permutation(members)[: round(share * len(members))]
        for members in (
            np.flatnonzero(labels == label) for label in np.unique(labels)
        )
    ]
    second = np.sort(np.concatenate(second))
    first = np.setdiff1d(np.arange(len(labels)), second)
    return first, second
