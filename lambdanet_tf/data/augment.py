"""Image to image: how training images are varied, and evaluation crops.

Every function takes its randomness from a seed (two whole numbers, as
`tf.random.stateless_uniform`), so that an image's variation depends on the
recorded seed and the image's position in the stream alone, however many
threads the pipeline runs on.

What is called an image here is an `ArrayImage` or an `EncodedImage`, of which
only what is needed is decoded; pixels are tensors in [0, 255].
"""

import numpy as np
import tensorflow as tf

# The crop of the common ImageNet evaluation: of 256 pixels the middle 224.
EVALUATION_SHARE = 0.875


def whole_image(image, size):
    """All of an image, resized.

    Args:
        image: `ArrayImage` or `EncodedImage`.
        size: int, or (height, width) of the result.

    Returns:
        A tensor `(height, width, channels)`.
    """
    return resized(image.whole(), size)


def central_crop(image, size, share=EVALUATION_SHARE):
    """The central square of an image, resized.

    Args:
        image: `ArrayImage` or `EncodedImage`.
        size: int, or (height, width) of the result.
        share: float. The square's side, as a share of the shorter side of the
            image; at least one pixel.

    Returns:
        A tensor `(height, width, channels)`.
    """
    shape = image.size()
    shorter = tf.cast(tf.reduce_min(shape), tf.float32)
    side = tf.maximum(tf.cast(tf.round(share * shorter), tf.int32), 1)
    top, left = tf.unstack((shape - side + 1) // 2)
    return resized(image.crop(top, left, side, side), size)


def random_crop(image, seed, size, min_area=0.08):
    """A box of random size, place and proportions, resized to a square.

    The area of the box is from `min_area` to all of the image, its width from
    3/4 to 4/3 of its height (the Inception crop). If ten attempts find no such
    box in the image, it is the whole image.

    Args:
        image: `ArrayImage` or `EncodedImage`.
        seed: int tensor `(2,)`.
        size: int. Height and width of the result.
        min_area: float. Share of the image.

    Returns:
        A tensor `(size, size, channels)`.
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
    top, left, _ = tf.unstack(begin)
    height, width, _ = tf.unstack(extent)
    return resized(image.crop(top, left, height, width), size)


def pad_and_crop(pixels, seed, padding=4):
    """Shifts an image by up to `padding` pixels; black comes in.

    Args:
        pixels: tensor `(height, width, channels)`.
        seed: int tensor `(2,)`.
        padding: int.

    Returns:
        A tensor of the same shape.
    """
    shape = tf.shape(pixels)
    around = [[padding, padding], [padding, padding], [0, 0]]
    offsets = tf.random.stateless_uniform(
        [2], seed, maxval=2 * padding + 1, dtype=tf.int32
    )
    begin = tf.concat([offsets, [0]], axis=0)
    return tf.slice(tf.pad(pixels, around), begin, shape)


def random_flip(pixels, seed):
    """Mirrors half of the images, left to right.

    Args:
        pixels: tensor `(height, width, channels)`.
        seed: int tensor `(2,)`.

    Returns:
        A tensor of the same shape.
    """
    return tf.image.stateless_random_flip_left_right(pixels, seed)


def random_affine(pixels, seed, rotation=0.0, shift=0.0, zoom=0.0):
    """Rotates, zooms and shifts an image about its centre, at random.

    What comes in from outside the image is 0. The zoom is drawn for each axis.

    Args:
        pixels: tensor `(height, width, channels)`.
        seed: int tensor `(2,)`.
        rotation: float. At most this many degrees to either side.
        shift: float. At most this many pixels along each axis.
        zoom: float. Sizes from `1 - zoom` to `1 + zoom` times the original.

    Returns:
        A float32 tensor of the same shape.
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


def resized(pixels, size):
    """Pixels resized, bilinearly; as they are if they have the size."""
    height, width = (size, size) if isinstance(size, int) else size
    if pixels.shape[:2] == (height, width):
        return pixels
    pixels = tf.image.resize(pixels, [height, width])
    return tf.ensure_shape(pixels, (height, width, pixels.shape[-1]))
