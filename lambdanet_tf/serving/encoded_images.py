"""Encoded images to tensors, inside the graph, whatever a client sends.

What is made of an image is `data.EvaluationCrop`, the one that training
evaluates with: what is served is what was measured.

Each element of a batch is decoded on its own. What cannot be decoded does not
crash anything: the whole request is refused, with the indices of the broken
elements. The size of an image is read from its header before memory is taken
for its pixels.
"""

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.data import decode

# 32 million pixels are 96 MiB of decoded colour.
MAX_PIXELS = 2**25
# Images of one request that are decoded at the same time.
PARALLEL = 4

ENCODED_FEATURE = "image/encoded"


def checked_image(encoded, channels, max_pixels=MAX_PIXELS):
    """Takes a JPEG or a PNG for an image that can be decoded.

    Args:
        encoded: scalar string tensor.
        channels: int. 1 for grey, 3 for colour; the image is converted.
        max_pixels: int. Height times width that is accepted.

    Returns:
        An `EncodedImage`.

    Raises:
        tf.errors.InvalidArgumentError: when run, if the image is broken or
            too large.
    """
    size = decode.header_size(encoded)
    # Of sides below 2**32 the product may not fit an int64, the quotient does.
    height, width = tf.unstack(size)
    fits = (height > 0) & (width > 0)
    fits &= height <= max_pixels // tf.maximum(width, 1)
    with tf.control_dependencies([tf.debugging.Assert(fits, [size])]):
        return data.EncodedImage(tf.identity(encoded), channels)


def decode_batch(encoded, crop, channels, max_pixels=MAX_PIXELS):
    """Decodes a batch of JPEGs and PNGs to one size.

    Args:
        encoded: string tensor `(batch,)`.
        crop: `EvaluationCrop`.
        channels: int. 1 for grey, 3 for colour.
        max_pixels: int. Height times width that is accepted.

    Returns:
        float32 tensor `(batch, height, width, channels)` in [0, 255].
    """

    def prepare(image_bytes):
        return _prepared(image_bytes, crop, channels, max_pixels)

    return _each_or_named(encoded, prepare, (*crop.size, channels), max_pixels)


def decode_examples(serialized, crop, channels, max_pixels=MAX_PIXELS):
    """Decodes the images of a batch of serialised `tf.train.Example`.

    Args:
        serialized: string tensor `(batch,)`; each example has the feature
            `image/encoded`.
        crop: see `decode_batch`, as the rest.
        channels: see there.
        max_pixels: see there.

    Returns:
        float32 tensor `(batch, height, width, channels)` in [0, 255].
    """
    features = {ENCODED_FEATURE: tf.io.FixedLenFeature([], tf.string)}

    def prepare(example):
        image_bytes = tf.io.parse_single_example(example, features)
        return _prepared(
            image_bytes[ENCODED_FEATURE], crop, channels, max_pixels
        )

    return _each_or_named(
        serialized, prepare, (*crop.size, channels), max_pixels
    )


def check_images(images):
    """Returns images clipped to [0, 255]; refuses none, NaN and infinity.

    Args:
        images: float32 tensor `(batch, height, width, channels)`.
    """
    finite = tf.reduce_all(tf.math.is_finite(images), axis=[1, 2, 3])
    message = "these images hold values that are not finite"
    with tf.control_dependencies(_checks(finite, message)):
        return tf.clip_by_value(images, 0.0, 255.0)


def _prepared(encoded, crop, channels, max_pixels):
    """One encoded image as the model wants it."""
    pixels = crop(checked_image(encoded, channels, max_pixels))
    return tf.ensure_shape(tf.cast(pixels, tf.float32), (*crop.size, channels))


def _each_or_named(elements, prepare, shape, max_pixels):
    """Maps `prepare` over a batch; refuses it if any element fails."""

    def attempt(element):
        # A dataset is the one place in a graph where an error can be caught.
        decoded = tf.data.Dataset.from_tensors(element).map(
            lambda element: (prepare(element), True)
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
