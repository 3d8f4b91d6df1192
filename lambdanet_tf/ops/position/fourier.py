"""Position lambdas of images and volumes by frequencies of the first axis.

Along one axis a position lambda is a convolution, which the discrete Fourier
transform turns into one product per frequency. The other axes remain a dense
product of blocks, and the transforms are small real matrices. So everything is
a matrix product, with fewer operations. For a map of H rows, r taps and
N >= H + r/2 frequencies, a column of H positions costs about N s + 2 H N
multiplications per channel pair. Without frequencies it costs H r s.
"""

import math

import numpy as np
import tensorflow as tf

from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.devices import accumulation_dtype
from lambdanet_tf.ops.pairs import pair_embeddings

_SWAPPED = [1, 0, 2, 3, 4]


def fourier(queries, values, table, blocks):
    """Computes the position output by frequencies of the first axis.

    The first axis is one block. Half precisions are cast to float32.

    Cost: 8 b w s F k u v + 4 b n F k v + 2 b n h k v operations for F
    frequencies and, on the other axes, w queries whose blocks see s positions;
    intermediate b n k v.
    """
    dtype = values.dtype
    wide = accumulation_dtype(dtype)
    values, table = tf.cast(values, wide), tf.cast(table, wide)
    lambdas = tf.cast(_lambdas(values, table, blocks), dtype)
    return _apply_rows(queries, lambdas, blocks)


def _lambdas(values, table, blocks):
    """Computes the lambdas, `(rows, batch, blocks, queries, k, v)`."""
    forward, kernel, inverse = transforms(blocks.axes[0].axis)
    rest = Blocks(blocks.axes[1:])
    context = _context(values, forward, rest)  # [f, b * x, s * 2 * u, v]
    kernel = _kernel(table, kernel, rest)  # [f, 2, t * k, s * 2 * u]
    lambdas = _filtered(kernel, context, tf.constant(inverse, values.dtype))
    shape = [math.prod(rest.counts), rest.queries, *table.shape[-2:-1]]
    return tf.reshape(lambdas, [len(inverse), -1, *shape, values.shape[-2]])


@tf.custom_gradient
def _filtered(kernel, context, inverse):
    """Multiplies spectra, block by block, and transforms the product back.

    Each block of an example is one product, with real and imaginary parts on an
    outer axis, so that no lambda is transposed. Our gradient takes all blocks
    at once. TensorFlow's own writes the kernel's gradient for each block before
    it sums them, which took twice as long.
    """
    count, _, outer, inner = kernel.shape  # [f, 2, outer, inner]
    value_dim = context.shape[-1]  # [f, blocks, inner, v]
    queries = inverse.shape[0]  # [queries, 2 * f], a constant
    products = tf.matmul(kernel[:, :, None], context[:, None])
    lambdas = tf.matmul(inverse, tf.reshape(products, [2 * count, -1]))

    def gradient(upstream):
        upstream = tf.transpose(upstream, [0, 2, 1, 3])
        upstream = tf.reshape(upstream, [queries, -1])
        upstream = tf.matmul(inverse, upstream, transpose_a=True)
        upstream = tf.reshape(upstream, [count, 2 * outer, -1])
        windows = tf.transpose(context, [0, 2, 1, 3])
        windows = tf.reshape(windows, [count, inner, -1])
        of_kernel = tf.matmul(upstream, windows, transpose_b=True)
        matrix = tf.reshape(kernel, [count, 2 * outer, inner])
        of_context = tf.matmul(matrix, upstream, transpose_a=True)
        of_context = tf.reshape(of_context, [count, inner, -1, value_dim])
        of_context = tf.transpose(of_context, [0, 2, 1, 3])
        return tf.reshape(of_kernel, kernel.shape), of_context, None

    lambdas = tf.reshape(lambdas, [queries, -1, outer, value_dim])
    return lambdas, gradient  # [queries, blocks, outer, v]


def _apply_rows(queries, lambdas, blocks):
    """Applies `(rows, batch, blocks, queries, k, v)` to the queries."""
    rows, positions = blocks.grid[0], math.prod(blocks.grid[1:])

    def swapped(x, sizes):  # (batch, rows) <-> (rows, batch)
        shape = x.shape[2:]
        x = tf.transpose(tf.reshape(x, [*sizes, positions, *shape]), _SWAPPED)
        return tf.reshape(x, [-1, positions, *shape])

    lambdas = tf.reshape(lambdas, [-1, *lambdas.shape[2:]])
    rest = Blocks(blocks.axes[1:])
    outputs = rest.apply(swapped(queries, [-1, rows]), lambdas)
    outputs = swapped(outputs, [rows, -1])
    return tf.reshape(outputs, [-1, rows * positions, *outputs.shape[2:]])


def _context(values, forward, rest):
    """Returns the spectrum of the values, `(f, b * x, s * 2 * u, v)`."""
    batch, grid = tf.shape(values)[0], [b.axis.context for b in rest.axes]
    value_dim, intra = values.shape[-2:]
    count, last = len(forward) // 2, 3 + rest.rank
    values = tf.matmul(
        tf.constant(forward, values.dtype),
        tf.reshape(values, [batch, forward.shape[1], -1]),
    )
    values = tf.reshape(values, [batch, count, 2, *grid, value_dim, intra])
    values = tf.transpose(values, [1, 0, *range(3, last), 2, last + 1, last])
    values = tf.reshape(values, [-1, *grid, 2 * intra * value_dim])
    windows = rest.context_blocks(values)  # [f * b, x, s, 2 * u * v]
    return tf.reshape(windows, [count, -1, rest.context * 2 * intra, value_dim])


def _kernel(table, transform, rest):
    """Returns the spectrum of a block's pairs, `(f, 2, t * k, s * 2 * u)`."""
    last, (key_dim, intra) = 3 + rest.rank, table.shape[-2:]
    real, imaginary = transform[::2], transform[1::2]
    # The real matrix of a complex product.
    transform = np.stack([real, -imaginary, imaginary, real], axis=1)
    count, taps = len(real), table.shape[1:-2]
    spectrum = tf.matmul(
        tf.constant(transform.reshape(4 * count, -1), table.dtype),
        tf.reshape(table, [table.shape[0], -1]),
    )
    spectrum = tf.reshape(spectrum, [count, 2, 2, *taps, key_dim, intra])
    order = [*range(3, last), 0, 1, last, 2, last + 1]
    spectrum = tf.transpose(spectrum, order)  # [*taps, f, 2, k, 2, u]
    spectrum = tf.reshape(spectrum, [*taps, count, 2, key_dim, 2 * intra])
    pairs = pair_embeddings(spectrum, rest.inner)  # [t, s, f, 2, k, 2 * u]
    pairs = tf.transpose(pairs, [2, 3, 0, 4, 1, 5])
    return tf.reshape(pairs, [count, 2, -1, rest.context * 2 * intra])


def num_frequencies(axis):
    """Returns the number of frequencies of an odd transform length."""
    return axis.circle // 2 + 1


def transforms(axis):
    """Returns the real matrices of the Fourier transforms of one axis.

    They are float64, with alternating real and imaginary parts: for the context
    `(2 F, context)`, for the table (conjugate) `(2 F, taps)`, and back to the
    queries `(queries, 2 F)`.
    """
    count = num_frequencies(axis)
    circle = 2 * count - 1
    frequencies = 2 * np.pi * np.arange(count)[:, None] / circle
    context = frequencies * np.arange(axis.context)
    offsets = np.arange(axis.taps) * axis.dilation - axis.padding
    table = frequencies * offsets
    queries = frequencies * np.arange(axis.queries) * axis.stride
    weights = np.full((count, 1), 2.0 / circle)
    weights[0] = 1.0 / circle
    forward = np.stack([np.cos(context), -np.sin(context)], axis=1)
    kernel = np.stack([np.cos(table), np.sin(table)], axis=1)
    inverse = np.stack(
        [weights * np.cos(queries), -weights * np.sin(queries)], axis=1
    )
    forward, kernel, inverse = (
        matrix.reshape(2 * count, -1) for matrix in (forward, kernel, inverse)
    )
    return forward, kernel, inverse.T
