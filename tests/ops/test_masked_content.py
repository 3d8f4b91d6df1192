"""The masked content output, where exponentials underflow and where not."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import ops
from tests.support import checks

pytestmark = pytest.mark.every_lane


def expected(queries, keys, values, mask):
    """A softmax for each query, in float64."""
    logits = tf.where(mask[..., None, None], keys[:, None], -np.inf)
    some = tf.reduce_any(mask, axis=2)[..., None, None, None]
    weights = tf.nn.softmax(tf.where(some, logits, 0.0), axis=2)
    weights = tf.where(some, weights, 0.0)
    lambdas = tf.einsum("bnmku,bmvu->bnkv", weights, values)
    return tf.einsum("bnhk,bnkv->bnhv", queries, lambdas)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spread", "compiled"), [(1, False), (30, None), (300, None), (300, True)]
)
def test_any_spread_of_keys_is_exact(spread, compiled, rng):
    shapes = [2, 7, 3, 4], [2, 9, 4, 2], [2, 9, 5, 2]
    inputs = [rng.normal(size=shape) for shape in shapes]
    inputs[1] *= spread
    mask = tf.constant(rng.random([7, 9]) < 0.3) & (np.arange(7) != 2)[:, None]
    upstream = rng.normal(size=[2, 7, 3, 5])

    def run(function, *inputs):
        return checks.with_gradients(
            lambda *tensors: function(*tensors, mask[None]),
            inputs,
            lambda y: tf.reduce_sum(tf.cast(upstream, y.dtype) * y),
        )

    exact = run(expected, *map(tf.constant, inputs))
    traced = run
    if compiled is not None:
        traced = tf.function(run, jit_compile=compiled)
    single = [tf.constant(x, tf.float32) for x in inputs]
    actual = traced(ops.content.masked_content_output, *single)
    checks.assert_each_close(actual, exact, 1e-4)
    np.testing.assert_array_equal(actual[0][:, 2], 0.0)


def test_the_future_changes_no_bit_of_a_causal_output(rng):
    shapes = [1, 8, 2, 3], [1, 8, 3, 1], [1, 8, 4, 1]
    queries, keys, values = (tf.constant(rng.normal(size=x)) for x in shapes)
    mask = tf.constant(rng.random([8, 8]) < 0.7)
    masks = ops.Masks.of(pairs=mask, causal=True)
    geometry = ops.Geometry.of([ops.same_axis(8, 5)])
    scale = np.where(np.arange(8) < 5, 1.0, 1e4)[:, None, None]
    first, second = (
        ops.lambda_output(queries, k, v, None, geometry, masks=masks)[0]
        for k, v in ((keys, values), (keys * scale, values * scale))
    )
    np.testing.assert_array_equal(first[:, :5], second[:, :5])
    checks.assert_far(second[:, 5:], first[:, 5:])
