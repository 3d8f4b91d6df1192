"""What a set of labelled images is, whatever it is stored in."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Share:
    """The part of a set that one of several input pipelines reads.

    Attributes:
        index: int. Which part, from 0.
        count: int. How many parts there are.
    """

    index: int = 0
    count: int = 1


@dataclasses.dataclass(frozen=True)
class Split:
    """Labelled images, to be read as often as wanted.

    Attributes:
        num_images: int. How many images there are.
        endless: callable `(seed, start, share) -> tf.data.Dataset`. The images
            in a random order, one complete pass after the other, each pass in
            an order of its own. The order depends on the seed alone; `start`
            is the number of images (of all shares together) to leave out at
            the beginning, so a run continues where it stopped.
        once: callable `(share) -> tf.data.Dataset`. Each image once, in a
            fixed order.
        read: callable `element -> (image, label)`. The image is an
            `ArrayImage` or an `EncodedImage`, the label an int32 tensor.
        can_fail: bool. Whether reading an image can fail; what fails is left
            out and noted, see `BadImages`.

    The elements are dictionaries that `read` understands. All have a
    "position" (int64, the number of the element in the whole stream, from which
    every random choice about it is derived) and a "name" (where the image is,
    for messages).
    """

    num_images: int
    endless: Callable[[int, int, Share], tf.data.Dataset]
    once: Callable[[Share], tf.data.Dataset]
    read: Callable
    can_fail: bool


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """A set of labelled images in three parts.

    Attributes:
        name: str.
        classes: tuple of str. The name of each label.
        channels: int. Channels of an image.
        train: `Split`. The images to learn from.
        validation: `Split` or None. The images that choose the best epoch.
        test: `Split`. The images that give the final accuracy.
        description: str. One sentence for the report.
    """

    name: str
    classes: tuple
    channels: int
    train: Split
    validation: Split | None
    test: Split
    description: str
