"""Position lambdas through the spectrum of the first axis.

Along one axis a position lambda is a convolution, which the discrete Fourier
transform turns into one product per frequency; along the others it stays a
dense product of blocks. The transforms are small real matrices, so that
everything is a matrix product, at a fraction of the operations: with a map of
H rows, r taps and N >= H + r/2 frequencies, a column of H positions costs
about N s + 2 H N multiplications per channel pair instead of H r s.
"""

import math

import numpy as np
import tensorflow as tf

from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.pairs import gather_pairs
from lambdanet_tf.ops.products import apply_lambdas


def spectral_lambdas(queries, values, table, blocks):
    """Position lambdas by frequencies of the first axis, blocks of the others.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: `(batch, *context, value_dim, intra_depth)`, two or three
            axes.
        table: `(*taps, key_dim, intra_depth)`, already cropped.
        blocks: `Blocks` of the geometry; the first axis is one block.

    Returns:
        `(batch, n, heads, value_dim)`. Half precisions are computed in
        float32.

    Cost: with F frequencies and, on the other axes, w queries and blocks with
    a context of s positions: 8 b w s F k u v + 4 b n F k v + 2 b n h k v
    operations; intermediate b n k v.
    """
    dtype = values.dtype
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    forward, kernel, inverse = transforms(blocks.axes[0].axis)
    rest = Blocks(blocks.axes[1:])
    context = _context(tf.cast(values, wide), forward, rest)
    kernel = _kernel(tf.cast(table, wide), kernel, rest)
    lambdas = tf.matmul(kernel, context)  # [f, 2 * t * k, b * x * v]
    lambdas = tf.matmul(
        tf.constant(inverse, wide),
        tf.reshape(lambdas, [inverse.shape[1], -1]),
    )  # [rows, t * k * b * x * v]
    key_dim, value_dim = table.shape[-2], values.shape[-2]
    rows, counts = blocks.sizes[0], math.prod(rest.counts)
    shape = [rows * rest.queries, key_dim, -1, counts, value_dim]
    lambdas = tf.reshape(lambdas, shape)
    lambdas = tf.transpose(lambdas, [2, 3, 0, 1, 4])  # [b, x, t, k, v]
    return apply_lambdas(queries, tf.cast(lambdas, dtype), blocks)


def num_frequencies(axis):
    """Frequencies of the shortest circle on which nothing wraps around."""
    first_offset = -axis.padding
    last_offset = (axis.taps - 1) * axis.dilation - axis.padding
    last_query = (axis.queries - 1) * axis.stride
    length = 1 + max(
        axis.context - 1 - first_offset, last_query + last_offset, 0
    )
    return length // 2 + 1  # of a circle of 2 F - 1 >= length positions


def transforms(axis):
    """The real matrices of the discrete Fourier transforms of one axis.

    Returns:
        Three float64 arrays, with real and imaginary parts of every frequency
        in turn: of the context `(2 F, context)`, of the table (conjugate)
        `(2 F, taps)`, and back to the queries `(queries, 2 F)`.
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


def _context(values, forward, rest):
    """Spectrum of the values, `(f, 2 * u * s, b * x * v)`."""
    sizes = tf.unstack(tf.shape(values))
    value_dim, intra = values.shape[-2:]
    values = tf.matmul(
        tf.constant(forward, values.dtype),
        tf.reshape(values, [sizes[0], forward.shape[1], -1]),
    )
    values = tf.reshape(values, [sizes[0], len(forward), *sizes[2:]])
    windows = rest.windows(values, first=2)  # [b, 2f, (count, s)..., v, u]
    last = 2 + 2 * rest.rank
    order = [
        1,
        last + 1,
        *range(3, last, 2),
        0,
        *range(2, last, 2),
        last,
    ]
    windows = tf.transpose(windows, order)  # [2f, u, s, b, x, v]
    depth = 2 * intra * rest.context
    return tf.reshape(windows, [len(forward) // 2, depth, -1])


def _kernel(table, transform, rest):
    """Spectrum of the pairs of a block, `(f, 2 * t * k, 2 * u * s)`."""
    rank, (key_dim, intra) = rest.rank, table.shape[-2:]
    count = len(transform) // 2
    spectrum = tf.matmul(
        tf.constant(transform, table.dtype),
        tf.reshape(table, [table.shape[0], -1]),
    )
    taps = table.shape[1:-2]
    spectrum = tf.reshape(spectrum, [count, 2, *taps, key_dim, intra])
    axes = [*range(2, 2 + rank), 0, 1, 2 + rank, 3 + rank]
    spectrum = tf.transpose(spectrum, axes)  # [*taps, f, 2, k, u]
    pairs = gather_pairs(spectrum, rank, rest.index())  # [t, s, f, 2, k, u]
    real, imaginary = tf.unstack(
        tf.transpose(pairs, [2, 0, 4, 3, 5, 1]), axis=3
    )  # [f, t, k, u, s]
    complex_product = tf.stack(
        [
            tf.stack([real, -imaginary], axis=3),
            tf.stack([imaginary, real], axis=3),
        ],
        axis=1,
    )  # [f, 2, t, k, 2, u, s]
    depth = 2 * intra * rest.context
    return tf.reshape(complex_product, [count, -1, depth])
