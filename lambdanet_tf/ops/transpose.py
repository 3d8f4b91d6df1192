"""Transposition of many axes, as few as there need be."""

import math

import tensorflow as tf

from lambdanet_tf.ops.geometry import size

# What the runtime of TFLite transposes, however short the axes are.
_MAX_AXES = 6


def transpose(x, order, sizes=None):
    """Transposes, with the axes that stay neighbors merged into one.

    Args:
        x: tensor.
        order: list of int. Which axis of x each axis of the result is.
        sizes: list of the sizes of x, -1 for at most one of them; None for
            those of its own shape. To give where several are not static: ONNX
            converters write wrong files for a shape that is read off a
            reshaped tensor and used to reshape it again.

    Returns:
        As `tf.transpose(x, order)`.
    """
    order = list(order)
    if len(order) <= _MAX_AXES:
        return tf.transpose(x, order)
    sizes = list(sizes or (size(x, axis) for axis in range(len(order))))
    if order[0] == 0 and not isinstance(sizes[0], int):
        sizes[0] = -1
    long = [axis for axis in range(len(order)) if not _is_one(sizes[axis])]
    place = {axis: index for index, axis in enumerate(long)}
    runs = []  # of the axes of x that stay neighbors, in the new order
    for axis in filter(place.__contains__, order):
        if runs and place[axis] == place[runs[-1][-1]] + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    given = sorted(runs)
    merged = [_product([sizes[axis] for axis in run]) for run in given]
    x = tf.transpose(tf.reshape(x, merged), [given.index(run) for run in runs])
    return tf.reshape(x, [sizes[axis] for axis in order])


def _is_one(number):
    return isinstance(number, int) and number == 1


def _product(sizes):
    return -1 if any(_is_rest(number) for number in sizes) else math.prod(sizes)


def _is_rest(number):
    return isinstance(number, int) and number == -1
