"""Tensors on grids: shapes, and their checks."""

import tensorflow as tf

from lambdanet_tf import ops


def grid_of(x):
    """Spatial sizes of `(batch, *spatial, channels)`: int, or scalar tensor."""
    return tuple(ops.size(x, axis) for axis in range(1, len(x.shape) - 1))


def flatten(x):
    """Returns `(batch, positions, channels)` of a map, and its grid."""
    sizes = x.shape[1:-1]
    positions = -1 if None in sizes else sizes.num_elements()
    flat = tf.reshape(x, [tf.shape(x)[0], positions, x.shape[-1]])
    return flat, grid_of(x)


def unflatten(x, grid):
    """`(batch, n, heads, value_dim)` -> `(batch, *grid, filters)`."""
    heads, value_dim = x.shape[2:]
    return tf.reshape(x, [-1, *grid, heads * value_dim])


def split(x, *depths):
    """`(batch, n, channels)` -> `(batch, n, *depths)`."""
    return tf.reshape(x, [-1, ops.size(x, 1), *depths])


def as_built(x, shape, layer, name="inputs"):
    """Returns a floating tensor with the sizes that a layer was built for.

    Generators of Python and `tf.py_function` yield tensors without sizes, or
    even without a rank. A size of the shape that may change is None; that of
    the batch always may. Keras casts no integers.
    """
    if not x.dtype.is_floating:
        x = tf.cast(x, layer.compute_dtype)
    if x.shape.rank is None:
        return tf.ensure_shape(x, [None, *shape[1:]])
    channels = {x.shape[-1], shape[-1]} - {None}
    if len(x.shape) != len(shape) or len(channels) > 1 or 0 in x.shape[1:]:
        raise ValueError(
            f"Layer {layer.name!r} was built for {name} of shape {shape}. "
            f"`{name}` must be like that, with at least one position. "
            f"Received: {tuple(x.shape)}. Make another layer for them."
        )
    known = [b if a is None else a for a, b in zip(x.shape, shape, strict=True)]
    known[0] = x.shape[0]
    return x if x.shape == known else tf.ensure_shape(x, known)


def check_grid(name, shape):
    """Raises a ValueError unless a shape is `(batch, *spatial, channels)`."""
    if not 3 <= len(shape) <= 5 or 0 in shape[1:]:
        raise ValueError(
            f"`{name}` must have the shape (batch, *spatial, channels) with "
            "one to three spatial axes, each of at least one position. "
            f"Received: {tuple(shape)}."
        )
