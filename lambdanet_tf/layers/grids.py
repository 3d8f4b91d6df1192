"""Tensors on grids: shapes, and their checks."""

import tensorflow as tf

from lambdanet_tf import ops


def grid_of(x):
    """Returns the spatial sizes of a map: ints, or scalar tensors."""
    return tuple(ops.size(x, axis) for axis in range(1, len(x.shape) - 1))


def flatten(x):
    """Returns `(batch, positions, channels)` of a map, and its grid."""
    sizes = x.shape[1:-1]
    positions = -1 if None in sizes else sizes.num_elements()
    flat = tf.reshape(x, [tf.shape(x)[0], positions, x.shape[-1]])
    return flat, grid_of(x)


def unflatten(x, grid):
    """Reshapes `(batch, n, heads, value_dim)` to `(batch, *grid, filters)`."""
    heads, value_dim = x.shape[2:]
    return tf.reshape(x, [-1, *grid, heads * value_dim])


def split(x, *depths):
    """Reshapes `(batch, n, channels)` to `(batch, n, *depths)`."""
    return tf.reshape(x, [-1, ops.size(x, 1), *depths])


def as_built(x, shape, layer, name="inputs"):
    """Returns a floating tensor with the sizes that a layer was built for.

    Python generators and `tf.py_function` yield tensors without sizes, or even
    without a rank. In `shape`, None is a size that may change; the batch size
    always may. Keras does not cast integers.
    """
    if not x.dtype.is_floating:
        x = tf.cast(x, layer.compute_dtype)
    if x.shape.rank is None:
        return tf.ensure_shape(x, [None, *shape[1:]])
    channels = {x.shape[-1], shape[-1]} - {None}
    if len(x.shape) != len(shape) or len(channels) > 1 or 0 in x.shape[1:]:
        raise ValueError(
            f"`{name}` must have the shape {shape} that layer {layer.name!r} "
            "was built for, with at least one position. Received: "
            f"{tuple(x.shape)}. Create another layer for this shape."
        )
    known = [b if a is None else a for a, b in zip(x.shape, shape, strict=True)]
    known[0] = x.shape[0]
    return x if x.shape == known else tf.ensure_shape(x, known)


def check_grid(name, shape):
    """Raises a ValueError unless a shape is `(batch, *spatial, channels)`."""
    if not 3 <= len(shape) <= 5 or 0 in shape[1:]:
        raise ValueError(
            f"`{name}` must have the shape (batch, *spatial, channels) with "
            "one to three spatial axes of size 1 or more. Received: "
            f"{tuple(shape)}."
        )
