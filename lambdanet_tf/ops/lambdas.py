"""The equation of lambda layers.

    Y[b, n, h, v]       = sum over k of  Q[b, n, h, k] lambda[b, n, k, v]
    lambda[b, n, k, v]  = sum over m, u of  norm(K)[b, m, k, u] V[b, m, v, u]
                        + sum over m, u of  E[n, m, k, u] V[b, m, v, u]
                        + bias[k]

The content lambda, the position lambda (Equation 1 of the paper) and a bias of
timm's, each of which may be left out. All heads share a lambda.
"""

import tensorflow as tf

from lambdanet_tf.ops.content import content_output
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.masks import Masks
from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.masks import propagate_nan
from lambdanet_tf.ops.masks import seen_within_scope
from lambdanet_tf.ops.masks import split_nonfinite
from lambdanet_tf.ops.pairs import pair_output
from lambdanet_tf.ops.position import ALGORITHMS
from lambdanet_tf.ops.position import position_output
from lambdanet_tf.ops.position.choice import plan_for
from lambdanet_tf.ops.position.cost import Dims
from lambdanet_tf.ops.position.cost import Plan
from lambdanet_tf.ops.precision import accumulation_dtype

_UNMASKED = Masks()


def lambda_output(
    queries,
    keys,
    values,
    embeddings,
    geometry=None,
    plan: Plan | str | None = "auto",
    normalization: str | None = "softmax",
    masks=_UNMASKED,
    position_bias=None,
):
    """Computes what the queries read from their lambdas.

    Args:
        queries: `(batch, n, heads, key_dim)`, positions flattened row-major.
        keys: `(batch, m, key_dim, intra_depth)`, before normalization, or None
            for no content lambda.
        values: `(batch, m, value_dim, intra_depth)`.
        embeddings: None for no position lambda. With a geometry the table of
            relative positions, `(*entries, key_dim, intra_depth)`, entry
            `center + (m - n)` per axis. Without, the embedding of every pair,
            `([batch,] n, m, key_dim, intra_depth)`.
        geometry: a `Geometry`, or None.
        plan: a `Plan`, or one of `implementations()`; of a table.
        normalization: one of `KEY_NORMALIZATIONS`, over the positions that a
            query may see.
        masks: `Masks`. With `causal`, query n sees what is up to position
            `n * stride` of the geometry.
        position_bias: None, or `(key_dim,)`.

    Returns:
        `(batch, n, heads, value_dim)`; zero, but for the bias, where nothing
        is permitted.

    Raises:
        ValueError: if the plan or a mask needs static sizes that `geometry`
            does not have.

    Examples:
        >>> queries = tf.random.normal([2, 9, 4, 16])
        >>> keys = tf.random.normal([2, 9, 16, 1])
        >>> values = tf.random.normal([2, 9, 8, 1])
        >>> lambda_output(queries, keys, values, embeddings=None).shape
        TensorShape([2, 9, 4, 8])
    """
    outputs, _ = lambda_step(
        queries,
        keys,
        values,
        embeddings,
        geometry,
        plan,
        normalization,
        masks,
        position_bias,
    )
    return outputs


def lambda_step(
    queries,
    keys,
    values,
    embeddings,
    geometry=None,
    plan: Plan | str | None = "auto",
    normalization: str | None = "softmax",
    masks=_UNMASKED,
    position_bias=None,
    state=None,
):
    """Computes `lambda_output` for the next positions of a causal sequence.

    Args:
        queries: of the new positions, or of every `stride`-th of them; shapes
            as in `lambda_output`.
        keys: of the n new positions, and so are values and masks.
        values: see there.
        embeddings: see there.
        geometry: of the values kept and the new ones.
        plan: see there.
        normalization: see there.
        masks: see there.
        position_bias: see there.
        state: None, or of the positions before: with keys what
            `content_state_spec` says; with a table of more than one entry
            "values", the last before the new ones.

    Returns:
        `(batch, n / stride, heads, value_dim)`, and the next state.

    Examples:
        >>> queries = tf.random.normal([2, 9, 4, 16])
        >>> keys = tf.random.normal([2, 9, 16, 1])
        >>> values = tf.random.normal([2, 9, 8, 1])
        >>> outputs, state = lambda_step(
        ...     queries, keys, values, None, masks=ops.Masks(causal=True)
        ... )
        >>> outputs.shape
        TensorShape([2, 9, 4, 8])
    """
    sums, length = dict(state or {}), size(values, 1)
    window = sums.pop("values", None)
    values = masked_fill(values, masks.permitted)
    if window is not None:
        values = tf.concat([window, values], axis=1)
    outputs, states = [], []
    heads = [queries]
    if masks.by_head:
        heads = tf.split(queries, queries.shape[2], 2)
    for index, head in enumerate(heads):
        output, after = _group_output(
            head,
            keys,
            values,
            embeddings,
            geometry,
            plan,
            normalization,
            masks.of_head(index),
            state and sums,
        )  # [b, n, heads of one mask, v]
        outputs.append(output)
        states.append(after)
    state = dict(states[0] or {})
    if window is not None:
        state["values"] = values[:, length:]
    outputs = tf.concat(outputs, axis=2)  # [b, n, h, v]
    return _add_bias(outputs, queries, position_bias), state


def _group_output(
    queries,
    keys,
    values,
    embeddings,
    geometry,
    plan,
    normalization,
    masks,
    state,
):
    """What heads of one mask read, and the next state of the content.

    In a step, values begin with those that were kept.
    """
    if embeddings is not None and geometry is not None and not masks.attention:
        plan = _planned(plan, queries, values, geometry, masks.causal)
    outputs = []
    if keys is not None:
        stride = 1 if geometry is None else geometry.strides[0]
        kept = size(values, 1) - size(keys, 1)
        new = values if state is None else values[:, kept:]
        content, state = content_output(
            queries, keys, new, normalization, masks, stride, state
        )
        outputs += [content]
    if embeddings is not None:
        outputs += [
            _position_output(queries, values, embeddings, geometry, plan, masks)
        ]
    return tf.add_n(outputs), state


def _position_output(queries, values, embeddings, geometry, plan, masks):
    """What the queries read from their position lambdas."""
    if geometry is None or masks.attention:
        return pair_output(queries, values, embeddings, geometry, masks)
    if not (masks.causal or geometry.is_causal):
        return position_output(queries, values, embeddings, geometry, plan)
    # An algorithm may multiply what comes later by zero.
    values, nonfinite = split_nonfinite(values)
    outputs = position_output(queries, values, embeddings, geometry, plan)
    seen = seen_within_scope(geometry.axes[0], nonfinite)
    return propagate_nan(outputs, seen)


def _planned(plan, queries, values, geometry, causal):
    """The plan of a table.

    Where later positions are in its scope, none that mixes positions: it takes
    them off again, to rounding.
    """
    dims = Dims(*queries.shape[-2:], *values.shape[-2:])
    batch = values.shape[0]
    if not isinstance(plan, Plan):
        plan = plan_for(geometry, dims, plan, batch=batch)
    if not causal or geometry.is_causal:
        return plan
    for other in (plan, *plan.alternatives):
        if not ALGORITHMS[other.algorithm].mixes_positions:
            return other
    return plan_for(geometry, dims, "lambda_first", batch=batch)


def _add_bias(outputs, queries, bias):
    """Adds what the queries read from the bias, the same in all channels."""
    if bias is None:
        return outputs
    # No `tf.einsum`: TFLite's converter writes a wrong one for unknown sizes.
    dtype = accumulation_dtype(queries.dtype)
    bias = tf.cast(bias, queries.dtype)
    products = tf.cast(queries, dtype) * tf.cast(bias, dtype)
    read = tf.reduce_sum(products, axis=-1, keepdims=True)  # [b, n, h, 1]
    return outputs + tf.cast(read, queries.dtype)
