"""Frequencies of one axis: how many, and the matrices of their transforms."""

import numpy as np


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
