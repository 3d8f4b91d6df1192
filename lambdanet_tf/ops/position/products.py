"""Lambdas first or queries first: dense matrix products, block by block.

Further letters: t queries of a block, s context positions of a block, x blocks
of a map.
"""

import itertools
import math

import tensorflow as tf

from lambdanet_tf.ops.blocks import intra_first
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.pairs import pair_embeddings


def lambda_first(queries, values, table, blocks):
    """Multiplies one table by all values, then applies the position lambdas.

    Cost: 2 b n s k u v + 2 b n h k v operations for blocks that see s
    positions; intermediate b n k v.
    """
    (value_dim, intra), key_dim = values.shape[-2:], table.shape[-2]
    batch, counts = size(values, 0), math.prod(blocks.counts)
    # With the context first, which saves a transposition.
    kernel = pair_embeddings(
        table, blocks.inner, values.dtype, context_first=True
    )  # [s, t, k, u]
    if intra > 1:
        kernel = tf.transpose(kernel, [0, 3, 1, 2])
    depth, rank = blocks.context * intra, blocks.rank
    windows = blocks.windows(intra_first(values))  # [b, (x, s) per axis, u * v]
    pairs = zip(blocks.counts, blocks.inner.context, strict=True)
    *sizes, last = itertools.chain(*pairs)
    windows = tf.reshape(windows, [-1, *sizes, last * intra, value_dim])
    order = [*range(2, 2 * rank + 1, 2), 0, *range(1, 2 * rank, 2)]
    windows = tf.transpose(windows, [*order, 2 * rank + 1])  # [s, u, b, x, v]
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
    """Scores every pair of a block, then multiplies by the values.

    Cost: 2 b n s h u (k + v) operations for blocks that see s positions;
    intermediate b n h s u.
    """
    heads, key_dim = queries.shape[-2:]
    (value_dim, intra), counts = values.shape[-2:], math.prod(blocks.counts)
    depth = blocks.context * intra
    queries = tf.reshape(
        blocks.query_blocks(queries), [-1, blocks.queries, heads, key_dim]
    )  # [b * x, t, h, k]
    kernel = pair_embeddings(table, blocks.inner, values.dtype)  # [t, s, k, u]
    if intra > 1:
        kernel = tf.transpose(kernel, [0, 1, 3, 2])
    kernel = tf.reshape(kernel, [blocks.queries, depth, key_dim])
    context = blocks.context_blocks(intra_first(values))  # [b, x, s, u * v]
    context = tf.reshape(context, [-1, depth, value_dim])
    # We keep the axis of heads. If it is merged with another one before a
    # product, the TPU compiler copies all scores around each product.
    queries = tf.transpose(queries, [1, 0, 2, 3])
    scores = tf.einsum("tbhk,tsk->tbhs", queries, kernel)
    scores = tf.transpose(scores, [1, 0, 2, 3])
    outputs = tf.einsum("bths,bsv->bthv", scores, context)
    outputs = tf.reshape(
        outputs, [-1, counts, blocks.queries, heads, value_dim]
    )
    return blocks.joined(outputs)
