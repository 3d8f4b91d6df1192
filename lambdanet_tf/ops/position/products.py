"""Lambdas first or queries first: dense matrix products, block by block.

Letters added to those of the package: t queries of a block, s its context, x
blocks of a map.
"""

import dataclasses
import math

import tensorflow as tf

from lambdanet_tf.ops.blocks import block_choices
from lambdanet_tf.ops.blocks import transpose
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.pairs import pair_embeddings
from lambdanet_tf.ops.position.cost import Algorithm


def lambda_first(queries, values, table, blocks):
    """Position lambdas first, as the product of one table with all values.

    Args and returns as in `Algorithm.run`.

    Cost: 2 b n s k u v operations for blocks with a context of s positions,
    and 2 b n h k v; intermediate b n k v.
    """
    (value_dim, intra), key_dim = values.shape[-2:], table.shape[-2]
    batch, counts = size(values, 0), math.prod(blocks.counts)
    # Gathered with the context first, which saves a transposition.
    kernel = pair_embeddings(
        table, blocks.inner, values.dtype, context_first=True
    )  # [s, t, k, u]
    if intra > 1:
        kernel = tf.transpose(kernel, [0, 3, 1, 2])
    depth, rank = blocks.context * intra, blocks.rank
    windows = blocks.windows(values)  # [b, (x, s) per axis, v, u]
    order = [*range(2, 2 * rank + 1, 2), 2 * rank + 2]
    order += [0, *range(1, 2 * rank, 2), 2 * rank + 1]
    windows = transpose(windows, order)  # [s, u, b, x, v]
    lambdas = tf.matmul(
        tf.reshape(kernel, [depth, -1]),
        tf.reshape(windows, [depth, -1]),
        transpose_a=True,
    )  # [t * k, b * x * v]
    lambdas = tf.reshape(
        lambdas, [blocks.queries, key_dim, batch, counts, value_dim]
    )
    lambdas = tf.transpose(lambdas, [2, 3, 0, 1, 4])  # [b, x, t, k, v]
    return blocks.apply(queries, lambdas)


def query_first(queries, values, table, blocks):
    """Queries first: a score for every pair of a block, then values.

    Args and returns as in `Algorithm.run`.

    Cost: 2 b n s h u (k + v) operations for blocks with a context of s
    positions; intermediate b n h s u.
    """
    heads, key_dim = queries.shape[-2:]
    intra, counts = values.shape[-1], math.prod(blocks.counts)
    queries = tf.reshape(
        blocks.query_blocks(queries), [-1, blocks.queries, heads, key_dim]
    )  # [b * x, t, h, k]
    kernel = pair_embeddings(table, blocks.inner, values.dtype)  # [t, s, k, u]
    if intra > 1:
        kernel = tf.transpose(kernel, [0, 1, 3, 2])
    depth = blocks.context * intra
    kernel = tf.reshape(kernel, [blocks.queries, depth, key_dim])
    context = blocks.context_blocks(values)  # [b, x, s, v, u]
    if intra > 1:
        context = tf.transpose(context, [0, 1, 2, 4, 3])
    context = tf.reshape(context, [-1, depth, values.shape[-2]])
    # Heads stay an axis of their own: where they are merged with another one
    # before a product, a TPU's compiler copies all scores around each product.
    queries = tf.transpose(queries, [1, 0, 2, 3])
    scores = tf.einsum("tbhk,tsk->tbhs", queries, kernel)
    scores = tf.transpose(scores, [1, 0, 2, 3])
    outputs = tf.einsum("bths,bsv->bthv", scores, context)
    outputs = tf.reshape(
        outputs, [-1, counts, blocks.queries, heads, values.shape[-2]]
    )
    return blocks.joined(outputs)


def _lambda_first_costs(geometry, dims, new_cost):
    h, k, v, u = dataclasses.astuple(dims)
    for blocks in block_choices(geometry):
        x, t, s = math.prod(blocks.counts), blocks.queries, blocks.context
        cost = new_cost()
        cost.cut(blocks, u * v, h * k + h * v, last=v)
        cost.product(t * k, s * u, x * v)
        cost.product(t * x * h, k, v)
        cost.move(x * t * k * v, 4, last=v)
        cost.gather_table(t * s * k * u)
        cost.hold(x * s * u * v, 2, 4)
        cost.hold(x * t * k * v, 2, 4)
        yield cost.plan(blocks.sizes, x * t * k * v)


def _query_first_costs(geometry, dims, new_cost):
    h, k, v, u = dataclasses.astuple(dims)
    for blocks in block_choices(geometry):
        x, t, s = math.prod(blocks.counts), blocks.queries, blocks.context
        cost = new_cost()
        cost.cut(blocks, u * v, h * k + h * v, last=v)
        cost.product(x * t * h, k, s * u)
        cost.product(x * t * h, s * u, v)
        cost.move(x * t * h * s * u, 4, last=s * u)
        cost.gather_table(t * s * k * u)
        cost.hold(x * s * u * v, 2, 4)
        cost.hold(x * t * h * s * u, 2, 4)
        yield cost.plan(blocks.sizes, x * t * h * s * u)


LAMBDA_FIRST = Algorithm(
    run=lambda_first,
    costs=_lambda_first_costs,
    blocked=True,
    devices=("cpu", "gpu", "tpu", "portable"),
)
QUERY_FIRST = Algorithm(
    run=query_first,
    costs=_query_first_costs,
    blocked=True,
    devices=("cpu", "gpu", "tpu", "portable"),
)
