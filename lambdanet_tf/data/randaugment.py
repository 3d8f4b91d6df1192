"""RandAugment, as the TensorFlow Model Garden implements it."""

from collections.abc import Callable

import tensorflow as tf

from lambdanet_tf.environment import require

# The reference shifts by up to 100 pixels; Model Garden's own recipes use 10.
TRANSLATE_CONST = 100.0


def make_randaugment(
    layers: int, magnitude: float
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Builds a function that distorts an image at random.

    It draws from TensorFlow's global generator: after a stop and a resume the
    distortions go on at random, but are not repeated exactly. It differs from
    the reference in two more ways, which are left as they are: what a shift
    uncovers is mirrored instead of gray, and beyond magnitude 10 the threshold
    of `Solarize` starts again at 0.

    Args:
        layers: number of distortions, one after the other.
        magnitude: their strength, 0 to 10 in the reference; the paper's
            15 goes beyond.

    Returns:
        A callable from pixels `(height, width, 3)` in [0, 255] to uint8 pixels
        of the same shape.

    Raises:
        ImportError: if tf-models-official is not installed.
    """
    augment = require("official.vision.ops.augment", extra="garden")
    distortion = augment.RandAugment(
        num_layers=layers,
        magnitude=magnitude,
        translate_const=TRANSLATE_CONST,
    )

    def distort(pixels):
        shape = pixels.shape
        pixels = tf.clip_by_value(tf.cast(pixels, tf.float32), 0.0, 255.0)
        pixels = distortion.distort(tf.cast(tf.round(pixels), tf.uint8))
        return tf.ensure_shape(pixels, shape)

    return distort
