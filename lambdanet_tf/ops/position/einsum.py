"""The paper's listing: embeddings of all pairs, then two einsums."""

import dataclasses
import math

import tensorflow as tf

from lambdanet_tf.ops.pairs import pair_embeddings
from lambdanet_tf.ops.position.cost import Algorithm


def einsum(queries, values, table, geometry):
    """Computes the position output as the paper writes it (Figure 3).

    Args and returns as in `Algorithm.run`.

    Cost: 2 b n m k u v + 2 b n h k v operations; intermediates n m k u and
    b n k v.
    """
    embeddings = pair_embeddings(table, geometry, values.dtype)  # [n, m, k, u]
    shape = [tf.shape(values)[0], embeddings.shape[1], *values.shape[-2:]]
    values = tf.reshape(values, shape)  # [b, m, v, u]
    lambdas = tf.einsum("nmku,bmvu->bnkv", embeddings, values)
    return tf.einsum("bnkv,bnhk->bnhv", lambdas, queries)


def _costs(geometry, dims, new_cost):
    h, k, v, u = dataclasses.astuple(dims)
    n, m = math.prod(geometry.queries), math.prod(geometry.context)
    cost = new_cost()
    cost.product(n * k, m * u, v)
    cost.product(n * h, k, v)
    cost.move(n * k * v, 4)
    cost.gather_table(n * m * k * u)
    cost.hold(n * k * v, 2, 4)
    yield cost.plan((), n * k * v)


# The paper's order, to compare with: "auto" does not consider it.
EINSUM = Algorithm(run=einsum, costs=_costs)
