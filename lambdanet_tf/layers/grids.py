"""Tensors on grids: shapes, and their checks."""

import tensorflow as tf

from lambdanet_tf import ops


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


def split(x, *depths):
    """`(batch, n, channels)` -> `(batch, n, *depths)`."""
    return tf.reshape(x, [-1, ops.size(x, 1), *depths])


def as_floating(x, dtype):
    """Casts a tensor unless it is floating: Keras casts no integers."""
    return x if x.dtype.is_floating else tf.cast(x, dtype)


def as_built(x, shape, layer):
    """Returns a tensor with the sizes that a layer was built for.

    Generators of Python and `tf.py_function` yield tensors without sizes, or
    even without a rank, to layers that were built with them.

    Args:
        x: `(batch, *spatial, channels)`.
        shape: of x when the layer was built; None where sizes may change.
        layer: the layer, whose compute dtype x gets unless it is floating.
    """
    x = as_floating(x, layer.compute_dtype)
    if x.shape.rank is None:
        return tf.ensure_shape(x, shape)
    if len(x.shape) != len(shape) or x.shape[-1] not in (None, shape[-1]):
        raise ValueError(
            f"Layer {layer.name!r} was built for inputs of shape {shape}. "
            f"Received: {tuple(x.shape)}. Make another layer for them."
        )
    known = [b if a is None else a for a, b in zip(x.shape, shape, strict=True)]
    return x if x.shape == known else tf.ensure_shape(x, known)


def check_grid(name, shape):
    """Raises a ValueError unless a shape is `(batch, *spatial, channels)`."""
    if not 3 <= len(shape) <= 5 or 0 in shape[1:]:
        raise ValueError(
            f"`{name}` must have the shape (batch, *spatial, channels) with "
            "one to three spatial axes, each of at least one position. "
            f"Received: {tuple(shape)}."
        )
