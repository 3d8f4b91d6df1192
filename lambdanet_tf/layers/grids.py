"""Tensors on grids: shapes, and their checks."""

import numbers

import tensorflow as tf

from lambdanet_tf import ops

_CHANNELS_LAST = "channels_last"


def grid_of(x):
    """Spatial sizes of `(batch, *spatial, channels)`: int, or scalar tensor."""
    return tuple(ops.size(x, axis) for axis in range(1, len(x.shape) - 1))


def flatten(x):
    """`(batch, *spatial, channels)` -> `(batch, positions, channels)`."""
    sizes = x.shape[1:-1]
    positions = -1 if None in sizes else sizes.num_elements()
    return tf.reshape(x, [tf.shape(x)[0], positions, x.shape[-1]])


def unflatten(x, grid):
    """`(batch, n, heads, value_dim)` -> `(batch, *grid, filters)`."""
    heads, value_dim = x.shape[2:]
    return tf.reshape(x, [-1, *grid, heads * value_dim])


def known_shape(shape, other):
    """A static shape, with the sizes of another where its own are unknown.

    Generators of Python and `tf.py_function` yield tensors without sizes, or
    even without a rank, to layers that were built with them.
    """
    shape = tf.TensorShape(shape)
    if shape.rank is None:
        return tf.TensorShape(other)
    if shape.rank != len(other):
        return shape
    pairs = zip(shape, other, strict=True)
    return tf.TensorShape([b if a is None else a for a, b in pairs])


def with_shape(x, other):
    """A tensor whose static shape is `known_shape`, checked at run time."""
    if x.shape.is_fully_defined():
        return x
    shape = known_shape(x.shape, other)
    return x if shape == x.shape else _with_mask(tf.ensure_shape(x, shape), x)


def as_floating(x, dtype):
    """A tensor, cast unless it is floating: Keras casts no integers."""
    return x if x.dtype.is_floating else _with_mask(tf.cast(x, dtype), x)


def _with_mask(x, other):
    """A tensor with the mask that Keras keeps at another."""
    if hasattr(other, "_keras_mask"):
        x._keras_mask = other._keras_mask
    return x


def check_grid(name, shape):
    """Raises a ValueError unless a shape is `(batch, *spatial, channels)`."""
    if not all(
        size is None or isinstance(size, numbers.Integral) for size in shape
    ):
        raise ValueError(
            f"`{name}` must be one tensor, and its shape one of integers. "
            f"Received: the shape {shape}."
        )
    if not 3 <= len(shape) <= 5 or 0 in shape[1:]:
        raise ValueError(
            f"`{name}` must have the shape (batch, *spatial, channels) with "
            "one to three spatial axes, each of at least one position. "
            f"Received: {tuple(shape)}."
        )


def check_channels_last(shape):
    """Raises a ValueError where Keras' convolutions give channels first."""
    if (
        len(shape) > 3
        and tf.keras.backend.image_data_format() != _CHANNELS_LAST
    ):
        raise ValueError(
            "Maps must have their channels last. Received: inputs of shape "
            f"{tuple(shape)}, while tf.keras.backend.image_data_format() is "
            "'channels_first'. Begin with tf.keras.backend."
            f"set_image_data_format({_CHANNELS_LAST!r}), or change "
            "~/.keras/keras.json; layers that differ have `data_format`."
        )


def check_axes(layer, grid, axes):
    """Raises a ValueError unless a grid has the axes of a built layer."""
    if len(grid) != axes:
        raise ValueError(
            f"Layer {layer!r} was built for inputs with {axes} spatial "
            f"{'axis' if axes == 1 else 'axes'}. Received: inputs with "
            f"{len(grid)}. Make another layer for them."
        )


def check_as_built(layer, shape, built):
    """Raises a ValueError unless a shape has the axes and channels of another.

    Args:
        layer: name of the layer.
        shape: `(batch, *spatial, channels)`, None where a size is unknown.
        built: likewise, of the inputs that it was built for.
    """
    check_axes(layer, shape[1:-1], len(built) - 2)
    if None not in (shape[-1], built[-1]) and shape[-1] != built[-1]:
        raise ValueError(
            f"Layer {layer!r} was built for inputs with {built[-1]} channels. "
            f"Received: inputs with {shape[-1]}. Make another layer for them."
        )


def split(x, *depths):
    """`(batch, n, channels)` -> `(batch, n, *depths)`."""
    return tf.reshape(x, [-1, ops.size(x, 1), *depths])
