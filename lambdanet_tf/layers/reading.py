"""How much a query reads from each position: a derivative of its outputs.

    Y[b, n, h, v] = sum over m, u of (Wc + Wp)[b, n, h, m, u] V[b, m, v, u]
                    + bias[b, n, h]

Outputs are linear in the values, so a weight is the derivative of an output by
a value. With keys only it is Wc, with embeddings only Wp. This holds for all
masks, strides and tables.
"""

import numpy as np
import tensorflow as tf

from lambdanet_tf import ops


def reading_of(equation, keys, values, embeddings, places, grids, num_heads):
    """Returns the `ops.Reading` of some queries.

    Each query and head gets its own channel of values, so that one derivative
    holds all weights. These values are zero, so the outputs are the bias.
    `equation` is a function of keys, values and embeddings. `grids` are those
    of queries and context.
    """
    rows = [int(np.ravel_multi_index(place, grids[0])) for place in places]
    probes = len(rows) * num_heads
    zeros = tf.repeat(tf.zeros_like(values[:, :, :1]), probes, axis=2)
    shape = [len(values), len(rows), num_heads]
    parts: list[tf.Tensor] = []
    bias: tf.Tensor = None
    for given in ((keys, None), (None, embeddings)):
        found = zeros
        if any(x is not None for x in given):
            with tf.GradientTape() as tape:
                tape.watch(zeros)
                outputs = equation(given[0], zeros, given[1])
                outputs = tf.gather(outputs, rows, axis=1)  # [b, p, h, p h]
                flat = tf.reshape(outputs, [-1, probes, probes])
                total = tf.linalg.trace(flat)
            found, bias = tape.gradient(total, zeros), outputs[..., 0]
        found = tf.transpose(found, [0, 2, 1, 3])  # [b, p h, m, u]
        parts += [tf.reshape(found, [*shape, *grids[1], values.shape[-1]])]
    values = tf.reshape(values, [-1, *grids[1], *values.shape[2:]])
    content, position = parts
    return ops.Reading(places, grids[0], content, position, bias, values)


def places_of(position, grid):
    """Returns one index per axis for each query."""
    if position is None:
        return tuple(np.ndindex(*grid))
    places = np.asarray(position)
    if places.ndim < 2:
        places = places.reshape([-1, 1] if len(grid) == 1 else [1, -1])
    fits = places.dtype.kind in "iu" and places.shape[1:] == (len(grid),)
    if not (fits and places.size and np.all((places >= 0) & (places < grid))):
        raise ValueError(
            "`position` must be one index per spatial axis of the outputs "
            f"({', '.join(f'0 to {size - 1}' for size in grid)}), or a list of "
            f"places. Received: {position!r}."
        )
    return tuple(tuple(map(int, place)) for place in places)
