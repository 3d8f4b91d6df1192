"""Augmentation of an image.

Seeds are int tensors `(2,)`, as in `tf.random.stateless_uniform`. The
augmentation depends only on the seed of the run and the image's position in the
stream, not on the number of threads. Pixels are tensors `(height, width,
channels)` in [0, 255].
"""

import numpy as np
import tensorflow as tf

from lambdanet_tf.data.images import random_crop as random_crop
from lambdanet_tf.environment import require

# The paper's reference shifts by up to 100 pixels; the Model Garden by 10.
TRANSLATE_CONST = 100.0


def pad_and_crop(
    pixels: tf.Tensor, seed: tf.Tensor, padding: int = 4
) -> tf.Tensor:
    """Shifts an image by up to `padding` pixels, and fills with black."""
    shape = tf.shape(pixels)
    around = [[padding, padding], [padding, padding], [0, 0]]
    offsets = tf.random.stateless_uniform(
        [2], seed, maxval=2 * padding + 1, dtype=tf.int32
    )
    begin = tf.concat([offsets, [0]], axis=0)
    return tf.slice(tf.pad(pixels, around), begin, shape)


def random_affine(
    pixels: tf.Tensor,
    seed: tf.Tensor,
    rotation: float = 0.0,
    shift: float = 0.0,
    zoom: float = 0.0,
) -> tf.Tensor:
    """Randomly rotates, zooms and shifts an image about its center.

    It rotates by at most `rotation` degrees, shifts by at most `shift` pixels,
    and zooms by `1 - zoom` to `1 + zoom`. It fills with black.
    """
    draws = tf.random.stateless_uniform([5], seed, -1.0, 1.0)
    angle = draws[0] * (rotation * np.pi / 180)
    size = tf.shape(pixels)[:2]
    matrix = affine_matrix(
        size, angle, draws[1:3] * shift, 1.0 + draws[3:5] * zoom
    )
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.cast(pixels, tf.float32)[tf.newaxis],
        transforms=matrix[tf.newaxis],
        output_shape=size,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
        fill_value=0.0,
    )
    return tf.ensure_shape(moved[0], pixels.shape)


def affine_matrix(
    size: tf.Tensor, angle: tf.Tensor, shift: tf.Tensor, zoom: tf.Tensor
) -> tf.Tensor:
    """Returns the transform from an output pixel to its input pixel.

    The content turns counterclockwise by `angle` radians, moves down and right
    by `shift`, and grows by the factors `zoom` along y and x.
    """
    center_y, center_x = tf.unstack((tf.cast(size, tf.float32) - 1) / 2)
    cos, sin = tf.cos(angle), tf.sin(angle)
    xx, xy = cos / zoom[1], -sin / zoom[1]
    yx, yy = sin / zoom[0], cos / zoom[0]
    from_x, from_y = center_x + shift[1], center_y + shift[0]
    x0 = center_x - xx * from_x - xy * from_y
    y0 = center_y - yx * from_x - yy * from_y
    return tf.stack([xx, xy, x0, yx, yy, y0, 0.0, 0.0])


def randaugment(pixels: tf.Tensor, layers: int, magnitude: float) -> tf.Tensor:
    """Randomly distorts color images, `layers` times; returns uint8.

    It draws from TensorFlow's global generator, so a resumed run does not
    repeat the same distortions. It differs from the reference, whose magnitudes
    are 0 to 10, in two more ways. It mirrors what a shift uncovers instead of
    filling it with gray, and beyond magnitude 10 the threshold of `Solarize`
    starts again at 0.
    """
    augment = require("official.vision.ops.augment", extra="garden")
    distortion = augment.RandAugment(
        num_layers=layers,
        magnitude=magnitude,
        translate_const=TRANSLATE_CONST,
    )

    rounded = tf.saturate_cast(tf.round(tf.cast(pixels, tf.float32)), tf.uint8)
    return tf.ensure_shape(distortion.distort(rounded), pixels.shape)
