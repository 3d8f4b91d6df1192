"""Attention with relative positions as sums, written out, in float64 NumPy.

The reference for `RelativeAttention`, beside `oracle.py` and with its letters.
"""

import numpy as np

from tests.support import oracle


def embedding(weights, query, position, sizes, scopes, axes):
    """The embedding [k] of a position seen from a query; None out of scope.

    `query` and `position` are coordinates on the whole grid, `axes` those
    along which positions see each other.
    """
    index = [
        oracle.table_index(query[a], position[a], sizes[a], scope, 1, "same")
        for a, scope in zip(axes, scopes, strict=True)
    ]
    if None in index:
        return None
    if "embeddings" in weights:
        return weights["embeddings"][tuple(index)][..., 0]
    tables = [weights.get(f"axis{a + 1}_embedding") for a in axes]
    pairs = zip(tables, index, strict=True)
    return sum(table[i][..., 0] for table, i in pairs if table is not None)


def relative_attention(
    inputs,
    weights,
    *,
    num_heads,
    scope=None,
    axis=None,
    use_content=True,
    causal=False,
    context=None,
    attention_mask=None,
    context_mask=None,
):
    """The whole layer, from inputs [b, *spatial, c] to [b, *spatial, h*v].

    Args:
        weights: "query" [c, h*k], "key" [c, h*k], "value" [c, h*v], and
            "embeddings" [*relative, k, 1], or "axis1_embedding" [relative, k,
            1] and so on, or none.
        axis: the axis of the inputs along which positions see each other.
        attention_mask: as that of `oracle.lambda_layer`; coordinates along
            `axis` if there is one.
        context_mask: [b, *spatial]; 1 = real.
    """
    sizes = inputs.shape[1:-1]
    context = inputs if context is None else context
    axes = range(len(sizes)) if axis is None else [axis - 1]
    scopes = oracle.per_axis(scope, len(axes))
    places = list(np.ndindex(*sizes))
    positions = list(np.ndindex(*context.shape[1:-1]))
    tied = scope is not None or axis is not None or causal
    tied = tied or any("embedding" in name for name in weights)
    real = oracle.real_positions(context_mask, len(inputs), len(positions))

    def heads(name, x):
        flat = oracle.flatten(x) @ weights[name]
        return flat.reshape(*flat.shape[:2], num_heads, -1)

    queries, values = heads("query", inputs), heads("value", context)
    queries = queries / np.sqrt(queries.shape[-1])
    keys = heads("key", context) if use_content else None

    def mask(b, n, m):
        if attention_mask is None:
            return True
        if axis is not None:
            n, m = places[n][axis - 1], positions[m][axis - 1]
        own = attention_mask
        if own.ndim == 3:
            own = own[b % len(own)]
        return own[n % len(own), m]

    def seen(b, n, m):
        """The embedding (or 0) if query n may see m, else None."""
        if not (real[b, m] and mask(b, n, m)):
            return None
        if not tied:
            return 0.0
        query, position = places[n], positions[m]
        others = [a for a in range(len(sizes)) if a not in axes]
        if any(query[a] != position[a] for a in others):
            return None
        if causal and position[axes[0]] > query[axes[0]]:
            return None
        return embedding(weights, query, position, sizes, scopes, axes)

    def output(b, n):
        """The output [h, v] of one query."""
        pairs = [(m, seen(b, n, m)) for m in range(len(positions))]
        pairs = [(m, e) for m, e in pairs if e is not None]
        if not pairs:
            return np.zeros(values.shape[2:])
        scores = []
        for m, e in pairs:
            vectors = e + (keys[b, m] if use_content else 0.0)  # [h or none, k]
            scores.append((queries[b, n] * vectors).sum(axis=-1))
        shares = oracle.softmax(np.stack(scores))  # [m, h]
        seen_values = values[b, [m for m, _ in pairs]]  # [m, h, v]
        return (shares[..., None] * seen_values).sum(axis=0)

    outputs = [output(b, n) for b, n in np.ndindex(*queries.shape[:2])]
    return np.reshape(outputs, [len(inputs), *sizes, -1])
