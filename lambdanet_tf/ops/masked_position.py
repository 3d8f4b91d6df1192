"""The position output: planned, masked, or from explicit embeddings."""

import tensorflow as tf

from lambdanet_tf.ops import position
from lambdanet_tf.ops.content import apply_content_lambda
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.keys import sum_dtype
from lambdanet_tf.ops.nonfinite import finite
from lambdanet_tf.ops.nonfinite import poisoned_within_scope
from lambdanet_tf.ops.pairs import pair_embeddings
from lambdanet_tf.ops.pairs import relative_index
from lambdanet_tf.ops.pairwise import masked_pairs
from lambdanet_tf.ops.pairwise import pairwise_position_output
from lambdanet_tf.ops.position import ALGORITHMS
from lambdanet_tf.ops.position.choice import plan_for
from lambdanet_tf.ops.position.cost import Dims
from lambdanet_tf.ops.position.cost import Plan
from lambdanet_tf.ops.precision import factor_dtype


def position_output(
    queries,
    values,
    embeddings,
    geometry=None,
    implementation="auto",
    attention_mask=None,
    causal=False,
    query_mask=None,
    context_mask=None,
):
    """Computes what the queries read from their position lambdas.

    Args:
        queries: `(batch, n, heads, key_dim)`, query positions flattened
            row-major.
        values: `(batch, m, value_dim, intra_depth)`, likewise.
        embeddings: with a geometry the table of relative positions, `(*entries,
            key_dim, intra_depth)`, entry `center + (m - n)` per axis. Without,
            the embedding of every pair, `(n, m, key_dim, intra_depth)` or with
            a leading batch axis.
        geometry: a `Geometry`, or None.
        implementation: one of `implementations()`, or a `Plan`; of a table
            without a mask.
        attention_mask: None or boolean `(n, m)` or `(batch, n, m)`; True =
            may interact. With a geometry it needs static sizes.
        causal: bool. Whether query n sees positions up to n only. With a
            geometry, which then says so itself, whether later positions
            change no bit of it: NaN is kept from it, and algorithms that
            would mix positions give way to another.
        query_mask: None or boolean `(batch, n)`; False = padding, where given
            embeddings may be NaN or infinity.
        context_mask: None or boolean `(batch, m)`, likewise.

    Returns:
        `(batch, n, heads, value_dim)`.

    Raises:
        ValueError: if `implementation` is unknown, or if it or the mask needs
            static sizes that `geometry` does not have.
    """
    if geometry is None:
        if causal:
            n, m = size(queries, 1), size(values, 1)
            mask = tf.ones([n, m], tf.bool)
            if attention_mask is not None:
                mask = attention_mask
            attention_mask = tf.linalg.band_part(mask, -1, 0)
        return pairwise_position_output(
            queries,
            values,
            embeddings,
            attention_mask,
            query_mask,
            context_mask,
        )
    if attention_mask is not None:
        return _masked(queries, values, embeddings, geometry, attention_mask)
    if not (causal or geometry.is_causal):
        plan = _plan(queries, values, geometry, implementation)
        return position.position_output(
            queries, values, embeddings, geometry, plan
        )
    # An algorithm may multiply what comes later by zero.
    values, bad = finite(values)
    plan = _plan(queries, values, geometry, implementation)
    if ALGORITHMS[plan.algorithm].mixes_positions and not geometry.is_causal:
        plan = _without_mixing(plan, queries, values, geometry)
    outputs = position.position_output(
        queries, values, embeddings, geometry, plan
    )
    return poisoned_within_scope(outputs, bad, geometry.axes[0])


def lambda_output(
    queries, values, embeddings, content, geometry=None, implementation="auto"
):
    """Computes what the queries read from content plus position lambdas.

    The paper's lambda_n = lambda_c + lambda_p_n (Equation 1), without masks.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        values: as in `position_output`.
        embeddings: as in `position_output`.
        content: the content lambda, `(batch, key_dim, value_dim)`.
        geometry: as in `position_output`.
        implementation: as in `position_output`.

    Returns:
        `(batch, n, heads, value_dim)`.
    """
    plan = None
    if geometry is not None:
        plan = _plan(queries, values, geometry, implementation)
        if ALGORITHMS[plan.algorithm].reads_content:
            return position.position_output(
                queries, values, embeddings, geometry, plan, content
            )
    outputs = position_output(queries, values, embeddings, geometry, plan)
    return apply_content_lambda(queries, content) + outputs


def position_bias_output(queries, bias):
    """Computes what the queries read from a bias of the position lambdas.

    The bias is the same for all positions, value channels and examples.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        bias: `(key_dim,)`, or `(heads * key_dim,)` for one per head.

    Returns:
        `(batch, n, heads, 1)`.
    """
    bias = tf.reshape(bias, [-1, queries.shape[-1]])
    # No `tf.einsum`: TFLite's converter writes a wrong one for unknown sizes.
    dtype = sum_dtype(queries.dtype)
    products = tf.cast(queries, dtype) * tf.cast(bias, dtype)
    outputs = tf.reduce_sum(products, axis=-1, keepdims=True)
    return tf.cast(outputs, queries.dtype)


def _plan(queries, values, geometry, implementation):
    if isinstance(implementation, Plan):
        return implementation
    dims = Dims(*queries.shape[-2:], *values.shape[-2:])
    return plan_for(geometry, dims, implementation, batch=values.shape[0])


def _without_mixing(plan, queries, values, geometry):
    """The best plan of an algorithm that leaves positions apart."""
    for other in plan.alternatives:
        if not ALGORITHMS[other.algorithm].mixes_positions:
            return other
    return _plan(queries, values, geometry, "lambda_first")


def _masked(queries, values, table, geometry, attention_mask):
    if not geometry.is_static:
        raise ValueError(
            "`attention_mask` needs a `geometry` of static sizes. Received: "
            "sizes that are known at run time only."
        )
    inside = relative_index(geometry) >= 0
    pairs = pair_embeddings(table, geometry, factor_dtype(values.dtype))
    return masked_pairs(queries, values, pairs, attention_mask & inside)
