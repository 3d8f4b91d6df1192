"""What a query read: the weights over context positions that lambdas imply.

    Y[b, n, h, v]     = sum over m, u of (Wc + Wp)[b, n, h, m, u] V[b, m, v, u]
                        + bias[b, n, h]
    Wc[b, n, h, m, u] = sum over k of Q[b, n, h, k] norm(K)[b, m, k, u]
    Wp[b, n, h, m, u] = sum over k of Q[b, n, h, k] E[n, m, k, u]

The equation of lambda layers, summed in another order: `lambda_output` never
forms these weights. Here they are formed of a few queries, to be looked at.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from lambdanet_tf.ops.geometry import Geometry
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.keys import normalize_keys
from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.masks import split_nonfinite
from lambdanet_tf.ops.pairs import pair_embeddings
from lambdanet_tf.ops.pairs import relative_index
from lambdanet_tf.ops.precision import accumulation_dtype


@dataclasses.dataclass(frozen=True)
class Reading:
    """What some queries of a lambda layer read from every context position.

    Weights can be negative, and do not add up to one.

    Attributes:
        places: of the queries, p of them, each one index per axis.
        grid: sizes of the queries' grid.
        content: `(batch, p, heads, *context grid, intra_depth)`: weights of
            the content part; zero without one.
        position: likewise of the position part.
        bias: `(batch, p, heads)`: what the position bias adds to every channel
            of a head; zero without one.
        values: `(batch, *context grid, value_dim, intra_depth)`: what the
            weights are applied to, normalized, zero at padding.

    Examples:
        >>> x = tf.random.normal([1, 6, 6, 8])
        >>> layer = LambdaLayer(8, num_heads=4, scope=5)
        >>> layer.build(x.shape)
        >>> reading = layer.read(x, (0, 0))
        >>> reading.outputs().shape
        TensorShape([1, 1, 8])
    """

    places: tuple[tuple[int, ...], ...]
    grid: tuple[int, ...]
    content: tf.Tensor
    position: tf.Tensor
    bias: tf.Tensor
    values: tf.Tensor

    def outputs(self) -> tf.Tensor:
        """Applies the weights: the layer's outputs at the places.

        Returns:
            `(batch, p, heads * value_dim)`.
        """
        value_dim, intra = self.values.shape[-2:]
        batch, places, heads = tf.unstack(tf.shape(self.bias))
        values = tf.reshape(self.values, [batch, -1, value_dim, intra])
        shape = [batch, places, heads, size(values, 1), intra]
        weights = tf.reshape(self.content + self.position, shape)
        outputs = tf.einsum("bphmu,bmvu->bphv", weights, values)
        outputs += self.bias[..., None]
        return tf.reshape(outputs, [batch, places, heads * value_dim])


def implied_weights(
    queries,
    keys,
    values,
    embeddings,
    geometry,
    normalization,
    masks,
    position_bias,
    places,
    grid,
):
    """Computes what some queries read, see `Reading`.

    Args:
        queries: as in `lambda_output`; so are the next arguments.
        keys: see there.
        values: see there.
        embeddings: see there.
        geometry: static, or None.
        normalization: see there.
        masks: see there.
        position_bias: see there.
        places: tuple of one index per axis of the queries' grid, for each of
            the queries that are looked at.
        grid: int per axis. Sizes of that grid.

    Returns:
        A `Reading` in float32 or wider, whose context has one axis. Where
        masks hide positions, NaN stands at those that are not finite and
        that a query may see.

    Cost: 2 p m h k u operations for each part, and embeddings p m k u.

    Examples:
        >>> queries = tf.random.normal([1, 9, 4, 16])
        >>> keys = tf.random.normal([1, 9, 16, 1])
        >>> values = tf.random.normal([1, 9, 8, 1])
        >>> reading = implied_weights(
        ...     queries,
        ...     keys,
        ...     values,
        ...     None,
        ...     None,
        ...     "softmax",
        ...     ops.Masks(),
        ...     None,
        ...     places=[(0,)],
        ...     grid=(9,),
        ... )
        >>> reading.outputs().shape
        TensorShape([1, 1, 32])
    """
    dtype = accumulation_dtype(queries.dtype)
    rows = [int(np.ravel_multi_index(place, grid)) for place in places]
    queries = tf.cast(tf.gather(queries, rows, axis=1), dtype)  # [b, p, h, k]
    values = masked_fill(tf.cast(values, dtype), masks.permitted)
    nonfinite = None
    if masks.hides:
        values, nonfinite = split_nonfinite(values)
        if keys is not None:
            keys, nonfinite_keys = split_nonfinite(keys)
            nonfinite |= nonfinite_keys  # [b, m]
    stride = 1 if geometry is None else geometry.strides[0]
    shape = tf.shape(values)
    none = tf.zeros([shape[0], queries.shape[2], shape[1], shape[3]], dtype)
    content, position = [], []
    for index, (row, place) in enumerate(zip(rows, places, strict=True)):
        query = queries[:, index]  # [b, h, k]
        seen = _seen(masks, row, row * stride, shape[1])  # [b, h, m], any 1
        weights = none
        if keys is not None:
            weights = _content(query, keys, normalization, seen)
        content += [_of_seen(weights, seen, nonfinite)]  # [b, h, m, u]
        weights = none
        if embeddings is not None:
            pairs, inside = _pairs(embeddings, geometry, row, place)
            weights, seen = _position(query, pairs), seen & inside
        position += [_of_seen(weights, seen, nonfinite)]
    bias = tf.zeros_like(queries[..., 0])  # [b, p, h]
    if position_bias is not None:
        bias = tf.reduce_sum(queries * tf.cast(position_bias, dtype), axis=-1)
    content, position = tf.stack(content, 1), tf.stack(position, 1)
    return Reading(places, tuple(grid), content, position, bias, values)


def _seen(masks, row, last, m):
    """What the query of a row may see: boolean `(batch or 1, heads or 1, m)`.

    Args:
        masks: `Masks`.
        row: int. Of the masks of single queries.
        last: int. The last position that it sees, if causal.
        m: number of context positions.
    """
    seen = tf.ones([1, 1, m], tf.bool)
    if masks.permitted is not None:
        seen &= masks.permitted[:, None]
    if masks.attention:
        pairs = [x if len(x.shape) == 3 else x[None] for x in masks.attention]
        seen &= tf.stack([x[:, row] for x in pairs], axis=1)
    if masks.causal:
        seen &= tf.range(m) <= last
    return seen


def _of_seen(weights, seen, nonfinite):
    """Zero at what is not seen, NaN at what is seen and is not finite."""
    weights = masked_fill(weights, seen)
    if nonfinite is None:
        return weights
    return masked_fill(weights, ~(nonfinite[:, None] & seen), float("nan"))


def _content(query, keys, normalization, seen):
    """Weights of the content part, `(batch, heads, m, intra_depth)`."""
    keys = tf.cast(keys, query.dtype)
    weights = [
        _read_rows(query, normalize_keys(keys, normalization, mask))
        for mask in tf.unstack(seen, axis=1)
    ]
    if len(weights) == 1:
        return weights[0]
    # Heads with a mask of their own normalize the keys each for itself.
    return tf.stack([x[:, head] for head, x in enumerate(weights)], axis=1)


def _pairs(embeddings, geometry, row, place):
    """The embeddings of a query's pairs, and which are in its scope.

    Returns:
        `(batch or 1, m, key_dim, intra_depth)`, and boolean `(m)`.
    """
    if geometry is None:
        axis = len(embeddings.shape) - 4
        pairs = tf.gather(embeddings, row, axis=axis)
        return (pairs if axis else pairs[None]), True
    axes = (
        dataclasses.replace(
            axis, queries=1, padding=axis.padding - index * axis.stride
        )
        for axis, index in zip(geometry.axes, place, strict=True)
    )
    own = Geometry(tuple(axes))
    table = own.crop(embeddings)
    return pair_embeddings(table, own), relative_index(own)[0] >= 0


def _position(query, embeddings):
    """Weights of the position part, `(batch, heads, m, intra_depth)`.

    Args:
        query: `(batch, heads, key_dim)`.
        embeddings: `(batch or 1, m, key_dim, intra_depth)`.
    """
    rows = tf.transpose(tf.cast(embeddings, query.dtype), [0, 2, 3, 1])
    shape = [tf.shape(query)[0], *tf.unstack(tf.shape(rows))[1:]]
    return _read_rows(query, tf.broadcast_to(rows, shape))


def _read_rows(query, rows):
    """`(b, heads, k)` with `(b, k, u, m)`: `(b, heads, m, u)`."""
    return tf.einsum("bhk,bkum->bhmu", query, rows)
