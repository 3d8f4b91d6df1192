"""The floor under LLLL on a CPU: what it leaves out and what it adds up."""

import unittest.mock

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import cpu_floor
from lambdanet_tf import layers
from lambdanet_tf import ops

pytestmark = pytest.mark.once


def test_the_rest_of_a_layer_is_its_content_lambda():
    inputs = tf.random.stateless_normal([2, 6, 5, 16], (0, 1))
    whole = layers.LambdaLayer(scope=3)
    content = layers.LambdaLayer(use_position=False)
    whole(inputs), content(inputs)
    paths = {w.path.split("/", 1)[1]: w for w in whole.weights}
    for weight in content.weights:
        weight.assign(paths[weight.path.split("/", 1)[1]])
    with unittest.mock.patch.object(
        ops, "lambda_step", cpu_floor.without_position_lambdas
    ):
        rest = whole(inputs)
    np.testing.assert_allclose(rest, content(inputs), atol=1e-6)
    assert np.max(np.abs(rest - whole(inputs))) > 1e-3


def test_work_is_that_of_all_layers_for_the_batch():
    inputs = tf.keras.Input([56, 56, 64])
    large = layers.LambdaLayer(scope=23)
    small = layers.LambdaLayer(scope=23)
    pooled = tf.keras.layers.AveragePooling2D(8)(large(inputs))
    model = tf.keras.Model(inputs, small(pooled))
    names = [x.inference_plan.algorithm for x in (large, small)]
    assert names == ["fourier", "query_first"]
    operations, moved = cpu_floor.position_work(model, 3)
    # Lambdas before and after the inverse, written and read; scores.
    lambdas, scores = 56**2 * 16 * 16, 7**2 * 4 * 7**2
    assert moved == 3 * 4 * (4 * lambdas + 2 * scores)
    plans = [x.inference_plan for x in (large, small)]
    assert operations == sum(
        3 * x.operations + x.table_operations for x in plans
    )


def test_the_floor_is_the_rest_with_products_and_moves():
    times = {"CCCC": 0.3, "LLLL": 0.5, "rest": 0.2}
    lines = cpu_floor.table(times, (1e10, 1e9), (1e11, 1e10), 8).splitlines()
    assert lines[-1] == "| LLLL, if they cost no more | 400 | 0.75 |"
    assert "10.0 Gop at 100 Gop/s | 100 |" in lines[-3]
    assert "1.00 GB at 10.0 GB/s | 100 |" in lines[-2]
