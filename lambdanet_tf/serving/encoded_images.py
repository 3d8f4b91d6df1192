"""Encoded images to tensors, inside the graph, whatever a client sends.

Each element of a batch is decoded on its own. What cannot be decoded does not
crash anything: the whole request is refused, with the indices of the broken
elements. The size of an image is read from its header before memory is taken
for its pixels.
"""

import tensorflow as tf

# 32 million pixels are 96 MiB of decoded colour.
MAX_PIXELS = 2**25
# Images of one request that are decoded at the same time.
PARALLEL = 4

ENCODED_FEATURE = "image/encoded"
_PNG = b"\x89PNG"


def decode_image(encoded, channels, max_pixels=MAX_PIXELS):
    """Decodes a JPEG or a PNG.

    Args:
        encoded: scalar string tensor.
        channels: int. 1 for grey, 3 for colour; the image is converted.
        max_pixels: int. Height times width that is accepted.

    Returns:
        uint8 tensor `(height, width, channels)`.

    Raises:
        tf.errors.InvalidArgumentError: when run, if the image is broken or
            too large.
    """
    is_png = tf.equal(tf.strings.substr(encoded, 0, len(_PNG)), _PNG)
    height, width = tf.cond(
        is_png, lambda: _png_size(encoded), lambda: _jpeg_size(encoded)
    )
    fits = (height > 0) & (width > 0) & (height * width <= max_pixels)
    with tf.control_dependencies([tf.debugging.Assert(fits, [height, width])]):
        return tf.cond(
            is_png,
            lambda: tf.io.decode_png(encoded, channels),
            lambda: tf.io.decode_jpeg(encoded, channels),
        )


def resize_whole(image, height, width):
    """Resizes the whole image, bilinear, smooth when it shrinks."""
    return tf.image.resize(image, [height, width], antialias=True)


def decode_batch(encoded, shape, resize=resize_whole, max_pixels=MAX_PIXELS):
    """Decodes a batch of JPEGs and PNGs to one size.

    Args:
        encoded: string tensor `(batch,)`.
        shape: (height, width, channels) of the result.
        resize: function of a uint8 image `(h, w, channels)`, height and
            width that returns the image at that size.
        max_pixels: int. Height times width that is accepted.

    Returns:
        float32 tensor `(batch, height, width, channels)` in [0, 255].
    """

    def decode(image_bytes):
        return _prepared(image_bytes, shape, resize, max_pixels)

    return _each_or_named(encoded, decode, shape, max_pixels)


def decode_examples(
    serialized, shape, resize=resize_whole, max_pixels=MAX_PIXELS
):
    """Decodes the images of a batch of serialised `tf.train.Example`.

    Args:
        serialized: string tensor `(batch,)`; each example has the feature
            `image/encoded`.
        shape: see `decode_batch`, as the rest.
        resize: see there.
        max_pixels: see there.

    Returns:
        float32 tensor `(batch, height, width, channels)` in [0, 255].
    """
    features = {ENCODED_FEATURE: tf.io.FixedLenFeature([], tf.string)}

    def decode(example):
        image_bytes = tf.io.parse_single_example(example, features)
        return _prepared(
            image_bytes[ENCODED_FEATURE], shape, resize, max_pixels
        )

    return _each_or_named(serialized, decode, shape, max_pixels)


def check_images(images):
    """Returns images clipped to [0, 255]; refuses none, NaN and infinity.

    Args:
        images: float32 tensor `(batch, height, width, channels)`.
    """
    finite = tf.reduce_all(tf.math.is_finite(images), axis=[1, 2, 3])
    message = "these images hold values that are not finite"
    with tf.control_dependencies(_checks(finite, message)):
        return tf.clip_by_value(images, 0.0, 255.0)


def _prepared(encoded, shape, resize, max_pixels):
    """One encoded image as the model wants it."""
    height, width, channels = shape
    image = decode_image(encoded, channels, max_pixels)
    image = tf.cast(resize(image, height, width), tf.float32)
    return tf.ensure_shape(image, shape)


def _each_or_named(elements, decode, shape, max_pixels):
    """Maps `decode` over a batch; refuses it if any element fails."""

    def attempt(element):
        # A dataset is the one place in a graph where an error can be caught.
        decoded = tf.data.Dataset.from_tensors(element).map(
            lambda element: (decode(element), True)
        )
        failed = tf.data.Dataset.from_tensors((tf.zeros(shape), False))
        caught = decoded.ignore_errors(log_warning=False)
        return caught.concatenate(failed).take(1).get_single_element()

    images, fine = tf.map_fn(
        attempt,
        elements,
        fn_output_signature=(
            tf.TensorSpec(shape, tf.float32),
            tf.TensorSpec([], tf.bool),
        ),
        parallel_iterations=PARALLEL,
    )
    message = f"these images are no JPEG or PNG of at most {max_pixels} pixels"
    with tf.control_dependencies(_checks(fine, message)):
        return tf.identity(images)


def _checks(fine, message):
    """Assertions that there is a batch, and that all of it is fine."""
    broken = tf.where(~fine)[:, 0]
    return [
        tf.debugging.Assert(
            tf.size(fine) > 0, ["the batch must hold at least one image"]
        ),
        tf.debugging.Assert(
            tf.equal(tf.size(broken), 0),
            [f"{message}, by index:", broken],
            summarize=16,
        ),
    ]


def _png_size(encoded):
    """Height and width from the header, big-endian, of a PNG."""
    header = tf.io.decode_raw(tf.strings.substr(encoded, 16, 8), tf.uint8)
    digits = tf.reshape(tf.cast(header, tf.int64), [2, 4])
    places = tf.constant([2**24, 2**16, 2**8, 1], tf.int64)
    width, height = tf.unstack(tf.reduce_sum(digits * places, axis=1))
    return height, width


def _jpeg_size(encoded):
    """Height and width from the header of a JPEG."""
    shape = tf.image.extract_jpeg_shape(encoded, output_type=tf.int64)
    return shape[0], shape[1]
