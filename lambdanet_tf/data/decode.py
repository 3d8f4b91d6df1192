"""Images before they are pixels: arrays, and encoded files."""

import io

import numpy as np
import tensorflow as tf

from lambdanet_tf.environment import require

_PNG = b"\x89PNG"


class ArrayImage:
    """An image that is an array.

    Args:
        array: tensor `(height, width, channels)`.
    """

    def __init__(self, array: tf.Tensor):
        self._array = array

    def size(self) -> tf.Tensor:
        """Returns height and width, as an int32 tensor."""
        return tf.shape(self._array)[:2]

    def whole(self) -> tf.Tensor:
        """Returns all pixels."""
        return self._array

    def encoded(self) -> tf.Tensor:
        """Returns the bytes of a PNG file, the values rounded to 8 bits."""
        rounded = tf.round(tf.cast(self._array, tf.float32))
        return tf.io.encode_png(tf.saturate_cast(rounded, tf.uint8))

    def crop(
        self,
        top: tf.Tensor,
        left: tf.Tensor,
        height: tf.Tensor,
        width: tf.Tensor,
    ) -> tf.Tensor:
        """Returns the pixels of a box."""
        return self._array[top : top + height, left : left + width]


class EncodedImage:
    """An image that is the bytes of a file: JPEG, PNG, BMP or GIF.

    Of a GIF the first frame counts. A transparent image loses its
    transparency, CMYK becomes RGB, and gray becomes as many channels as are
    asked for. Boxes of a JPEG file are decoded without the rest of it; the
    size of a JPEG or a PNG is read from its header.

    Args:
        encoded: scalar string tensor.
        channels: 1 or 3.
    """

    def __init__(self, encoded: tf.Tensor, channels: int):
        self._encoded, self._channels = encoded, channels
        self._is_jpeg = tf.io.is_jpeg(encoded)

    def size(self) -> tf.Tensor:
        """Returns height and width, as an int32 tensor."""
        return tf.cond(
            self._is_jpeg | is_png(self._encoded),
            lambda: tf.cast(header_size(self._encoded), tf.int32),
            lambda: tf.shape(self.whole())[:2],
        )

    def encoded(self) -> tf.Tensor:
        """Returns the bytes of the file."""
        return self._encoded

    def whole(self) -> tf.Tensor:
        """Returns all pixels, uint8."""
        image = tf.io.decode_image(
            self._encoded, channels=self._channels, expand_animations=False
        )
        return tf.ensure_shape(image, (None, None, self._channels))

    def crop(
        self,
        top: tf.Tensor,
        left: tf.Tensor,
        height: tf.Tensor,
        width: tf.Tensor,
    ) -> tf.Tensor:
        """Returns the pixels of a box, uint8."""
        box = tf.stack([top, left, height, width])

        def of_jpeg():
            return tf.io.decode_and_crop_jpeg(
                self._encoded, box, channels=self._channels
            )

        def of_other():
            image = self.whole()
            return image[top : top + height, left : left + width]

        image = tf.cond(self._is_jpeg, of_jpeg, of_other)
        return tf.ensure_shape(image, (None, None, self._channels))


Image = ArrayImage | EncodedImage


def is_png(encoded: tf.Tensor) -> tf.Tensor:
    """Returns whether a scalar string tensor begins as a PNG file does."""
    return tf.equal(tf.strings.substr(encoded, 0, len(_PNG)), _PNG)


def header_size(encoded: tf.Tensor) -> tf.Tensor:
    """Reads height and width from the header of a JPEG or PNG file.

    Args:
        encoded: scalar string tensor.

    Returns:
        An int64 tensor `(2,)`.

    Raises:
        tf.errors.InvalidArgumentError: when run, if it is neither.
    """

    def of_jpeg():
        shape = tf.image.extract_jpeg_shape(encoded, output_type=tf.int64)
        return shape[:2]

    return tf.cond(is_png(encoded), lambda: _png_size(encoded), of_jpeg)


def convert_to_png(encoded: tf.Tensor) -> tf.Tensor:
    """Converts what TensorFlow cannot decode and Pillow can: WebP and TIFF.

    The first frame or page counts. Of 16 bits a channel the higher eight are
    kept, as TensorFlow does with PNG.

    Args:
        encoded: scalar string tensor.

    Returns:
        A scalar string tensor: an uncompressed PNG file, gray or RGB.

    Raises:
        tf.errors.OpError: when run, if Pillow cannot read it, or a channel has
            32 bits.
    """
    png = tf.numpy_function(
        _convert_to_png, [encoded], tf.string, stateful=False
    )
    return tf.ensure_shape(png, [])


def _convert_to_png(encoded: bytes) -> bytes:
    pillow = require("PIL.Image", extra="data")
    with pillow.open(io.BytesIO(encoded)) as image:
        if image.mode in ("I", "F"):
            raise ValueError("Channels of 32 bits have no known range.")
        if image.mode.startswith("I;16"):
            image = pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        is_gray = image.mode in ("1", "L", "LA")
        stream = io.BytesIO()
        image.convert("L" if is_gray else "RGB").save(
            stream, "PNG", compress_level=0
        )
    return stream.getvalue()


def _png_size(encoded):
    """Height and width from the header, big-endian, of a PNG file."""
    header = tf.io.decode_raw(tf.strings.substr(encoded, 16, 8), tf.uint8)
    digits = tf.reshape(tf.cast(header, tf.int64), [2, 4])
    places = tf.constant([2**24, 2**16, 2**8, 1], tf.int64)
    return tf.reduce_sum(digits * places, axis=1)[::-1]
