"""Decodes images as Pillow does, crops and resizes them.

An image is an `ArrayImage` or an `EncodedImage`, which decodes only the pixels
that are needed. Pixels are tensors `(height, width, channels)` in [0, 255].
"""

import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.environment import require

MAX_PIXELS = 178_956_970  # as in Pillow
_PNG = b"\x89PNG"
_JPEG_END = b"\xff\xd9"
_DCT_METHOD = "INTEGER_ACCURATE"  # as in Pillow
_PILLOW_FORMATS = ("BMP", "GIF", "TIFF", "WEBP")
# Pillow's weights of red, green and blue in gray; their sum is 65,536.
_GRAY = (19595, 38470, 7471)


class ArrayImage:
    """An image as an array: a tensor `(height, width, channels)`."""

    def __init__(self, array: tf.Tensor):
        self._array = array

    def size(self) -> tf.Tensor:
        """Returns height and width, as an int32 tensor."""
        return tf.shape(self._array)[:2]

    def decode(self) -> tf.Tensor:
        """Returns all pixels."""
        return self._array

    def encoded(self) -> tf.Tensor:
        """Returns the bytes of a PNG file with 8 bits."""
        rounded = tf.round(tf.cast(self._array, tf.float32))
        return tf.io.encode_png(tf.saturate_cast(rounded, tf.uint8))

    def crop(self, box: tf.Tensor) -> tf.Tensor:
        """Returns the pixels of a box: int32 top, left, height and width."""
        return _cut(self._array, box)


class EncodedImage:
    """An image as the bytes of a JPEG or PNG file.

    Pixels are uint8, with the values of Pillow's `convert("RGB")`, except that
    16 bits keep their higher 8 (or those of `bits`), and CMYK without Adobe's
    marker is not inverted. Transparency is dropped, and gray is 0.299 R + 0.587
    G + 0.114 B. A box of a JPEG file is decoded without the rest; the size
    comes from the header. Reading fails if the file is neither JPEG nor PNG, is
    cut off, or has too many pixels.

    Args:
        encoded: scalar string tensor.
        channels: 1 or 3.
        max_pixels: largest height times width.
        bits: how many bits are used in files with 16 bits, for example 12 by
            many cameras; larger values become white.
    """

    def __init__(
        self,
        encoded: tf.Tensor,
        channels: int,
        max_pixels: int = MAX_PIXELS,
        bits: int = 16,
    ):
        self._channels, self._bits = channels, bits
        self._is_png = _is_png(encoded)
        size = tf.cond(
            self._is_png,
            lambda: _png_size(encoded),
            lambda: tf.image.extract_jpeg_shape(encoded, tf.int64)[:2],
        )
        # The product of two sides below 2**32 may overflow int64.
        height, width = tf.unstack(size)
        fits = (height > 0) & (width > 0)
        fits &= height <= max_pixels // tf.maximum(width, 1)
        with tf.control_dependencies([tf.debugging.Assert(fits, [size])]):
            self._encoded = tf.identity(encoded)
            self._size = tf.cast(size, tf.int32)

    def size(self) -> tf.Tensor:
        """Returns height and width, as an int32 tensor."""
        return self._size

    def encoded(self) -> tf.Tensor:
        """Returns the bytes of the file; a PNG of 8 bits if `bits` differs."""
        if self._bits == 16:
            return self._encoded
        return tf.io.encode_png(self.decode())

    def decode(self) -> tf.Tensor:
        """Returns all pixels."""
        return self._in_channels(self._decode())

    def crop(self, box: tf.Tensor) -> tf.Tensor:
        """Returns the pixels of a box: int32 top, left, height and width."""
        # If a JPEG does not end properly, we decode all of it. That fails if
        # it is cut off, but not if other bytes follow it.
        end = tf.strings.substr(self._encoded, -2, 2)
        pixels = tf.cond(
            ~self._is_png & tf.equal(end, _JPEG_END),
            lambda: tf.io.decode_and_crop_jpeg(
                self._encoded, box, channels=3, dct_method=_DCT_METHOD
            ),
            lambda: _cut(self._decode(), box),
        )
        return self._in_channels(pixels)

    def _decode(self):
        return tf.cond(
            self._is_png,
            self._decode_png,
            lambda: tf.io.decode_jpeg(
                self._encoded, channels=3, dct_method=_DCT_METHOD
            ),
        )

    def _decode_png(self):
        if self._bits == 16:
            return tf.io.decode_png(self._encoded, channels=3)
        # For a file with 8 bits, the higher 8 of 16 bits are its value.
        values = tf.io.decode_png(self._encoded, channels=3, dtype=tf.uint16)
        divisor = tf.where(_is_deep(self._encoded), 2 ** (self._bits - 8), 256)
        return tf.saturate_cast(tf.cast(values, tf.int32) // divisor, tf.uint8)

    def _in_channels(self, pixels):
        if self._channels == 1:
            weighted = tf.cast(pixels, tf.int32) * tf.constant(_GRAY)
            gray = tf.reduce_sum(weighted, axis=-1, keepdims=True)
            pixels = tf.cast((gray + 2**15) // 2**16, tf.uint8)
        return tf.ensure_shape(pixels, (None, None, self._channels))


Image = ArrayImage | EncodedImage


def open_image(
    encoded: tf.Tensor, channels: int = 3, bits: int = 16
) -> EncodedImage:
    """Opens the bytes of an image file; Pillow converts some formats."""

    def by_pillow():
        png = tf.numpy_function(as_png, [encoded], tf.string, stateful=False)
        return tf.ensure_shape(png, [])

    is_native = tf.io.is_jpeg(encoded) | _is_png(encoded)
    encoded = tf.cond(is_native, lambda: tf.identity(encoded), by_pillow)
    return EncodedImage(encoded, channels, bits=bits)


def highest_of_16_bits(encoded: bytes) -> int:
    """Returns the largest value of a PNG or TIFF file with 16 bits, or 0."""
    png = encoded if encoded.startswith(_PNG) else as_png(encoded)
    if not _is_deep(tf.constant(png)):
        return 0
    return int(tf.reduce_max(tf.io.decode_png(png, dtype=tf.uint16)))


def as_png(encoded: Any) -> bytes:
    """Converts the first frame of a BMP, GIF, TIFF or WebP file to PNG."""
    if isinstance(encoded, np.ndarray):  # Called in eager mode.
        encoded = encoded.item()
    pillow = require("PIL.Image", extra="data")
    try:
        image = pillow.open(io.BytesIO(encoded), formats=_PILLOW_FORMATS)
    except pillow.UnidentifiedImageError:
        raise ValueError(
            f"Not a JPEG, PNG, {', '.join(_PILLOW_FORMATS)} file."
        ) from None
    if image.mode in ("I", "F"):
        raise ValueError("Channels of 32 bits have no known range.")
    if not image.mode.startswith("I;16"):  # We read the higher 8 of 16 bits.
        image = image.convert("RGB")
    stream = io.BytesIO()
    image.save(stream, "PNG", compress_level=0)
    return stream.getvalue()


def _is_png(encoded):
    return tf.equal(tf.strings.substr(encoded, 0, len(_PNG)), _PNG)


def _is_deep(png):
    return tf.equal(tf.strings.substr(png, 24, 1), b"\x10")


def _png_size(encoded):
    """Returns height and width from the header of a PNG file."""
    header = tf.strings.substr(encoded, 16, 8)
    sides = tf.io.decode_raw(header, tf.int32, little_endian=False)
    return tf.cast(tf.ensure_shape(sides, [2])[::-1], tf.int64)


def _cut(pixels, box):
    top, left, height, width = tf.unstack(box)
    return pixels[top : top + height, left : left + width]


def resized(pixels: tf.Tensor, size: Sequence[int]) -> tf.Tensor:
    """Resizes pixels bilinearly to (height, width), if needed."""
    if pixels.shape[:2] == tuple(size):
        return pixels
    pixels = tf.image.resize(pixels, size)
    return tf.ensure_shape(pixels, (*size, pixels.shape[-1]))


def image_dtype(precision: str) -> str:
    """Returns the dtype of image batches for a network.

    With mixed_bfloat16, the network would round the pixels anyway.
    """
    return "bfloat16" if precision == "mixed_bfloat16" else "float32"


def random_crop(
    image: Image, seed: tf.Tensor, size: int, min_area: float = 0.08
) -> tf.Tensor:
    """Crops a random box and resizes it to a square.

    The box covers a fraction of the image from `min_area` to 1, and its width
    is 3/4 to 4/3 of its height (the Inception crop). If ten attempts find no
    such box, it is the whole image.
    """
    shape = tf.concat([image.size(), [3]], axis=0)
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed,
        min_object_covered=0.0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(min_area, 1.0),
        max_attempts=10,
    )
    box = tf.concat([begin[:2], extent[:2]], axis=0)
    return resized(image.crop(box), (size, size))


@dataclasses.dataclass(frozen=True)
class EvaluationCrop:
    """Crops and resizes an image for evaluation.

    Call it with an image; it returns `(height, width, channels)` in [0, 255].

    Attributes:
        size: (height, width) of the result.
        share: center-crop fraction: the central square's side as a fraction of
            the shorter side. 1 keeps the whole image.
        dtype: dtype of the result.
    """

    size: tuple[int, int]
    share: float = 1.0
    dtype: str = "float32"

    def __call__(self, image: Image) -> tf.Tensor:
        if self.share == 1.0:
            pixels = image.decode()
        else:
            shape = image.size()
            shorter = tf.cast(tf.reduce_min(shape), tf.float32)
            side = tf.cast(tf.round(self.share * shorter), tf.int32)
            sides = tf.fill([2], tf.maximum(side, 1))
            begin = (shape - sides + 1) // 2
            pixels = image.crop(tf.concat([begin, sides], axis=0))
        return tf.cast(resized(pixels, self.size), self.dtype)
