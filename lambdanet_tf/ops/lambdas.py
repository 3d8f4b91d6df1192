"""The equation of lambda layers.

    Y[b, n, h, v]       = sum over k of  Q[b, n, h, k] lambda[b, n, k, v]
    lambda[b, n, k, v]  = sum over m, u of  norm(K)[b, m, k, u] V[b, m, v, u]
                        + sum over m, u of  E[n, m, k, u] V[b, m, v, u]
                        + bias[k]

The content lambda, the position lambda (Equation 1 of the paper) and a bias of
timm's, each of which may be left out. Heads share a lambda, or are groups of
one head with keys, values and embeddings of their own.
"""

import tensorflow as tf

from lambdanet_tf.ops.content import apply_content_lambda
from lambdanet_tf.ops.content import content_lambda
from lambdanet_tf.ops.content_causal import causal_content_output
from lambdanet_tf.ops.content_causal import causal_content_step
from lambdanet_tf.ops.content_masked import masked_content_output
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.masks import Masks
from lambdanet_tf.ops.masks import masked_fill
from lambdanet_tf.ops.masks import propagate_nan
from lambdanet_tf.ops.masks import seen_within_scope
from lambdanet_tf.ops.masks import split_nonfinite
from lambdanet_tf.ops.pairs import explicit_output
from lambdanet_tf.ops.pairs import pair_embeddings
from lambdanet_tf.ops.pairs import pair_output
from lambdanet_tf.ops.pairs import relative_index
from lambdanet_tf.ops.position import ALGORITHMS
from lambdanet_tf.ops.position import position_output
from lambdanet_tf.ops.position.choice import plan_for
from lambdanet_tf.ops.position.cost import Dims
from lambdanet_tf.ops.position.cost import Plan
from lambdanet_tf.ops.precision import accumulation_dtype
from lambdanet_tf.ops.precision import factor_dtype

_UNMASKED = Masks()


def lambda_output(
    queries,
    keys,
    values,
    embeddings,
    geometry=None,
    plan="auto",
    normalization="softmax",
    masks=_UNMASKED,
    position_bias=None,
):
    """Computes what the queries read from their lambdas.

    Args:
        queries: `(batch, n, heads, key_dim)`, positions flattened row-major.
        keys: `(batch, m, groups, key_dim, intra_depth)`, before normalization,
            or None for no content lambda. One group, or one for each head.
        values: `(batch, m, groups, value_dim, intra_depth)`.
        embeddings: None for no position lambda. With a geometry the table of
            relative positions, `(*entries, [groups,] key_dim, intra_depth)`,
            entry `center + (m - n)` per axis. Without, the embedding of every
            pair, `([batch,] n, m, [groups,] key_dim, intra_depth)`. No axis
            for one group.
        geometry: a `Geometry`, or None.
        plan: a `Plan`, or one of `implementations()`; of a table.
        normalization: one of `KEY_NORMALIZATIONS`, over the positions that a
            query may see.
        masks: `Masks`. With `causal`, query n sees what is up to position
            `n * stride` of the geometry.
        position_bias: None, or `(groups * key_dim,)`.

    Returns:
        `(batch, n, heads, value_dim)`; zero, but for the bias, where nothing
        is permitted.

    Raises:
        ValueError: if the plan or a mask needs static sizes that `geometry`
            does not have.
    """
    values = masked_fill(values, masks.permitted)
    groups = _groups(queries, keys, values, embeddings, masks.by_head)
    outputs = [
        _read(*group, geometry, plan, normalization, masks.of_head(head))
        for head, group in enumerate(groups)
    ]
    return _with_bias(_joined(outputs), queries, position_bias)


def lambda_step(
    queries,
    keys,
    values,
    embeddings,
    state,
    geometry,
    plan="auto",
    normalization="softmax",
    masks=_UNMASKED,
    position_bias=None,
):
    """As `lambda_output`, of the next positions of a causal sequence.

    Args:
        queries: of the n new positions, or of every `stride`-th of them.
        keys: of the new positions, or None.
        values: of the new positions.
        embeddings: the table, or None.
        state: of the positions before: with keys what `content_state_spec`
            says, with an axis of groups behind the batch; with a table of
            more than one entry "values", the last before the new ones.
        geometry: a `Geometry` of the values kept and the new ones.
        plan: as there.
        normalization: as there.
        masks: `Masks` of the new positions.
        position_bias: as there.

    Returns:
        `(batch, n / stride, heads, value_dim)`, and the next state.
    """
    sums, length = dict(state), size(values, 1)
    window = sums.pop("values", None)
    values = masked_fill(values, masks.permitted)
    if window is not None:
        values = tf.concat([window, values], axis=1)
    stride, outputs, after = geometry.strides[0], [], []
    groups = _groups(queries, keys, values, embeddings)
    for group, (q, k, v, e) in enumerate(groups):
        parts = []
        if k is not None:
            part, sums_of_group = causal_content_step(
                _at_positions(q, stride),
                k,
                v[:, size(v, 1) - length :],
                {name: x[:, group] for name, x in sums.items()},
                normalization,
                masks.context,
            )
            after += [sums_of_group]
            parts += [part[:, ::stride]]
        if e is not None:
            parts += [_position_output(q, v, e, geometry, plan, masks)]
        outputs += [tf.add_n(parts)]
    state = {
        name: tf.stack([group[name] for group in after], axis=1)
        for name in sums
    }
    if window is not None:
        state["values"] = values[:, length:]
    return _with_bias(_joined(outputs), queries, position_bias), state


def _read(
    queries, keys, values, embeddings, geometry, plan, normalization, masks
):
    """What heads read that share a lambda: content plus position."""
    if keys is None:
        return _position_output(
            queries, values, embeddings, geometry, plan, masks
        )
    if embeddings is not None and not masks.differs:
        plan = _planned(plan, queries, values, geometry)
        if plan is not None and ALGORITHMS[plan.algorithm].reads_content:
            content = content_lambda(
                keys, values, normalization, masks.permitted
            )
            return position_output(
                queries, values, embeddings, geometry, plan, content
            )
    content = _content_output(
        queries, keys, values, geometry, normalization, masks
    )
    if embeddings is None:
        return content
    return content + _position_output(
        queries, values, embeddings, geometry, plan, masks
    )


def _content_output(queries, keys, values, geometry, normalization, masks):
    """What the queries read from a content lambda that they share, or not."""
    if masks.attention:
        pairs = masks.pairs(size(queries, 1), size(keys, 1))
        if masks.permitted is not None:
            pairs &= tf.expand_dims(masks.permitted, 1)
        return masked_content_output(
            queries, keys, values, pairs, normalization, masks.causal
        )
    if masks.causal:
        stride = 1 if geometry is None else geometry.strides[0]
        queries = _at_positions(queries, stride)[:, : size(keys, 1)]
        outputs = causal_content_output(
            queries, keys, values, normalization, masks.permitted
        )
        return outputs[:, ::stride]
    content = content_lambda(keys, values, normalization, masks.permitted)
    return apply_content_lambda(queries, content)


def _position_output(queries, values, embeddings, geometry, plan, masks):
    """What the queries read from their position lambdas."""
    if geometry is None:
        return explicit_output(queries, values, embeddings, masks)
    if masks.attention:
        if not geometry.is_static:
            raise ValueError(
                "`attention_mask` needs a `geometry` of static sizes. "
                "Received: sizes that are known at run time only."
            )
        pairs = masks.attention[0] & (relative_index(geometry) >= 0)
        embeddings = pair_embeddings(
            embeddings, geometry, factor_dtype(values.dtype)
        )
        return pair_output(queries, values, embeddings, pairs)
    plan = _planned(plan, queries, values, geometry)
    if not (masks.causal or geometry.is_causal):
        return position_output(queries, values, embeddings, geometry, plan)
    # An algorithm may multiply what comes later by zero.
    values, nonfinite = split_nonfinite(values)
    if not geometry.is_causal:
        plan = _without_mixing(plan, queries, values, geometry)
    outputs = position_output(queries, values, embeddings, geometry, plan)
    return propagate_nan(
        outputs, seen_within_scope(geometry.axes[0], nonfinite)
    )


def _planned(plan, queries, values, geometry):
    """The plan of a table; None without."""
    if geometry is None:
        return None
    if isinstance(plan, Plan):
        return plan
    dims = Dims(*queries.shape[-2:], *values.shape[-2:])
    return plan_for(geometry, dims, plan, batch=values.shape[0])


def _without_mixing(plan, queries, values, geometry):
    """The best plan of an algorithm that adds up no later positions.

    One that does takes them off again, to rounding.
    """
    for other in (plan, *plan.alternatives):
        if not ALGORITHMS[other.algorithm].mixes_positions:
            return other
    return _planned("lambda_first", queries, values, geometry)


def _groups(queries, keys, values, embeddings, by_head=False):
    """Queries, and the keys, values and embeddings that they share, as lists.

    One group, whose axis goes, or one for each head.
    """
    count = values.shape[2]
    if count == 1:
        keys, values = (
            None if x is None else tf.reshape(x, [-1, size(x, 1), *x.shape[3:]])
            for x in (keys, values)
        )
        heads = tf.split(queries, queries.shape[2], 2) if by_head else [queries]
        return [(head, keys, values, embeddings) for head in heads]
    return [
        (
            queries[:, :, head : head + 1],
            None if keys is None else keys[:, :, head],
            values[:, :, head],
            None if embeddings is None else embeddings[..., head, :, :],
        )
        for head in range(count)
    ]


def _joined(outputs):
    return outputs[0] if len(outputs) == 1 else tf.concat(outputs, axis=2)


def _at_positions(queries, stride):
    """`(batch, n, ...)` -> `(batch, n * stride, ...)`, repeated."""
    return queries if stride == 1 else tf.repeat(queries, stride, axis=1)


def _with_bias(outputs, queries, bias):
    """Adds what the queries read from the bias, the same in all channels."""
    if bias is None:
        return outputs
    # No `tf.einsum`: TFLite's converter writes a wrong one for unknown sizes.
    dtype = accumulation_dtype(queries.dtype)
    bias = tf.reshape(tf.cast(bias, queries.dtype), [-1, queries.shape[-1]])
    products = tf.cast(queries, dtype) * tf.cast(bias, dtype)
    read = tf.reduce_sum(products, axis=-1, keepdims=True)  # [b, n, h, 1]
    return outputs + tf.cast(read, queries.dtype)
