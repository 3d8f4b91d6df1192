"""The lambda layer as sums over positions, written out, in float64 NumPy.

Every implementation is compared with it. Written from the paper (Bello, 2021,
section 3), importing nothing from the package; slow on purpose: a loop over
queries n, and one over context positions m.

Everything also works on complex numbers and is analytic in them, so that
`directional_derivative` is exact: no finite difference.

Letters: b batch, n query, m context position, h heads, k key depth, v value
depth, u intra-depth, c channels. Positions are flattened row-major.
"""

import itertools

import numpy as np


def softmax(logits):
    """Softmax over the first axis."""
    exponentials = np.exp(logits - logits.real.max(axis=0))
    return exponentials / exponentials.sum(axis=0)


def l2(keys):
    """Keys over their Euclidean length along the first axis; 0 stays 0."""
    length = np.sqrt((keys**2).sum(axis=0))
    return keys / np.where(length == 0, 1.0, length)


NORMALIZATIONS = {"softmax": softmax, "l2": l2, None: lambda keys: keys}


def batch_norm(x, weights, name, *, epsilon, training, real):
    """Normalises [b, p, c] over its channels; `real` [b, p] marks data."""
    if f"{name}_gamma" not in weights:
        return x
    mean = weights[f"{name}_mean"]
    variance = weights[f"{name}_variance"]
    if training:
        mean, variance = batch_statistics(x, real)
    scale = weights[f"{name}_gamma"] / np.sqrt(variance + epsilon)
    return (x - mean) * scale + weights[f"{name}_beta"]


def batch_statistics(x, real):
    """Mean and (biased) variance of the rows of [b, p, c] that are real."""
    rows = x[real.astype(bool)]  # [rows, c]
    mean = rows.sum(axis=0) / len(rows)
    return mean, ((rows - mean) ** 2).sum(axis=0) / len(rows)


def per_axis(value, rank):
    return tuple(value) if isinstance(value, tuple | list) else (value,) * rank


def query_positions(size, kernel, stride, dilation, padding):
    """Where a Keras convolution centres its windows, along one axis."""
    if kernel is None:
        return list(range(size))
    reach = (kernel - 1) * dilation
    if padding == "causal":
        return list(range(0, size, stride))
    if padding == "valid":
        return [p + reach // 2 for p in range(0, size - reach, stride)]
    outputs = -(-size // stride)
    padded = max((outputs - 1) * stride + reach + 1 - size, 0)
    return [i * stride - padded // 2 + reach // 2 for i in range(outputs)]


def table_index(query, position, size, kernel, dilation, padding):
    """Entry of the table for m - n along one axis; None outside the scope."""
    offset = position - query
    if kernel is None:
        return size - 1 + offset
    if offset % dilation:
        return None
    centre = kernel - 1 if padding == "causal" else kernel // 2
    index = centre + offset // dilation
    return index if 0 <= index < kernel else None


def geometry(sizes, scope, strides, dilation, padding):
    """The grid of the queries, their coordinates, and a function `entry`.

    entry(n, m) is the index into the table of a pair, None out of scope.
    """
    rank = len(sizes)
    settings = (per_axis(value, rank) for value in (scope, strides, dilation))
    axes = list(zip(sizes, *settings, strict=True))
    centres = [query_positions(*axis, padding) for axis in axes]
    places = list(itertools.product(*centres))
    positions = list(np.ndindex(*sizes))

    def entry(n, m):
        index = tuple(
            table_index(query, position, size, kernel, dilated, padding)
            for query, position, (size, kernel, _, dilated) in zip(
                places[n], positions[m], axes, strict=True
            )
        )
        return None if None in index else index

    return tuple(len(axis) for axis in centres), places, entry


def flatten(x):
    """[b, *spatial, c] -> [b, positions, c]."""
    return x.reshape(x.shape[0], -1, x.shape[-1])


def real_positions(mask, batch, num_positions):
    """A padding mask [b, *spatial] or None, as booleans [b, positions]."""
    if mask is None:
        return np.ones([batch, num_positions], bool)
    return np.reshape(mask, [batch, num_positions]).astype(bool)


def lambda_layer(
    inputs,
    weights,
    *,
    num_heads,
    key_dim,
    intra_depth=1,
    scope=None,
    strides=1,
    dilation_rate=1,
    padding="same",
    use_content=True,
    use_position=True,
    causal=False,
    key_normalization="softmax",
    query_normalization=None,
    norm_epsilon=1e-3,
    training=False,
    context=None,
    attention_mask=None,
    context_mask=None,
    embeddings=None,
):
    """The whole layer, from inputs [b, *spatial, c] to [b, *spatial, h*v].

    Args:
        weights: "query" [c, h*k], "key" [c, k*u], "value" [c, v*u];
            "query_gamma", "_beta", "_mean", "_variance" and those of "value"
            when batch-normalised; "embeddings", the table [*relative, k, u];
            "position_bias" [k].
        attention_mask: [n, m] or [b, n, m]; 1 = may interact. A batch or a
            number of queries of 1 stands for all.
        context_mask: [b, *spatial]; 1 = real. Without a context it is that of
            the queries, too, which matters to batch statistics alone.
        embeddings: explicit [n, m, k] or [b, n, m, k], with u after it when
            deeper than 1; replaces the table.
    """
    query_mask = context_mask if context is None else None
    context = inputs if context is None else context
    shape, places, entry = geometry(
        inputs.shape[1:-1], scope, strides, dilation_rate, padding
    )
    order = np.ravel_multi_index(np.transpose(places), inputs.shape[1:-1])
    batch, num_context = len(inputs), flatten(context).shape[1]
    num_inputs = flatten(inputs).shape[1]
    real = real_positions(context_mask, batch, num_context)
    queried = real_positions(query_mask, batch, num_inputs)[:, order]
    key = key_dim, intra_depth
    settings = {"epsilon": norm_epsilon, "training": training}

    queries = flatten(inputs)[:, order] @ weights["query"]
    queries = batch_norm(queries, weights, "query", real=queried, **settings)
    queries = queries.reshape(batch, -1, num_heads, key_dim)
    if query_normalization == "softmax":
        queries = np.moveaxis(softmax(np.moveaxis(queries, -1, 0)), 0, -1)
    values = flatten(context) @ weights["value"]
    values = batch_norm(values, weights, "value", real=real, **settings)
    values = values.reshape(batch, num_context, -1, intra_depth)
    if use_content:
        keys = flatten(context) @ weights["key"]
        keys = keys.reshape(batch, num_context, *key)
        normalize = NORMALIZATIONS[key_normalization]
    if embeddings is not None:  # [b or 1, n, m, k, u]
        embeddings = embeddings.reshape(-1, len(places), num_context, *key)

    def embedding(b, n, m):
        """[k, u] between n and m; None out of scope."""
        if embeddings is not None:
            return embeddings[b if len(embeddings) > 1 else 0, n, m]
        if entry(n, m) is None:
            return None
        return weights["embeddings"][entry(n, m)].reshape(key)

    def permitted(b, n, m):
        if (causal or padding == "causal") and m > places[n][0]:
            return False
        if attention_mask is None:
            return real[b, m]
        own = attention_mask
        if own.ndim == 3:
            own = own[b % len(own)]
        return real[b, m] and own[n % len(own), m]

    def lambdas(b, n):
        """The lambda [k, v] of query n: content plus position."""
        allowed = [m for m in range(num_context) if permitted(b, n, m)]
        total = 0.0
        if use_content and allowed:
            normalized = normalize(keys[b, allowed])
            for share, m in zip(normalized, allowed, strict=True):
                total = total + share @ np.swapaxes(values[b, m], -1, -2)
        for m in allowed if use_position else []:
            if embedding(b, n, m) is not None:
                value = np.swapaxes(values[b, m], -1, -2)
                total = total + embedding(b, n, m) @ value
        if "position_bias" in weights:
            total = total + weights["position_bias"][:, None]
        return np.zeros([key_dim, values.shape[-2]]) + total

    outputs = [
        queries[b, n] @ lambdas(b, n) for b, n in np.ndindex(batch, len(places))
    ]
    return np.reshape(outputs, [batch, *shape, num_heads * values.shape[-2]])


def directional_derivative(function, point, direction):
    """d/dt function(point + t direction) at t = 0, exact to rounding.

    Of dicts of arrays; a name that is missing in `direction` stays fixed.
    """
    step = 1e-30
    moved = {n: point[n] + 1j * step * x for n, x in direction.items()}
    return np.imag(function(point | moved)) / step
