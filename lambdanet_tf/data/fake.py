"""Random images: for benchmarks, and for dry runs without the data."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import positive_int
from lambdanet_tf.data.images import ArrayImage
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.data.sets import validation_count
from lambdanet_tf.data.sources import IndexedSource

# Sets of TensorFlow Datasets, from its catalog: size of an image (where they
# differ, a frequent one), classes, training and test images.
KNOWN_SIZES = {
    "cifar10": ("32x32x3", 10, 50_000, 10_000),
    "cifar100": ("32x32x3", 100, 50_000, 10_000),
    "fashion_mnist": ("28x28x1", 10, 60_000, 10_000),
    "imagenet2012": ("375x500x3", 1000, 1_281_167, 50_000),
    "kmnist": ("28x28x1", 10, 60_000, 10_000),
    "mnist": ("28x28x1", 10, 60_000, 10_000),
    "svhn_cropped": ("32x32x3", 10, 73_257, 26_032),
}


class FakeSource(IndexedSource):
    """Random images: each pixel uniform, the classes in turn.

    Args:
        shape: height, width and channels of an image.
        num_classes: number of classes.
        num_images: number of images.
        first: number of the first image. Sources of other numbers have other
            images.

    Raises:
        ValueError: if there is no image.
    """

    def __init__(
        self,
        shape: Sequence[int],
        num_classes: int,
        num_images: int,
        first: int = 0,
    ):
        labels = np.arange(first, first + num_images) % num_classes
        super().__init__({"label": labels.astype(np.int32)})
        self._shape, self._first = shape, first

    def decode(
        self, item: dict[str, tf.Tensor]
    ) -> tuple[ArrayImage, tf.Tensor]:
        seed = tf.stack([item["index"] + self._first, 0])
        pixels = tf.random.stateless_uniform(
            self._shape, seed, maxval=256, dtype=tf.int32
        )
        return ArrayImage(tf.cast(pixels, tf.uint8)), item["label"]


def fake_set(
    size: str,
    validation_split: float = 0.1,
    classes: int = 10,
    images: int = 1000,
    test_images: int | None = None,
    origin: str = "random images",
) -> ImageSet:
    """Builds an `ImageSet` of random images.

    Args:
        size: height, width and channels: `"224x224x3"`.
        validation_split: share of the training images.
        classes: number of classes.
        images: number of training images, validation images among them.
        test_images: number of test images; None for a tenth of `images`.
        origin: what they are, for the description.

    Returns:
        The `ImageSet`.

    Raises:
        ValueError: if the size cannot be read.

    Examples:
        >>> images = fake_set("8x8x1", images=100)
        >>> len(images.classes), images.channels
        (10, 1)
    """
    numbers = size.split("x")
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        raise ValueError(
            "`data` must give the size of fake images as "
            f"fake:HEIGHTxWIDTHxCHANNELS. Received: fake:{size}."
        )
    shape = [positive_int("size", int(number)) for number in numbers]
    classes = positive_int("classes", classes)
    images = positive_int("images", images)
    if test_images is None:
        test_images = -(-images // 10)
    held = validation_count(validation_split, images)
    counts = images - held, held, positive_int("test_images", test_images)
    firsts = 0, images - held, images
    sources = [
        FakeSource(shape, classes, count, first) if count else None
        for count, first in zip(counts, firsts, strict=True)
    ]
    names = [str(i) for i in range(classes)]
    note = f"{shape[0]}x{shape[1]} pixels"
    return ImageSet.build(
        f"fake:{size}", names, shape[2], sources, origin, [note]
    )
