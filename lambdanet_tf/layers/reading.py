"""What a query of a lambda layer read, as the derivative of its outputs.

    Y[b, n, h, v] = sum over m, u of (Wc + Wp)[b, n, h, m, u] V[b, m, v, u]
                    + bias[b, n, h]

Outputs are linear in the values, so that a weight is the derivative of the
output by the value: Wc with keys alone, Wp with embeddings alone, whatever
masks, strides and tables are.
"""

import numpy as np
import tensorflow as tf

from lambdanet_tf import ops


def reading_of(
    places,
    grids,
    queries,
    keys,
    values,
    embeddings,
    geometry,
    normalization,
    masks,
    position_bias,
):
    """Returns the `ops.Reading` of some queries.

    Args:
        places: one index per axis for each query.
        grids: sizes of the grids of queries and context.
        queries: as in `ops.lambda_step`, and so are the others.
        keys: or None.
        values: `(batch, m, value_dim, intra_depth)`.
        embeddings: or None.
        geometry: of the embeddings, or None.
        normalization: of the keys.
        masks: `ops.Masks`.
        position_bias: or None.
    """
    dtype = ops.accumulation_dtype(queries.dtype)
    queries, values = tf.cast(queries, dtype), tf.cast(values, dtype)
    keys = None if keys is None else tf.cast(keys, dtype)
    rows = [int(np.ravel_multi_index(place, grids[0])) for place in places]

    def weights(keys, embeddings):
        found = tf.zeros([1, 1, 1, 1, 1], dtype)
        if keys is not None or embeddings is not None:
            found = _weights(
                rows,
                queries,
                keys,
                values,
                embeddings,
                geometry,
                normalization=normalization,
                masks=masks,
            )  # [b, p, h, m, u]
        batch, m, _, intra = values.shape
        shape = [batch, len(rows), queries.shape[2], m, intra]
        found = tf.broadcast_to(found, shape)
        return tf.reshape(found, [*shape[:3], *grids[1], intra])

    seen = tf.gather(queries, rows, axis=1)  # [b, p, h, k]
    bias = tf.zeros_like(seen[..., 0])
    if position_bias is not None:
        bias = tf.reduce_sum(seen * tf.cast(position_bias, dtype), axis=-1)
    return ops.Reading(
        places,
        grids[0],
        content=weights(keys, None),
        position=weights(None, embeddings),
        bias=bias,
        values=tf.reshape(values, [-1, *grids[1], *values.shape[2:]]),
    )


def _weights(rows, queries, keys, values, *others, **more):
    """Returns the weights of queries for values, `(batch, p, heads, m, u)`.

    An output of each query and head has a channel of values for itself, so
    that one derivative is all of them.
    """
    num_heads = queries.shape[2]
    probes = len(rows) * num_heads
    values = tf.repeat(tf.zeros_like(values[:, :, :1]), probes, axis=2)
    with tf.GradientTape() as tape:
        tape.watch(values)
        outputs, _ = ops.lambda_step(
            queries, keys, values, *others, plan="query_first", **more
        )
        outputs = tf.gather(outputs, rows, axis=1)  # [b, p, h, p h]
        shape = [-1, probes, probes]
        total = tf.linalg.trace(tf.reshape(outputs, shape))
    weights = tape.gradient(total, values)  # [b, m, p h, u]
    weights = tf.transpose(weights, [0, 2, 1, 3])
    shape = [-1, len(rows), num_heads, *weights.shape[2:]]
    return tf.reshape(weights, shape)


def places_of(position, grid):
    """Returns one index per axis for each query that is looked at.

    Args:
        position: None for all queries in row-major order, or one index per
            spatial axis, or a list of such; on one axis an int or a list.
        grid: sizes of the queries' grid.
    """
    if position is None:
        return tuple(np.ndindex(*grid))
    places = np.asarray(position)
    if places.ndim < 2:
        places = places.reshape([-1, 1] if len(grid) == 1 else [1, -1])
    fits = places.dtype.kind in "iu" and places.shape[1:] == (len(grid),)
    if not (fits and places.size and np.all((places >= 0) & (places < grid))):
        raise ValueError(
            "`position` must be one index per axis of the layer's output, "
            f"{grid}, or a list of such. Received: position={position!r}."
        )
    return tuple(tuple(map(int, place)) for place in places)
