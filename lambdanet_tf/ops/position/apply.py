"""Position lambdas, applied to the queries."""

import math

import tensorflow as tf


def apply_each(queries, lambdas):
    """Applies to every query position its own lambda.

    oneDNN is faster with one axis of matrices than with several.

    Args:
        queries: `(*positions, heads, key_dim)`.
        lambdas: `(*positions, key_dim, value_dim)`.

    Returns:
        `(positions, heads, value_dim)`.
    """
    queries = tf.reshape(queries, [-1, *queries.shape[-2:]])
    return tf.matmul(queries, tf.reshape(lambdas, [-1, *lambdas.shape[-2:]]))


def apply_lambdas(queries, lambdas, blocks):
    """Applies the lambdas of blocks to the queries.

    Args:
        queries: `(batch, n, heads, key_dim)`.
        lambdas: `(batch, blocks, queries of a block, key_dim, value_dim)`.
        blocks: `Blocks`.

    Returns:
        `(batch, n, heads, value_dim)`.
    """
    outputs = apply_each(blocks.query_blocks(queries), lambdas)
    shape = [-1, math.prod(blocks.counts), blocks.queries, *outputs.shape[1:]]
    return blocks.joined(tf.reshape(outputs, shape))
