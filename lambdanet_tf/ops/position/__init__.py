"""Position outputs: the algorithms, and how one of them is run.

    Y[b, n, h, v] =
        sum over m, k, u of  Q[b, n, h, k] E[n, m, k, u] V[b, m, v, u]

Every algorithm computes this function; they differ by up to a hundred times in
what it costs, depending on the geometry. `plan` takes the one that is expected
to be the fastest.
"""

import tensorflow as tf

from lambdanet_tf.ops.blocks import Blocks
from lambdanet_tf.ops.position.plan import ALGORITHMS
from lambdanet_tf.ops.position.plan import Dims
from lambdanet_tf.ops.position.plan import Plan
from lambdanet_tf.ops.position.plan import plan_for
from lambdanet_tf.ops.precision import factor_dtype


def position_output(
    queries, values, embeddings, geometry, plan="auto", causal=False
):
    """Computes what the queries read from their position lambdas.

    Sums over positions run in float32 or wider. If `causal`, what comes later
    may change no bit of an output. Other arguments as of `lambda_output`.
    """
    dims = Dims(*queries.shape[-2:], *values.shape[-2:])
    if not isinstance(plan, Plan):
        plan = plan_for(geometry, dims, plan, batch=values.shape[0])
    algorithm, dtype = ALGORITHMS[plan.algorithm], values.dtype
    if causal and not geometry.is_causal and algorithm.mixes_positions:
        # The next positions of a sequence, among those that were kept.
        plan = plan_for(geometry, dims, "query_first", batch=values.shape[0])
        algorithm = ALGORITHMS[plan.algorithm]
    inner = factor_dtype(dtype)
    queries, values = tf.cast(queries, inner), tf.cast(values, inner)
    values = tf.reshape(values, [-1, *geometry.context, *values.shape[-2:]])
    place = geometry
    if algorithm.blocks is not None:
        place = Blocks.of(geometry, plan.sizes)
    table = geometry.crop(embeddings)
    return tf.cast(algorithm.run(queries, values, table, place), dtype)
