"""Position lambdas through the spectrum of the first axis.

Along one axis a position lambda is a convolution, which the discrete Fourier
transform turns into one product per frequency.

On images and volumes the other axes stay a dense product of blocks, and the
transforms are small real matrices, so that everything is a matrix product, at
a fraction of the operations: with a map of H rows, r taps and N >= H + r/2
frequencies, a column of H positions costs about N s + 2 H N multiplications
per channel pair instead of H r s.

On sequences the transforms are fast ones. A sequence whose queries see only
their past is halved, and its halves again: the second half of each piece reads
the first half through a transform that holds nothing of the future.
"""

import math

import numpy as np
import tensorflow as tf

from lambdanet_tf.ops.block_products import apply_lambdas
from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.convolution import dilated
from lambdanet_tf.ops.geometry import Axis
from lambdanet_tf.ops.geometry import Geometry
from lambdanet_tf.ops.pairs import gather_pairs
from lambdanet_tf.ops.pairs import pair_embeddings
from lambdanet_tf.ops.transpose import transpose

# Queries of the smallest piece of a causal sequence, computed as pairs.
PIECE = 64
_SWAPPED = [1, 0, 2, 3, 4]


def spectral(queries, values, table, blocks):
    """Computes the position output by frequencies of the first axis.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: `(batch, *context, value_dim, intra_depth)`.
        table: `(*taps, key_dim, intra_depth)`, already cropped.
        blocks: `Blocks` of the geometry; the first axis is one block.

    Returns:
        `(batch, n, heads, value_dim)`. Half precisions are computed in
        float32.

    Cost: on images, with F frequencies and, on the other axes, w queries and
    blocks with a context of s positions: 8 b w s F k u v + 4 b n F k v +
    2 b n h k v operations. On sequences, with transforms of N points: about
    2.5 b (k v + u v) N log2 N + 2 b n h k v operations, and log2(n / 64) / 2
    times as many on causal ones. Intermediate b n k v.
    """
    dtype = values.dtype
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    values, table = tf.cast(values, wide), tf.cast(table, wide)
    if blocks.rank == 1:
        lambdas = tf.cast(_sequence_lambdas(values, table, blocks), dtype)
        return apply_lambdas(queries, lambdas, blocks)
    lambdas = tf.cast(_image_lambdas(values, table, blocks), dtype)
    return _apply_rows(queries, lambdas, blocks)


def _image_lambdas(values, table, blocks):
    """`(batch, *context, v, u)` -> `(rows, batch, blocks, queries, k, v)`."""
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

    Every block of an example is a product of its own, with real and imaginary
    parts as an outer axis, so that no lambda is transposed. The gradient takes
    all blocks at once: TensorFlow's writes the kernel's for each of them
    before it adds them up.

    Args:
        kernel: `(f, 2, outer, inner)`.
        context: `(f, blocks, inner, v)`.
        inverse: `(queries, 2 * f)`, a constant.

    Returns:
        `(queries, blocks, outer, v)`.
    """
    count, _, outer, inner = kernel.shape
    queries, value_dim = inverse.shape[0], context.shape[-1]
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

    return tf.reshape(lambdas, [queries, -1, outer, value_dim]), gradient


def _apply_rows(queries, lambdas, blocks):
    """Applies `(rows, batch, blocks, queries, k, v)` to the queries."""
    rows, positions = blocks.grid[0], math.prod(blocks.grid[1:])

    def swapped(x, sizes):  # (batch, rows) <-> (rows, batch)
        shape = x.shape[2:]
        x = tf.transpose(tf.reshape(x, [*sizes, positions, *shape]), _SWAPPED)
        return tf.reshape(x, [-1, positions, *shape])

    lambdas = tf.reshape(lambdas, [-1, *lambdas.shape[2:]])
    outputs = apply_lambdas(
        swapped(queries, [-1, rows]), lambdas, Blocks(blocks.axes[1:])
    )
    outputs = swapped(outputs, [rows, -1])
    return tf.reshape(outputs, [-1, rows * positions, *outputs.shape[2:]])


def _sequence_lambdas(values, table, blocks):
    """`(batch, context, v, u)` -> `(batch, 1, queries, k, v)`."""
    axis = blocks.axes[0].axis
    values = tf.transpose(values, [0, 2, 3, 1])[:, :, :, None]
    if axis.is_causal:
        lambdas = _lambdas_of_the_past(values, table, axis)
    else:
        lambdas = _convolved(values, table, axis)  # [b, k, v, 1, n]
        lambdas = tf.squeeze(lambdas, 3)
    return tf.transpose(lambdas, [0, 3, 1, 2])[:, None]


def _convolved(values, table, axis):
    """Position lambdas of pieces that all see the same table.

    Args:
        values: `(batch, value_dim, intra_depth, pieces, context)`.
        table: `(taps, key_dim, intra_depth)`.
        axis: `Axis` of a piece.

    Returns:
        `(batch, key_dim, value_dim, pieces, queries)`.
    """
    length = transform_length(axis)
    kernel = dilated(tf.transpose(table, [1, 2, 0]), 2, axis.dilation)
    kernel = tf.pad(kernel, [[0, 0], [0, 0], [0, length - kernel.shape[-1]]])
    kernel = tf.roll(kernel, -axis.padding, axis=-1)
    kernel = tf.math.conj(tf.signal.rfft(kernel))  # [k, u, f]
    # Of an empty batch, `rfft` itself would leave the padding out.
    fill = [[0, 0]] * 4 + [[0, length - values.shape[-1]]]
    values = tf.signal.rfft(tf.pad(values, fill), [length])  # [b, v, u, x, f]
    products = [
        kernel[:, None, u, None] * values[:, None, :, u]  # [b, k, v, x, f]
        for u in range(kernel.shape[1])
    ]
    products = products[0] if len(products) == 1 else tf.add_n(products)
    lambdas = tf.signal.irfft(products, [length])
    last = (axis.queries - 1) * axis.stride + 1
    return lambdas[..., :last][..., :: axis.stride]


def transform_length(axis):
    """The points of the transform: a power of 2, so that nothing wraps."""
    last_query = (axis.queries - 1) * axis.stride
    points = max(circle_length(axis), last_query + 1, 2)
    return 2 ** (points - 1).bit_length()


def _lambdas_of_the_past(values, table, axis):
    """As `_convolved`, for one causal piece: `(batch, k, v, queries)`."""
    piece, levels = halvings(axis)
    whole = piece * 2**levels
    batch, value_dim, intra = tf.shape(values)[0], *values.shape[1:3]
    fill = [[0, 0]] * 4 + [[0, whole - axis.context]]
    values = tf.pad(values, fill)
    total = _lambdas_of_pieces(
        tf.reshape(values, [batch, value_dim, intra, -1, piece]), table, axis
    )
    for level in range(levels):
        half = piece * 2**level
        pairs = tf.reshape(values, [batch, value_dim, intra, -1, 2, half])
        later = half_axis(axis, half)
        part = table[later.first : later.first + later.taps]
        lambdas = _convolved(pairs[..., 0, :], part, later)
        lambdas = tf.pad(
            lambdas[..., None, :], [[0, 0]] * 4 + [[1, 0], [0, 0]]
        )  # [b, k, v, x, 2, queries of half]
        total += tf.reshape(lambdas, tf.shape(total))
    return total[..., : axis.queries]


def halvings(axis):
    """Positions of the smallest piece, and how often that is doubled."""
    piece = PIECE * axis.stride
    return piece, max(-(-axis.context // piece) - 1, 0).bit_length()


def half_axis(axis, half):
    """How the second half of a piece sees the first.

    `first` counts from the entries of the given axis.
    """
    return Axis(
        context=half,
        queries=half // axis.stride,
        taps=axis.taps,
        stride=axis.stride,
        dilation=axis.dilation,
        padding=axis.padding - half,
    ).cropped()


def piece_axis(axis, piece):
    """How the smallest piece of a causal sequence sees itself."""
    return Axis(
        context=piece,
        queries=piece // axis.stride,
        taps=axis.taps,
        stride=axis.stride,
        dilation=axis.dilation,
        padding=axis.padding,
    ).cropped()


def _lambdas_of_pieces(values, table, axis):
    """Within the smallest pieces: `(b, v, u, x, s)` -> `(b, k, v, queries)`."""
    piece, (key_dim, intra) = values.shape[-1], table.shape[-2:]
    inner = piece_axis(axis, piece)
    embeddings = pair_embeddings(table, Geometry((inner,)))  # [t, s, k, u]
    kernel = tf.transpose(embeddings, [3, 1, 2, 0])  # [u, s, k, t]
    kernel = tf.reshape(kernel, [intra * piece, -1])
    context = tf.transpose(values, [0, 1, 3, 2, 4])  # [b, v, x, u, s]
    rows = tf.reshape(context, [-1, intra * piece])
    lambdas = tf.matmul(rows, kernel)  # [b * v * x, k * t]
    shape = [tf.shape(values)[0], values.shape[1], tf.shape(values)[3]]
    lambdas = tf.reshape(lambdas, [*shape, key_dim, inner.queries])
    lambdas = tf.transpose(lambdas, [0, 3, 1, 2, 4])  # [b, k, v, x, t]
    return tf.reshape(lambdas, [shape[0], key_dim, shape[1], -1])


def num_frequencies(axis):
    """Frequencies of a circle of an odd number of points, or one more."""
    return circle_length(axis) // 2 + 1


def circle_length(axis):
    """Points of the shortest circle on which nothing wraps around."""
    first_offset = -axis.padding
    last_offset = (axis.taps - 1) * axis.dilation - axis.padding
    last_query = (axis.queries - 1) * axis.stride
    return 1 + max(axis.context - 1 - first_offset, last_query + last_offset, 0)


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
    """Spectrum of the values, `(f, b * x, s * 2 * u, v)`."""
    batch, grid = tf.shape(values)[0], [b.axis.context for b in rest.axes]
    value_dim, intra = values.shape[-2:]
    count = len(forward) // 2
    values = tf.matmul(
        tf.constant(forward, values.dtype),
        tf.reshape(values, [batch, forward.shape[1], -1]),
    )
    values = tf.reshape(values, [batch, count, 2, *grid, value_dim, intra])
    last = 3 + rest.rank
    order = [1, 0, *range(3, last), 2, last + 1, last]
    values = transpose(values, order)  # [f, b, *context, 2, u, v]
    values = tf.reshape(values, [-1, *grid, 2 * intra, value_dim])
    windows = rest.context_blocks(values)  # [f * b, x, s, 2 * u, v]
    return tf.reshape(windows, [count, -1, rest.context * 2 * intra, value_dim])


def _kernel(table, transform, rest):
    """Spectrum of the pairs of a block, `(f, 2, t * k, s * 2 * u)`."""
    rank, (key_dim, intra) = rest.rank, table.shape[-2:]
    real, imaginary = transform[::2], transform[1::2]
    # The real matrix of a complex product.
    transform = np.stack([real, -imaginary, imaginary, real], axis=1)
    count, taps = len(real), table.shape[1:-2]
    spectrum = tf.matmul(
        tf.constant(transform.reshape(4 * count, -1), table.dtype),
        tf.reshape(table, [table.shape[0], -1]),
    )
    spectrum = tf.reshape(spectrum, [count, 2, 2, *taps, key_dim, intra])
    last = 3 + rank
    order = [*range(3, last), 0, 1, last, 2, last + 1]
    spectrum = transpose(spectrum, order)  # [*taps, f, 2, k, 2, u]
    pairs = gather_pairs(spectrum, rank, rest.index())  # [t, s, f, 2, k, 2, u]
    pairs = transpose(pairs, [2, 3, 0, 4, 1, 5, 6])
    return tf.reshape(pairs, [count, 2, -1, rest.context * 2 * intra])
