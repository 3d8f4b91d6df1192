"""Evaluation preprocessing, shared by training and serving."""

import dataclasses

import tensorflow as tf

from lambdanet_tf.data import augment
from lambdanet_tf.data.decode import Image


def image_dtype(precision: str) -> str:
    """Returns the type in which batches of images are sent to a network.

    Under mixed_bfloat16 that is bfloat16, half the bytes: the network would
    round the pixels to it itself.

    Args:
        precision: of a recipe.

    Returns:
        "bfloat16" or "float32".
    """
    return "bfloat16" if precision == "mixed_bfloat16" else "float32"


@dataclasses.dataclass(frozen=True)
class EvaluationCrop:
    """Crops and resizes an image to the pixels that a network is evaluated on.

    Call it with an `ArrayImage` or an `EncodedImage`; it returns a tensor
    `(height, width, channels)` in [0, 255].

    Attributes:
        size: (height, width) of the result.
        share: the side of the central square that is kept, as a share of the
            shorter side of the image; 1 keeps the whole image, whatever its
            proportions.
        dtype: what the pixels are rounded to.

    Raises:
        ValueError: if a square is cut for a result that is none.
    """

    size: tuple[int, int]
    share: float = 1.0
    dtype: str = "float32"

    def __post_init__(self):
        height, width = self.size
        if self.share != 1.0 and height != width:
            raise ValueError(
                "`evaluation_crop` must be 1 for images that are not square. "
                f"Received: {self.share} for {height}x{width}."
            )

    def __call__(self, image: Image) -> tf.Tensor:
        if self.share == 1.0:
            pixels = augment.whole_image(image, self.size)
        else:
            pixels = augment.central_crop(image, self.size, self.share)
        return tf.cast(pixels, self.dtype)

    def __str__(self) -> str:
        height, width = self.size
        kept = "the whole image"
        if self.share != 1.0:
            kept = f"the central square of {self.share:g} of the shorter side"
        rounded = "" if self.dtype == "float32" else f", in {self.dtype}"
        return f"{kept}, resized bilinearly to {height}x{width}{rounded}"
