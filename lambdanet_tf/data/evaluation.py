"""What evaluation makes of an image: training and serving ask this module."""

import dataclasses

import tensorflow as tf

from lambdanet_tf.data import augment


def image_dtype(precision):
    """What a batch of images is sent as: half the bytes where that is exact.

    The network would round the pixels to bfloat16 itself.

    Args:
        precision: str. The precision of a recipe.

    Returns:
        "bfloat16" or "float32".
    """
    return "bfloat16" if precision == "mixed_bfloat16" else "float32"


@dataclasses.dataclass(frozen=True)
class EvaluationCrop:
    """From an image to the pixels that a network is evaluated on.

    Call it with an `ArrayImage` or an `EncodedImage`; it returns a tensor
    `(height, width, channels)` in [0, 255].

    Attributes:
        size: (height, width) of the result.
        share: float. The side of the central square that is kept, as a share
            of the shorter side of the image; 1 keeps the whole image, whatever
            its proportions.
        dtype: str. What the pixels are rounded to.

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

    def __call__(self, image):
        if self.share == 1.0:
            pixels = augment.whole_image(image, self.size)
        else:
            pixels = augment.central_crop(image, self.size, self.share)
        return tf.cast(pixels, self.dtype)

    def __str__(self):
        height, width = self.size
        kept = "the whole image"
        if self.share != 1.0:
            kept = f"the central square of {self.share:g} of the shorter side"
        rounded = "" if self.dtype == "float32" else f", in {self.dtype}"
        return f"{kept}, resized bilinearly to {height}x{width}{rounded}"
