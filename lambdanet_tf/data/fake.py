"""Random images: for benchmarks, and for dry runs without the data."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import positive_int
from lambdanet_tf.data.images import ArrayImage
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.data.sets import validation_count
from lambdanet_tf.data.sources import IndexedSource


@dataclasses.dataclass(frozen=True)
class FakeSizes:
    """The sizes of an image set.

    Attributes:
        shape: height, width and channels of an image. Where they differ, a
            frequent one.
        classes: number of classes.
        images: number of training images, validation images among them.
        test_images: number of test images.
    """

    shape: tuple[int, int, int]
    classes: int
    images: int
    test_images: int


# Sets of TensorFlow Datasets, from its catalog.
KNOWN_SIZES = {
    "cifar10": FakeSizes((32, 32, 3), 10, 50_000, 10_000),
    "cifar100": FakeSizes((32, 32, 3), 100, 50_000, 10_000),
    "fashion_mnist": FakeSizes((28, 28, 1), 10, 60_000, 10_000),
    "imagenet2012": FakeSizes((375, 500, 3), 1000, 1_281_167, 50_000),
    "kmnist": FakeSizes((28, 28, 1), 10, 60_000, 10_000),
    "mnist": FakeSizes((28, 28, 1), 10, 60_000, 10_000),
    "svhn_cropped": FakeSizes((32, 32, 3), 10, 73_257, 26_032),
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
        shape: tuple[int, int, int],
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

    def _identity(self) -> Iterator[bytes]:
        yield f"{self._shape} {self._first} {self.num_images}".encode()


def fake_set(
    size: str,
    validation_split: float = 0.1,
    classes: int = 10,
    images: int = 1000,
    test_images: int | None = None,
) -> ImageSet:
    """Builds an `ImageSet` of random images.

    Args:
        size: height, width and channels: `"224x224x3"`.
        validation_split: share of the training images.
        classes: number of classes.
        images: number of training images, validation images among them.
        test_images: number of test images; None for a tenth of `images`.

    Raises:
        ValueError: if the size cannot be read.
    """
    numbers = size.split("x")
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        raise ValueError(
            "`data` must give the size of fake images as "
            f"fake:HEIGHTxWIDTHxCHANNELS. Received: fake:{size}."
        )
    height, width, channels = (positive_int("size", int(n)) for n in numbers)
    images = positive_int("images", images)
    if test_images is None:
        test_images = -(-images // 10)
    sizes = FakeSizes(
        (height, width, channels),
        positive_int("classes", classes),
        images,
        positive_int("test_images", test_images),
    )
    return _random_set(f"fake:{size}", sizes, validation_split, "random images")


def fake_known_set(
    name: str, validation_split: float = 0.02, reason: str = ""
) -> ImageSet | None:
    """Builds random images in the place of a well-known set.

    Args:
        name: as `load_images` takes it, such as `"tfds:imagenet2012"`.
        validation_split: share of the training images.
        reason: why the set itself is not there, for the description.

    Returns:
        An `ImageSet` with as many images, classes and channels, or None if the
        set is not in `KNOWN_SIZES`.
    """
    kind, _, place = name.partition(":")
    sizes = KNOWN_SIZES.get(place.partition(":")[0])
    if kind != "tfds" or sizes is None:
        return None
    origin = f"random images in the place of {name}"
    origin += f" ({reason})" if reason else ""
    return _random_set(name, sizes, validation_split, origin)


def _random_set(name, sizes, validation_split, origin):
    held = validation_count(validation_split, sizes.images)
    counts = (sizes.images - held, held, sizes.test_images)
    firsts = (0, counts[0], sizes.images)
    sources = [
        FakeSource(sizes.shape, sizes.classes, count, first) if count else None
        for count, first in zip(counts, firsts, strict=True)
    ]
    height, width, channels = sizes.shape
    classes = [str(i) for i in range(sizes.classes)]
    size = f"{height}x{width} pixels"
    return ImageSet.build(name, classes, channels, sources, origin, [size])
