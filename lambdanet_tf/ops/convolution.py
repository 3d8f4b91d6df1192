"""Position lambdas as convolutions of the values with the table.

A local scope makes E translation equivariant with a finite support: the
position lambdas are a convolution of the values whose kernel is the table
(spec section 1). These algorithms need no static spatial size.
"""

import numpy as np
import tensorflow as tf

from lambdanet_tf.ops.geometry import Axis
from lambdanet_tf.ops.geometry import Geometry


def folded_convolution(queries, values, table, geometry):
    """A convolution of the context's rank, value depth folded into the batch.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: `(batch, *context, value_dim, intra_depth)`.
        table: `(*taps, key_dim, intra_depth)`, already cropped.
        geometry: a `Geometry` of the same rank.

    Returns:
        `(batch, n, heads, value_dim)`.

    Cost: 2 b n r k u v + 2 b n h k v operations for r taps; intermediate
    b n k v.
    """
    rank, value_dim = geometry.rank, values.shape[-2]
    values = _fold_value_depth(values, rank)
    kernel = tf.transpose(table, [*range(rank), rank + 1, rank])
    lambdas = _valid_convolution(_padded(values, geometry), kernel, geometry)
    return _apply_folded(queries, lambdas, value_dim)


def _fold_value_depth(values, rank):
    """`(b, *context, v, u)` -> `(b * v, *context, u)`."""
    order = [0, rank + 1, *range(1, rank + 1), rank + 2]
    values = tf.transpose(values, order)
    sizes = tf.shape(values)
    folded = tf.concat([[sizes[0] * sizes[1]], sizes[2:]], 0)
    static = values.shape[2:]
    return tf.ensure_shape(tf.reshape(values, folded), [None, *static])


def _apply_folded(queries, lambdas, value_dim):
    """Applies `(b * v, *queries, k)` to `(b, n, h, k)`."""
    positions = queries.shape[1] or tf.shape(queries)[1]
    shape = [tf.shape(queries)[0], value_dim, positions, lambdas.shape[-1]]
    lambdas = tf.reshape(lambdas, shape)
    return tf.matmul(queries, tf.transpose(lambdas, [0, 2, 3, 1]))


def unfolded_convolution(queries, values, table, geometry):
    """As `folded_convolution`, with the first axis unfolded into channels.

    The entries of the first axis become input channels, shifted copies of the
    values, and what remains is a convolution along the other axes.

    Args and returns as in `folded_convolution`.

    Cost: as `folded_convolution`, and a copy of the values for every entry of
    the first axis.
    """
    rank, first = geometry.rank, geometry.axes[0]
    intra, value_dim = values.shape[-1], values.shape[-2]
    values = _fold_value_depth(values, rank)  # [b * v, *context, u]
    values = _padded(values, geometry)
    last = (first.queries - 1) * first.stride + 1
    shifted = [
        values[:, tap * first.dilation :][:, : last : first.stride]
        for tap in range(first.taps)
    ]
    values = tf.concat(shifted, axis=-1)  # [b * v, queries, ..., taps * u]
    kernel = tf.transpose(table, [*range(1, rank), 0, rank + 1, rank])
    channels = first.taps * intra
    kernel = tf.reshape(kernel, [1, *geometry.taps[1:], channels, -1])
    unfolded = Geometry(
        (Axis(first.queries, first.queries, 1), *geometry.axes[1:])
    )
    lambdas = _valid_convolution(values, kernel, unfolded)
    return _apply_folded(queries, lambdas, value_dim)


def depthwise_convolution(queries, values, table, geometry):
    """A depthwise convolution: the table tiled over the value channels.

    Args and returns as in `folded_convolution`. Three axes are a sum of
    two-dimensional convolutions over the entries of the first.

    Cost: as `folded_convolution`.
    """
    value_dim, intra, key_dim = *values.shape[-2:], table.shape[-2]
    values = tf.reshape(
        values, [-1, *geometry.context, value_dim * intra]
    )  # [b, *context, v * u]
    values = _padded(values, geometry)
    kernel = tf.tile(
        tf.einsum("...ku->...uk", table),
        [1] * geometry.rank + [value_dim, 1],
    )  # [*taps, v * u, k]
    lambdas = _depthwise(values, kernel, geometry)
    positions = queries.shape[1] or tf.shape(queries)[1]
    lambdas = tf.reshape(lambdas, [-1, positions, value_dim, intra, key_dim])
    return tf.einsum("bnvuk,bnhk->bnhv", lambdas, queries)


def _padded(values, geometry):
    """Pads (or, where the padding is negative, cuts) the spatial axes."""
    pads = [(axis.padding, axis.padding_after) for axis in geometry.axes]
    if all(isinstance(before, int) for before, _ in pads):
        starts = [max(-before, 0) for before, _ in pads]
        values = values[
            (slice(None), *(slice(start, None) for start in starts))
        ]
        pads = [(max(before, 0), after) for before, after in pads]
    return tf.pad(values, [(0, 0), *pads, (0, 0)])


def _valid_convolution(values, kernel, geometry):
    """`tf.nn.convolution`; dilation as a kernel with zeros between entries.

    (Not every device has the gradient of a dilated convolution.)
    """
    kernel = _dilated(kernel, geometry.dilations)
    return tf.nn.convolution(
        values,
        kernel,
        strides=list(geometry.strides),
        padding="VALID",
        # Named, because the eager gradient of a 3-D convolution reads it.
        data_format=("NWC", "NHWC", "NDHWC")[geometry.rank - 1],
    )


def _dilated(kernel, dilations):
    """Puts `dilation - 1` zeros between the entries of each spatial axis."""
    for axis, dilation in enumerate(dilations):
        taps = kernel.shape[axis]
        if dilation == 1 or taps == 1:
            continue
        spread = np.zeros(((taps - 1) * dilation + 1, taps))
        spread[np.arange(taps) * dilation, np.arange(taps)] = 1.0
        kernel = tf.tensordot(
            tf.constant(spread, kernel.dtype), kernel, [[1], [axis]]
        )
        kernel = tf.transpose(kernel, _moved_to(axis, len(kernel.shape)))
    return kernel


def _moved_to(axis, rank):
    """The permutation that moves axis 0 to `axis`."""
    order = list(range(1, rank))
    order.insert(axis, 0)
    return order


def _depthwise(values, kernel, geometry):
    kernel = _dilated(kernel, geometry.dilations)
    if geometry.rank == 1:
        lambdas = _depthwise_2d(
            values[:, None], kernel[None], (1, *geometry.strides)
        )
        return lambdas[:, 0]
    if geometry.rank == 2:
        return _depthwise_2d(values, kernel, geometry.strides)
    depth = geometry.axes[0]
    last = (depth.queries - 1) * depth.stride + 1
    planes = [
        _depthwise_planes(
            values[:, tap : tap + last : depth.stride],
            kernel[tap],
            geometry.strides[1:],
        )
        for tap in range(kernel.shape[0])
    ]
    return tf.add_n(planes)


def _depthwise_planes(volume, kernel, strides):
    """A two-dimensional convolution of every plane of a volume."""
    shape = tf.shape(volume)
    planes = tf.reshape(
        volume, tf.concat([[-1], shape[2:4], [volume.shape[-1]]], 0)
    )
    lambdas = _depthwise_2d(planes, kernel, strides)
    return tf.reshape(lambdas, tf.concat([shape[:2], tf.shape(lambdas)[1:]], 0))


def _depthwise_2d(values, kernel, strides):
    """`tf.nn.depthwise_conv2d`, which knows only equal strides."""
    step = strides[0] if strides[0] == strides[1] else 1
    lambdas = tf.nn.depthwise_conv2d(
        values, kernel, strides=[1, step, step, 1], padding="VALID"
    )
    if strides[0] != strides[1]:
        lambdas = lambdas[:, :: strides[0], :: strides[1]]
    return lambdas
