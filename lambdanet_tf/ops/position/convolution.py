"""Position lambdas as convolutions of the values with the table.

A local scope makes E translation equivariant with a finite support: the
position lambdas are a convolution of the values whose kernel is the table
(section 3.2 of the paper). These algorithms need no static spatial size.
"""

import itertools

import tensorflow as tf

from lambdanet_tf.ops.devices import accumulation_dtype
from lambdanet_tf.ops.geometry import dilated
from lambdanet_tf.ops.geometry import fitted
from lambdanet_tf.ops.geometry import size


def conv2d(queries, values, table, geometry):
    """Convolves along all axes, with the value depth in the batch.

    Cost: 2 b n r k u v + 2 b n h k v operations; intermediate b n k v.
    """
    rank, value_dim = geometry.rank, values.shape[-2]
    values = tf.transpose(values, [0, rank + 1, *range(1, rank + 1), rank + 2])
    values = tf.reshape(values, [-1, *geometry.context, values.shape[-1]])
    values = _padded(values, geometry)  # [b * v, *context, u]
    kernel = tf.transpose(table, [*range(rank), rank + 1, rank])
    kernel = tf.cast(kernel, values.dtype)  # [*taps, u, k]
    lambdas = tf.nn.convolution(
        values,
        dilated(kernel, [axis.dilation for axis in geometry.axes]),
        strides=[axis.stride for axis in geometry.axes],
        padding="VALID",
        # The eager gradient of a 3-D convolution needs it.
        data_format=("NWC", "NHWC", "NDHWC")[rank - 1],
    )  # [b * v, *queries, k]
    (heads, key_dim), positions = queries.shape[-2:], size(queries, 1)
    lambdas = tf.reshape(lambdas, [-1, value_dim, positions, key_dim])
    lambdas = tf.transpose(lambdas, [0, 2, 3, 1])  # [b, n, k, v]
    queries = tf.reshape(queries, [-1, heads, key_dim])
    outputs = tf.matmul(queries, tf.reshape(lambdas, [-1, key_dim, value_dim]))
    return tf.reshape(outputs, [-1, positions, heads, value_dim])


def depthwise(queries, values, table, geometry):
    """Convolves each channel, with the table tiled over the value channels.

    It serves sequences and images, at the cost of `conv2d`. Half precisions
    are cast to float32, because some devices would not sum them in it.
    """
    dtype = values.dtype
    values = tf.cast(values, accumulation_dtype(dtype))
    value_dim, intra, key_dim = *values.shape[-2:], table.shape[-2]
    values = tf.reshape(
        values, [-1, *geometry.context, value_dim * intra]
    )  # [b, *context, v * u]
    values = _padded(values, geometry)
    kernel = tf.tile(
        tf.einsum("...ku->...uk", tf.cast(table, values.dtype)),
        [1] * geometry.rank + [value_dim, 1],
    )  # [*taps, v * u, k]
    kernel = dilated(kernel, [axis.dilation for axis in geometry.axes])
    lambdas = _depthwise_convolution(
        values, kernel, [axis.stride for axis in geometry.axes]
    )
    positions, heads = size(queries, 1), queries.shape[-2]
    lambdas = tf.reshape(lambdas, [-1, value_dim, intra * key_dim])
    queries = tf.tile(queries, [1, 1, 1, intra])  # [b, n, h, u * k]
    queries = tf.reshape(queries, [-1, heads, intra * key_dim])
    lambdas = tf.cast(lambdas, dtype)
    outputs = tf.matmul(queries, lambdas, transpose_b=True)
    return tf.reshape(outputs, [-1, positions, heads, value_dim])


def _padded(values, geometry):
    """Pads or cuts the spatial axes."""
    pads = [(axis.padding, axis.padding_after) for axis in geometry.axes]
    padded = fitted(values, [(0, 0), *pads, (0, 0)])
    if all(isinstance(pad, int) for pad in itertools.chain(*pads)):
        return padded
    # TFLite's converter does not see that the channels stay the same.
    sizes = [size(padded, 1 + axis) for axis in range(geometry.rank)]
    return tf.reshape(padded, [-1, *sizes, values.shape[-1]])


def _depthwise_convolution(values, kernel, strides):
    """Calls `tf.nn.depthwise_conv2d`, also for sequences and any strides."""
    if len(strides) == 1:
        values, kernel = values[:, None], kernel[None]
        lambdas = _depthwise_convolution(values, kernel, (1, *strides))
        return lambdas[:, 0]
    # For an empty batch, the gradient would be uninitialized memory.
    kernel = tf.where(size(values, 0) > 0, kernel, tf.zeros_like(kernel))
    # TensorFlow supports equal strides only.
    step = strides[0] if strides[0] == strides[1] else 1
    lambdas = tf.nn.depthwise_conv2d(
        values, kernel, strides=[1, step, step, 1], padding="VALID"
    )
    if strides[0] != strides[1]:
        lambdas = lambdas[:, :: strides[0], :: strides[1]]
    return lambdas
