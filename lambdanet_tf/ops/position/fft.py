"""Position lambdas of sequences by fast Fourier transforms.

A causal sequence is halved again and again, down to the leaves. The second half
of each part reads the first half by a transform, which contains nothing of the
future, and a leaf reads itself by pairs.
"""

import dataclasses

import tensorflow as tf

from lambdanet_tf.ops.blocks import apply_each
from lambdanet_tf.ops.devices import accumulation_dtype
from lambdanet_tf.ops.geometry import Geometry
from lambdanet_tf.ops.geometry import dilated
from lambdanet_tf.ops.geometry import fitted
from lambdanet_tf.ops.pairs import pair_embeddings

LEAF = 256  # queries of the smallest part of a causal sequence


def fft(queries, values, table, geometry):
    """Computes the position output by transforms of the sequence.

    Half precisions are cast to float32. Cost: about 2.5 b (k v + u v) N log2 N
    + 2 b n h k v operations for transforms of N points, and log2(n / 256) / 2
    times as many on causal sequences; intermediate b n k v.
    """
    dtype = values.dtype
    wide = accumulation_dtype(dtype)
    values, table = tf.cast(values, wide), tf.cast(table, wide)
    lambdas = tf.cast(_lambdas(values, table, geometry.axes[0]), dtype)
    outputs = apply_each(queries, lambdas)
    return tf.reshape(outputs, [-1, *geometry.queries, *outputs.shape[1:]])


def _lambdas(values, table, axis):
    """Maps `(batch, context, v, u)` to `(batch, queries, k, v)`."""
    values = tf.transpose(values, [0, 2, 3, 1])[:, :, :, None]
    if axis.is_causal:
        lambdas = _lambdas_of_the_past(values, table, axis)
    else:
        lambdas = tf.squeeze(_convolved(values, table, axis), 3)
    return tf.transpose(lambdas, [0, 3, 1, 2])


def _convolved(values, table, axis):
    """Maps parts `(b, v, u, x, context)` to lambdas `(b, k, v, x, queries)`.

    All parts use the same table, `(taps, k, u)`, along the same axis.
    """
    length = transform_length(axis)
    kernel = dilated(tf.transpose(table, [1, 2, 0]), [1, 1, axis.dilation])
    kernel = tf.pad(kernel, [[0, 0], [0, 0], [0, length - kernel.shape[-1]]])
    kernel = tf.roll(kernel, -axis.padding, axis=-1)
    kernel = tf.math.conj(tf.signal.rfft(kernel))
    kernel = tf.expand_dims(tf.expand_dims(kernel, 1), 3)  # [k, 1, u, 1, f]
    # `rfft` itself would not pad an empty batch.
    fill = [[0, 0]] * 4 + [[0, length - values.shape[-1]]]
    values = tf.signal.rfft(tf.pad(values, fill), [length])
    values = tf.expand_dims(values, 1)  # [b, 1, v, u, x, f]
    factors = tf.unstack(kernel, axis=2), tf.unstack(values, axis=3)
    products = list(map(tf.multiply, *factors))  # [b, k, v, x, f]
    products = products[0] if len(products) == 1 else tf.add_n(products)
    lambdas = tf.signal.irfft(products, [length])
    last = (axis.queries - 1) * axis.stride + 1
    lambdas = fitted(lambdas, [[0, 0]] * 4 + [[0, last - length]])
    return lambdas if axis.stride == 1 else lambdas[..., :: axis.stride]


def transform_length(axis):
    """Returns the transform's length: a power of 2, where nothing wraps."""
    last_query = (axis.queries - 1) * axis.stride
    points = max(axis.circle, last_query + 1, 2)
    return 2 ** (points - 1).bit_length()


def _lambdas_of_the_past(values, table, axis):
    """Computes the lambdas of a causal sequence, `(batch, k, v, queries)`."""
    leaf, levels = halvings(axis)
    whole = leaf * 2**levels
    batch, value_dim, intra = tf.shape(values)[0], *values.shape[1:3]
    fill = [[0, 0]] * 4 + [[0, whole - axis.context]]
    values = tf.pad(values, fill)
    total = _leaf_lambdas(
        tf.reshape(values, [batch, value_dim, intra, -1, leaf]), table, axis
    )
    for level in range(levels):
        half = leaf * 2**level
        pairs = tf.reshape(values, [batch, value_dim, intra, -1, 2, half])
        later = half_axis(axis, half)
        part = table[later.first : later.first + later.taps]
        earlier, _ = tf.unstack(pairs, axis=-2)
        lambdas = _convolved(earlier, part, later)
        lambdas = tf.expand_dims(lambdas, 4)
        lambdas = tf.pad(
            lambdas, [[0, 0]] * 4 + [[1, 0], [0, 0]]
        )  # [b, k, v, x, 2, queries of half]
        total += tf.reshape(lambdas, tf.shape(total))
    fill = axis.queries - whole // axis.stride
    return fitted(total, [[0, 0]] * 3 + [[0, fill]])


def halvings(axis):
    """Returns the length of a leaf, and how often to double it."""
    leaf = LEAF * axis.stride
    return leaf, max(-(-axis.context // leaf) - 1, 0).bit_length()


def half_axis(axis, half):
    """Returns the axis on which the second half of a part sees the first."""
    return _part_axis(axis, half, axis.padding - half)


def leaf_axis(axis, leaf):
    """Returns the axis on which a leaf sees itself."""
    return _part_axis(axis, leaf, axis.padding)


def _part_axis(axis, context, padding):
    """Returns the axis of a part; `first` counts from the given axis."""
    queries = context // axis.stride
    return dataclasses.replace(
        axis, context=context, queries=queries, first=0, padding=padding
    ).cropped()


def _leaf_lambdas(values, table, axis):
    """Maps leaves `(b, v, u, x, s)` to their lambdas `(b, k, v, queries)`."""
    leaf, (key_dim, intra) = values.shape[-1], table.shape[-2:]
    inner = leaf_axis(axis, leaf)
    geometry = Geometry((inner,))
    embeddings = pair_embeddings(geometry.crop(table), geometry)  # [t, s, k, u]
    kernel = tf.transpose(embeddings, [3, 1, 2, 0])  # [u, s, k, t]
    kernel = tf.reshape(kernel, [intra * leaf, -1])
    context = tf.transpose(values, [0, 1, 3, 2, 4])  # [b, v, x, u, s]
    rows = tf.reshape(context, [-1, intra * leaf])
    lambdas = tf.matmul(rows, kernel)  # [b * v * x, k * t]
    shape = [tf.shape(values)[0], values.shape[1], tf.shape(values)[3]]
    lambdas = tf.reshape(lambdas, [*shape, key_dim, inner.queries])
    lambdas = tf.transpose(lambdas, [0, 3, 1, 2, 4])  # [b, k, v, x, t]
    return tf.reshape(lambdas, [shape[0], key_dim, shape[1], -1])
