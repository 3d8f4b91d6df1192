"""Position outputs: the algorithms, and how one of them is run.

    Y[b, n, h, v] =
        sum over m, k, u of  Q[b, n, h, k] E[n, m, k, u] V[b, m, v, u]

is one trilinear form: every algorithm computes the same function, and they
differ by up to a hundred times in what that costs, depending on the geometry.
A file holds an algorithm and its cost; `choice` takes the one that is expected
to be the fastest.
"""

import tensorflow as tf

from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.position.convolution import CONV2D
from lambdanet_tf.ops.position.convolution import DEPTHWISE
from lambdanet_tf.ops.position.einsum import EINSUM
from lambdanet_tf.ops.position.fft import FFT
from lambdanet_tf.ops.position.fourier import FOURIER
from lambdanet_tf.ops.position.products import LAMBDA_FIRST
from lambdanet_tf.ops.position.products import QUERY_FIRST
from lambdanet_tf.ops.precision import factor_dtype

ALGORITHMS = {
    "einsum": EINSUM,
    "lambda_first": LAMBDA_FIRST,
    "query_first": QUERY_FIRST,
    "fourier": FOURIER,
    "fft": FFT,
    "conv2d": CONV2D,
    "depthwise": DEPTHWISE,
}


def position_output(queries, values, embeddings, geometry, plan):
    """Computes what the queries read from their position lambdas.

    Sums over positions run in float32 or wider.

    Args:
        queries: `(batch, n, heads, key_dim)`, query positions flattened
            row-major.
        values: `(batch, m, value_dim, intra_depth)`, likewise.
        embeddings: the table of relative positions, `(*entries, key_dim,
            intra_depth)`, entry `center + (m - n)` per axis.
        geometry: a `Geometry`.
        plan: a `Plan`.

    Returns:
        `(batch, n, heads, value_dim)`.
    """
    algorithm, dtype = ALGORITHMS[plan.algorithm], values.dtype
    inner = factor_dtype(dtype)
    queries, values = tf.cast(queries, inner), tf.cast(values, inner)
    shape = [-1, *geometry.context, *values.shape[-2:]]
    arguments = [queries, tf.reshape(values, shape), geometry.crop(embeddings)]
    arguments.append(
        Blocks.of(geometry, plan.sizes) if algorithm.blocked else geometry
    )
    return tf.cast(algorithm.run(*arguments), dtype)
