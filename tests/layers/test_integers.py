"""Integers as inputs, which Keras casts for no layer: one-hot, raw images."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from tests.support.cases import CASES


@pytest.mark.parametrize("dtype", ["uint8", "int32", "bool"])
def test_integers_are_what_the_same_floats_are(dtype, rng):
    for case in CASES:
        data = case.data(2)
        for name in data.keys() & {"inputs", "context", "embeddings"}:
            data[name] = rng.integers(0, 9, data[name].shape).astype(dtype)
        floats = {
            name: value if name == "context_mask" else value.astype("float32")
            for name, value in data.items()
        }
        for policy in ("float32", "mixed_bfloat16"):
            layer = case.make(dtype=policy)
            expected = case.call(layer, floats)
            for training in (None, False):
                actual = case.call(layer, data, training=training)
                assert actual.dtype == expected.dtype, case.name
                np.testing.assert_array_equal(actual, expected, case.name)
            symbols = {
                name: tf.keras.Input(value.shape[1:], dtype=value.dtype)
                for name, value in data.items()
            }
            symbolic = case.call(layer, symbols).dtype
            assert tf.as_dtype(symbolic) == expected.dtype, case.name


@pytest.mark.parametrize("layer_type", [layers.Dropout, layers.StochasticDepth])
def test_integers_that_are_dropped_keep_their_fractions(layer_type):
    output = layer_type(0.75)(tf.ones([1000, 2], tf.uint8), training=True)
    assert output.dtype == tf.float32
    assert set(np.unique(output)) == {0.0, 4.0}


def test_a_symbolic_convolution_takes_a_mask_of_numbers(rng):
    layer = layers.LambdaConv(6, 3, strides=2, num_heads=2, key_dim=3)
    mask = rng.integers(0, 2, [2, 7]).astype(bool)
    x = rng.normal(size=[2, 7, 5]).astype("float32")
    inputs = tf.keras.Input([7, 5], batch_size=2)
    model = tf.keras.Model(inputs, layer(inputs, mask=mask))
    np.testing.assert_allclose(model(x), layer(x, mask=mask), 1e-5, 1e-6)
