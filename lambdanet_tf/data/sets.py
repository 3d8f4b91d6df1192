"""Sets of labelled images in three parts: training, validation and test."""

import collections
import dataclasses
import os
import re
import unicodedata
from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import fraction
from lambdanet_tf.arguments import one_of
from lambdanet_tf.data.sources import IndexedSource
from lambdanet_tf.data.sources import Source

SPLIT_SEED = 2102
TEST_SHARE = 0.2
CLASS_FILES = ("classes.txt", "labels.txt")
_MAX_NAMED = 10
# How folders and files of a part may be called.
_PARTS = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """A set of labelled images in three parts.

    Attributes:
        name: as `load_images` takes it.
        classes: the name of each label.
        channels: channels of an image, 1 or 3.
        train: training images.
        validation: validation images, which choose the best epoch, or None.
        test: test images, which give the final accuracy.
        description: one line for people: where the images are from, how many
            each part has, and what was left out.

    Raises:
        ValueError: if the classes are not at least two of different names, or
            a label of an `IndexedSource` is none of them.

    Examples:
        >>> images = data.fake_set("8x8x1", images=100)
        >>> sorted(images.parts)
        ['test', 'train', 'validation']
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

        Raises:
            ValueError: if there are no training or no test images.
        """
        train, validation, test = parts
        counts = [f"{part.num_images if part else 0:,}" for part in parts]
        noun = "class" if len(classes) == 1 else "classes"
        sizes = (
            f"{origin}: {counts[0]} training, {counts[1]} validation and "
            f"{counts[2]} test images, {len(classes):,} {noun}"
        )
        description = "; ".join([sizes, *notes]) + "."
        if train is None or test is None:
            missing = "train" if train is None else "test"
            raise ValueError(
                f"`data` must hold {missing} images. Received: {description}"
            )
        return cls(
            name, tuple(classes), channels, train, validation, test, description
        )

    def __post_init__(self):
        one_of("channels", self.channels, (1, 3))
        _check_class_names(self.name, self.classes)
        if len(self.classes) < 2:
            raise ValueError(
                "`data` must hold images of two classes or more, those of a "
                "folder in a folder for each class. Received: "
                f"{self.classes}; {self.description}"
            )
        for part, source in self.parts.items():
            _check_labels(part, source, len(self.classes))

    @property
    def parts(self) -> dict[str, Source]:
        """The parts that there are, by name."""
        sources = (self.train, self.validation, self.test)
        parts = zip(_PARTS, sources, strict=True)
        return {part: source for part, source in parts if source is not None}


def check_images(images: ImageSet) -> Iterable[str]:
    """Reads each image of a set once, and yields the names of the bad ones.

    Args:
        images: the set.

    Yields:
        For each image that cannot be read or has no valid label, where it is
        and what is wrong with it, in a line.

    Examples:
        >>> list(check_images(data.fake_set("8x8x1", images=100)))
        []
    """
    for source in images.parts.values():
        yield from source.check()


def require_readable(images: ImageSet) -> None:
    """Raises a ValueError if a part holds no image that can be read.

    Args:
        images: the set.

    Raises:
        ValueError: if a part holds no image that can be read.

    Examples:
        >>> require_readable(data.fake_set("8x8x1", images=100))
    """
    for part, source in images.parts.items():
        if source.may_be_corrupt:
            sizes = source.examples(
                source.scan(), lambda image, label, _: image.size()
            )
            if next(iter(sizes), None) is None:
                raise ValueError(
                    f"None of the {part} images can be read. The first is "
                    f"{next(iter(source.check()))}"
                )


def find_parts(path: str, names: Iterable[str]) -> dict[str, str]:
    """Returns the parts, "train", "validation" and "test", that names are of.

    Validation images are the test images where there are no others: many sets
    call them so.

    Args:
        path: where the names are, for messages.
        names: of folders, or what names of files begin with.

    Returns:
        The names that mean a part, by part.

    Raises:
        ValueError: if two names mean the same part.
    """
    found = {}
    for name in sorted(names):
        for part, meanings in _PARTS.items():
            if name.lower() in meanings:
                if part in found:
                    raise ValueError(
                        f"{path} must have one name for its {part} images. "
                        f"Received: {found[part]} and {name}."
                    )
                found[part] = name
    if "validation" in found and "test" not in found:
        found["test"] = found.pop("validation")
    return found


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
        ValueError: if it is no text, a line is empty or two are equal.
    """
    for file in CLASS_FILES:
        path = os.path.join(folder, file)
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path, "rb") as stream:
                content = stream.read()
            try:
                text = content.decode("utf-8-sig").rstrip()
            except UnicodeDecodeError as error:
                raise ValueError(f"{path} must be UTF-8: {error}.") from error
            names = tuple(line.strip() for line in text.split("\n"))
            _check_class_names(path, names)
            return names
    return None


def note_empty_classes(
    classes: Sequence[str], labels: Iterable[int], kind: str = ""
) -> list[str]:
    """Returns a note on the classes of which there is no image, if any."""
    there = set(labels)
    empty = [name for i, name in enumerate(classes) if i not in there]
    if not empty:
        return []
    more = len(empty) - _MAX_NAMED
    names = ", ".join(empty[:_MAX_NAMED]) + f" and {more} more" * (more > 0)
    return [f"no {kind}image of {names}"]


def _check_class_names(where, names):
    """Raises a ValueError unless all names are different lines of text."""
    bad = [name for name in names if not name or re.search(r"[\r\n\0]", name)]
    numbers = collections.Counter(
        unicodedata.normalize("NFC", name.strip()) for name in names
    )
    bad += [name for name, number in numbers.items() if number > 1]
    if bad:
        raise ValueError(
            f"{where} must hold a different name for each class, one a line. "
            f"Received: {', '.join(map(repr, bad[:_MAX_NAMED]))} among "
            f"{', '.join(map(repr, names[:_MAX_NAMED]))}."
        )


def _check_labels(part, source, num_classes):
    """Raises a ValueError if labels are no class, where they are known.

    A row of zeros would take the place of each in the targets.
    """
    if not isinstance(source, IndexedSource):
        return
    labels = source.columns["label"]
    low, high = labels.min(), labels.max()
    if low < 0 or high >= num_classes:
        raise ValueError(
            f"`{part}` must have labels from 0 to {num_classes - 1}, the "
            f"numbers of `classes`. Received: labels from {low} to {high}."
        )


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
