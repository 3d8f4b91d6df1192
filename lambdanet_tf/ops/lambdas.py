"""The equation of lambda layers.

    Y[b, n, h, v]       = sum over k of  Q[b, n, h, k] lambda[b, n, k, v]
    lambda[b, n, k, v]  = sum over m, u of  norm(K)[b, m, k, u] V[b, m, v, u]
                        + sum over m, u of  E[n, m, k, u] V[b, m, v, u]
                        + bias[k]

The three terms are the content lambda, the position lambda (Equation 1 of the
paper) and timm's bias; each is optional. All heads share a lambda.
"""

import tensorflow as tf

from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.content import content_output
from lambdanet_tf.ops.devices import accumulation_dtype
from lambdanet_tf.ops.devices import factor_dtype
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.masks import Masks
from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.pairs import pair_output
from lambdanet_tf.ops.position.costs import Dims
from lambdanet_tf.ops.position.plan import ALGORITHMS
from lambdanet_tf.ops.position.plan import Plan
from lambdanet_tf.ops.position.plan import plan_for

_UNMASKED = Masks()


def lambda_output(
    queries,
    keys,
    values,
    embeddings,
    geometry=None,
    plan="auto",
    normalization: str | None = "softmax",
    masks=_UNMASKED,
    position_bias=None,
    state=None,
):
    """Computes what the queries read from their lambdas.

    Args:
        queries: `(batch, n, heads, key_dim)`, positions flattened row-major.
        keys: `(batch, m, key_dim, intra_depth)`, before normalization, or None
            for no content lambda.
        values: `(batch, m, value_dim, intra_depth)`.
        embeddings: None for no position lambda. With a geometry, the table of
            relative positions, `(*entries, key_dim, intra_depth)`, entry
            `center + (m - n)` per axis. Without one, the embedding of every
            pair, `([batch,] n, m, key_dim, intra_depth)`.
        geometry: None, or a `Geometry`. Its context includes the values that
            `state` keeps.
        plan: a `Plan`, or one of `implementations()`. Used with a table only.
        normalization: one of `KEY_NORMALIZATIONS`, over visible positions.
        masks: `Masks`. If `causal`, query n sees positions up to `n * stride`.
        position_bias: None, or `(key_dim,)`.
        state: None, or the state of a causal sequence before these positions.
            With keys it holds what `content_state_spec` describes; with a table
            of several entries also "values", the latest earlier ones.

    Returns:
        `(batch, n, heads, value_dim)`, zero except for the bias where the masks
        permit nothing. And the next state, {} unless causal.

    Raises:
        ValueError: if the plan or a mask needs static sizes, and `geometry`
            has none.
    """
    values = masked_fill(values, masks.permitted)
    window, outputs, after = None, [], {}
    if state is not None:
        state = dict(state)
        window = state.pop("values", None)
    if keys is not None:
        stride = 1 if geometry is None else geometry.axes[0].stride
        content, after = content_output(
            queries, keys, values, normalization, masks, stride, state
        )
        outputs += [content]
    if window is not None:
        length = size(values, 1)
        values = tf.concat([window, values], axis=1)
        after["values"] = values[:, length:]
    if embeddings is not None and (geometry is None or masks.seen is not None):
        seen = masks.seen
        if masks.causal and seen is None:  # Padding is zero already.
            past = tf.ones([1, size(queries, 1), size(values, 1)], tf.bool)
            seen = tf.linalg.band_part(past, -1, 0)
        outputs += [pair_output(queries, values, embeddings, geometry, seen)]
    elif embeddings is not None:
        rest = embeddings, geometry, plan, masks.causal
        outputs += [_position_output(queries, values, *rest)]
    outputs = tf.add_n(outputs)
    if position_bias is not None:
        outputs += _bias_output(queries, position_bias)
    return outputs, after


def _position_output(queries, values, embeddings, geometry, plan, causal):
    """Computes what the queries read from their position lambdas.

    Sums over positions run in float32 or wider. If `causal`, later positions
    do not change a single bit of an output. Arguments as in `lambda_output`.
    """
    dims = Dims(*queries.shape[-2:], *values.shape[-2:])
    if not isinstance(plan, Plan):
        plan = plan_for(geometry, dims, plan, batch=values.shape[0])
    algorithm, dtype = ALGORITHMS[plan.algorithm], values.dtype
    if causal and not geometry.is_causal and algorithm.mixes_positions:
        # A step: the new positions would mix with those that it keeps.
        plan = plan_for(geometry, dims, "query_first", batch=values.shape[0])
        algorithm = ALGORITHMS[plan.algorithm]
    inner = factor_dtype(dtype)
    queries, values = tf.cast(queries, inner), tf.cast(values, inner)
    values = tf.reshape(values, [-1, *geometry.context, *values.shape[-2:]])
    place = geometry
    if algorithm.blocks is not None:
        place = Blocks.of(geometry, plan.sizes)
    table = geometry.crop(embeddings)
    return tf.cast(algorithm.run(queries, values, table, place), dtype)


def _bias_output(queries, bias):
    """Returns what queries read from the bias, `(b, n, h, 1)`."""
    # TFLite's converter writes a wrong `tf.einsum` if sizes are unknown.
    dtype = accumulation_dtype(queries.dtype)
    products = tf.cast(queries, dtype) * tf.cast(bias, dtype)
    read = tf.reduce_sum(products, axis=-1, keepdims=True)
    return tf.cast(read, queries.dtype)
