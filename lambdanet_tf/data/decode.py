"""Encoded bytes to pixels."""

import tensorflow as tf

_PNG = b"\x89PNG"


def is_png(encoded):
    """Whether a scalar string tensor begins as a PNG file does."""
    return tf.equal(tf.strings.substr(encoded, 0, len(_PNG)), _PNG)


def header_size(encoded):
    """Height and width that the header of a JPEG or PNG file promises.

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


class ArrayImage:
    """An image that is an array.

    Args:
        array: tensor `(height, width, channels)`.
    """

    def __init__(self, array):
        self._array = array

    def size(self):
        """Height and width, as an int32 tensor."""
        return tf.shape(self._array)[:2]

    def whole(self):
        """All pixels."""
        return self._array

    def crop(self, top, left, height, width):
        """The pixels of a box."""
        return self._array[top : top + height, left : left + width]


class EncodedImage:
    """An image that is the bytes of a file: JPEG, PNG, BMP or GIF.

    Of a GIF the first frame counts. A transparent image loses its
    transparency, CMYK becomes RGB, and grey becomes as many channels as are
    asked for. Boxes of a JPEG file are decoded without the rest of it; the
    size of a JPEG or a PNG is read from its header.

    Args:
        encoded: scalar string tensor.
        channels: int. 1 or 3.
    """

    def __init__(self, encoded, channels):
        self._encoded, self._channels = encoded, channels
        self._is_jpeg = tf.io.is_jpeg(encoded)

    def size(self):
        """Height and width, as an int32 tensor."""
        return tf.cond(
            self._is_jpeg | is_png(self._encoded),
            lambda: tf.cast(header_size(self._encoded), tf.int32),
            lambda: tf.shape(self.whole())[:2],
        )

    def whole(self):
        """All pixels, uint8."""
        image = tf.io.decode_image(
            self._encoded, channels=self._channels, expand_animations=False
        )
        return tf.ensure_shape(image, (None, None, self._channels))

    def crop(self, top, left, height, width):
        """The pixels of a box, uint8."""
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


def _png_size(encoded):
    """Height and width from the header, big-endian, of a PNG file."""
    header = tf.io.decode_raw(tf.strings.substr(encoded, 16, 8), tf.uint8)
    digits = tf.reshape(tf.cast(header, tf.int64), [2, 4])
    places = tf.constant([2**24, 2**16, 2**8, 1], tf.int64)
    return tf.reduce_sum(digits * places, axis=1)[::-1]
