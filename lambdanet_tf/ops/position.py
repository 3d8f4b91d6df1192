"""The position output: planned, masked, or from explicit embeddings."""

import tensorflow as tf

from lambdanet_tf.ops.batch_last import batch_last
from lambdanet_tf.ops.block_products import lambda_first
from lambdanet_tf.ops.block_products import query_first
from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.content import apply_content_lambda
from lambdanet_tf.ops.convolution import conv2d
from lambdanet_tf.ops.convolution import depthwise
from lambdanet_tf.ops.convolution import unfolded
from lambdanet_tf.ops.einsum import einsum
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.keys import sum_dtype
from lambdanet_tf.ops.nonfinite import finite
from lambdanet_tf.ops.nonfinite import poisoned_within_scope
from lambdanet_tf.ops.pairs import pair_embeddings
from lambdanet_tf.ops.pairs import relative_index
from lambdanet_tf.ops.pairwise import masked_pairs
from lambdanet_tf.ops.pairwise import pairwise_position_output
from lambdanet_tf.ops.plan import Dims
from lambdanet_tf.ops.plan import Plan
from lambdanet_tf.ops.plan import plan_for
from lambdanet_tf.ops.plan import target_device
from lambdanet_tf.ops.precision import factor_dtype
from lambdanet_tf.ops.spectral import spectral
from lambdanet_tf.ops.spectral_batch_last import spectral_batch_last

# What reads a geometry as it is, and what reads it in blocks.
_WHOLE = {
    "einsum": einsum,
    "conv2d": conv2d,
    "depthwise": depthwise,
    "unfolded": unfolded,
}
_BLOCKED = {
    "lambda_first": lambda_first,
    "query_first": query_first,
    "batch_last": batch_last,
    "spectral": spectral,
    "spectral_batch_last": spectral_batch_last,
}

# What adds up later positions and takes them off again, to rounding, where a
# geometry is not causal by itself.
_MIXING = ("spectral", "spectral_batch_last")

# What reads the content lambda as well; made for TPUs.
_WITH_CONTENT = ("batch_last", "spectral_batch_last")

# Whose gradients add up shifted copies, in the dtype of these.
_WIDE = ("depthwise", "unfolded")


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
        implementation: one of `IMPLEMENTATIONS`, or a `Plan`; of a table
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
        return _planned(queries, values, embeddings, geometry, implementation)
    # An algorithm may multiply what comes later by zero.
    values, bad = finite(values)
    plan = _plan(queries, values, geometry, implementation)
    if plan.algorithm in _MIXING and not geometry.is_causal:
        plan = _without_mixing(plan, queries, values, geometry)
    outputs = _planned(queries, values, embeddings, geometry, plan)
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
        if plan.algorithm in _WITH_CONTENT:
            return _computed(
                plan, queries, values, embeddings, geometry, content
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


def _planned(queries, values, table, geometry, implementation):
    plan = _plan(queries, values, geometry, implementation)
    return _computed(plan, queries, values, table, geometry)


def _computed(plan, queries, values, table, geometry, *content):
    """Runs a plan, with sums over positions in float32 or wider."""
    dtype = values.dtype
    wide = plan.algorithm in _WIDE or (
        plan.algorithm in _WITH_CONTENT and target_device() != "tpu"
    )
    inner = sum_dtype(dtype) if wide else factor_dtype(dtype)
    queries, values, *content = (
        tf.cast(x, inner) for x in (queries, values, *content)
    )
    values, table = _on_grid(values, table, geometry)
    if plan.algorithm in _WHOLE:
        outputs = _WHOLE[plan.algorithm](queries, values, table, geometry)
    else:
        blocks = Blocks.of(geometry, plan.sizes)
        algorithm = _BLOCKED[plan.algorithm]
        outputs = algorithm(queries, values, table, blocks, *content)
    return tf.cast(outputs, dtype)


def _plan(queries, values, geometry, implementation):
    if isinstance(implementation, Plan):
        return implementation
    dims = Dims(*queries.shape[-2:], *values.shape[-2:])
    return plan_for(geometry, dims, implementation, batch=values.shape[0])


def _without_mixing(plan, queries, values, geometry):
    """The best plan of an algorithm that leaves positions apart."""
    for other in plan.alternatives:
        if other.algorithm not in _MIXING:
            return other
    return _plan(queries, values, geometry, "lambda_first")


def _on_grid(values, table, geometry):
    """`(batch, *context, value_dim, intra_depth)`, and the table cropped."""
    shape = [-1, *geometry.context, *values.shape[-2:]]
    return tf.reshape(values, shape), geometry.crop(table)


def _masked(queries, values, table, geometry, attention_mask):
    if not geometry.is_static:
        raise ValueError(
            "`attention_mask` needs a `geometry` of static sizes. Received: "
            "sizes that are known at run time only."
        )
    inside = relative_index(geometry) >= 0
    pairs = pair_embeddings(table, geometry, factor_dtype(values.dtype))
    return masked_pairs(queries, values, pairs, attention_mask & inside)
