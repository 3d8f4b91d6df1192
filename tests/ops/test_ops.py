"""The public functions of `ops`, against the reference."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import ops
from tests.support import checks
from tests.support import oracle
from tests.support.arrays import assert_same

pytestmark = pytest.mark.once


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("normalization", ops.KEY_NORMALIZATIONS)
def test_content_lambda(normalization, masked, rng):
    keys = rng.normal(size=[2, 11, 3, 2])
    values = rng.normal(size=[2, 11, 5, 2])
    real = rng.integers(0, 2, [2, 11]).astype(bool) if masked else None
    tensors = tf.constant(keys), tf.constant(values)
    output = ops.content.content_lambda(*tensors, normalization, real)
    for b in range(2):
        allowed = np.arange(11) if real is None else np.flatnonzero(real[b])
        normalized = oracle.NORMALIZATIONS[normalization](keys[b, allowed])
        pairs = zip(normalized, allowed, strict=True)
        expected = sum(key @ values[b, m].T for key, m in pairs)
        checks.assert_close(output[b], expected, 1e-12)


def past_content(queries, keys, values, normalization):
    """The causal content output by all pairs of positions, in TensorFlow."""
    length = keys.shape[1]
    seen = np.tril(np.ones([length, length], bool))[..., None, None]
    pairs = tf.tile(keys[:, None], [1, length, 1, 1, 1])  # [b, n, m, k, u]
    if normalization == "softmax":
        pairs = tf.nn.softmax(tf.where(seen, pairs, -np.inf), axis=2)
    elif normalization == "l2":
        pairs = tf.where(seen, pairs, 0.0)
        pairs /= tf.sqrt(tf.reduce_sum(pairs**2, axis=2, keepdims=True))
    pairs = tf.where(seen, pairs, 0.0)
    return tf.einsum("bnhk,bnmku,bmvu->bnhv", queries, pairs, values)


def both_contents(arrays, normalization, dtype=tf.float64):
    """Outputs and gradients of the causal form, and in float64 of all pairs."""
    queries, _, values = arrays
    shape = [*queries.shape[:3], values.shape[2]]
    weights = np.random.default_rng(1).normal(size=shape)

    def run(function, dtype):
        return checks.with_gradients(
            lambda *tensors: function(*tensors, normalization),
            [tf.constant(x, dtype) for x in arrays],
            lambda y: tf.reduce_sum(tf.cast(weights, dtype) * y),
        )

    causal = ops.content_causal.causal_content_output
    found = run(lambda *tensors: causal(*tensors)[0], dtype)
    return found, run(past_content, tf.float64)


# 1024 positions are one group of chunks. Keys far above and far below all
# before them take another form than keys of a normal spread.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("length", "far", "shift", "normalization"),
    [
        (1, 0, 0, "softmax"),
        (33, 300, -60, "softmax"),
        (65, 0, 60, "softmax"),
        (1024, 300, 0, "softmax"),
        (1025, 0, 0, "softmax"),
        (1025, 15, 0, "l2"),
        (33, 15, 0, None),
    ],
)
def test_causal_content_output(length, far, shift, normalization, rng):
    intra = int(rng.integers(1, 3))
    keys = shift + rng.normal(size=[2, length, 2, intra])
    keys += far * (rng.uniform(size=keys.shape) < 0.02)
    keys -= far * (rng.uniform(size=keys.shape) < 0.02)
    queries = rng.normal(size=[2, length, 3, 2])
    values = rng.normal(size=[2, length, 2, intra])
    found, expected = both_contents((queries, keys, values), normalization)
    # Those of the only key are zero, but for rounding.
    scale = max(np.abs(x).max() for x in expected)
    assert_same(found, expected, atol=1e-12 * scale)


@pytest.mark.parametrize("spread", [1, 4, 7, 9, 30])
def test_causal_content_of_a_wide_spread_in_float32(spread, rng):
    """Neither sums of exponentials nor their squares leave the range."""
    keys = spread * rng.normal(size=[2, 300, 3, 1])
    keys += np.linspace(0, spread, 300)[:, None, None]
    queries = rng.normal(size=[2, 300, 2, 3])
    values = rng.normal(size=[2, 300, 4, 1])
    arrays = [x.astype(np.float32) for x in (queries, keys, values)]
    found, expected = both_contents(arrays, "softmax", tf.float32)
    checks.assert_each_close(found, expected, 2e-5)


def of_permitted(queries, keys, values, mask):
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

    exact = run(of_permitted, *map(tf.constant, inputs))
    traced = run
    if compiled is not None:
        traced = tf.function(run, jit_compile=compiled)
    single = [tf.constant(x, tf.float32) for x in inputs]
    actual = traced(ops.content.masked_content_output, *single)
    checks.assert_each_close(actual, exact, 1e-4)
    np.testing.assert_array_equal(actual[0][:, 2], 0.0)


def test_same_geometry_as_tensorflow(rng):
    # The sizes and alignment of its convolutions, from TensorFlow itself.
    windows = [(3, 1, 1), (3, 2, 1), (5, 3, 1), (3, 1, 2), (7, 1, 1)]
    kinds = "same", "valid", "causal"
    cases = itertools.product(range(1, 12), windows, kinds)
    for size, (kernel, stride, dilation), kind in cases:
        reach = (kernel - 1) * dilation
        if kind == "valid" and size <= reach:
            continue
        x = rng.normal(size=[1, size, 1])
        table = rng.normal(size=[kernel, 1, 1])
        before = [reach * (kind == "causal"), 0]
        expected = tf.nn.convolution(
            np.pad(x, [(0, 0), before, (0, 0)]),
            table,
            stride,
            padding="SAME" if kind == "same" else "VALID",
            dilations=dilation,
        )
        queries = tf.ones([1, expected.shape[1], 1, 1], tf.float64)
        tensors = queries, tf.constant(x[..., None]), tf.constant(table)
        axis = getattr(ops, f"{kind}_axis")(size, kernel, stride, dilation)
        geometry = ops.Geometry.of([axis])
        output = checks.position_output(*tensors, geometry)
        checks.assert_close(output[..., 0], expected, 1e-12)
        pairs = ops.relative_index(geometry).numpy()
        entries = np.ravel(geometry.crop(table))
        pairs = np.where(pairs < 0, 0.0, entries[pairs])
        checks.assert_close(pairs @ x[0], expected[0], 1e-12)
