"""Image to image: how training images are varied.

Every function takes its randomness from a seed (two whole numbers, as
`tf.random.stateless_uniform`), so that an image's variation depends on the
recorded seed and the image's position in the stream alone, however many
threads the pipeline runs on.
"""

import numpy as np
import tensorflow as tf


def random_affine(image, seed, rotation=0.0, shift=0.0, zoom=0.0):
    """Rotates, zooms and shifts an image about its centre, at random.

    What comes in from outside the image is 0. The zoom is drawn for each axis.

    Args:
        image: float tensor `(height, width, channels)`.
        seed: int tensor `(2,)`.
        rotation: float. At most this many degrees to either side.
        shift: float. At most this many pixels along each axis.
        zoom: float. Sizes from `1 - zoom` to `1 + zoom` times the original.

    Returns:
        A float32 tensor of the image's shape.
    """
    draws = tf.random.stateless_uniform([5], seed, -1.0, 1.0)
    angle = draws[0] * (rotation * np.pi / 180)
    size = tf.shape(image)[:2]
    matrix = affine_matrix(
        size, angle, draws[1:3] * shift, 1.0 + draws[3:5] * zoom
    )
    image = tf.cast(image, tf.float32)
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=image[tf.newaxis],
        transforms=matrix[tf.newaxis],
        output_shape=size,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
        fill_value=0.0,
    )
    return tf.ensure_shape(moved[0], image.shape)


def affine_matrix(size, angle, shift, zoom):
    """The eight numbers that map an output pixel to its input pixel.

    Args:
        size: int tensor `(2,)`. Height and width.
        angle: scalar tensor. Radians; the content turns counter-clockwise.
        shift: tensor `(2,)`. The content moves this far, down and right.
        zoom: tensor `(2,)`. The content grows by these factors, y and x.

    Returns:
        A float32 tensor `(8,)`, as `ImageProjectiveTransformV3` reads it.
    """
    centre_y, centre_x = tf.unstack((tf.cast(size, tf.float32) - 1) / 2)
    cos, sin = tf.cos(angle), tf.sin(angle)
    xx, xy = cos / zoom[1], -sin / zoom[1]
    yx, yy = sin / zoom[0], cos / zoom[0]
    from_x, from_y = centre_x + shift[1], centre_y + shift[0]
    x0 = centre_x - xx * from_x - xy * from_y
    y0 = centre_y - yx * from_x - yy * from_y
    return tf.stack([xx, xy, x0, yx, yy, y0, 0.0, 0.0])
