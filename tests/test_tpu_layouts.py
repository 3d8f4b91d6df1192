"""What lambda layers do on TPUs alone: changes of layout.

Nothing here runs on a TPU: layers are called, or traced, as for one.
"""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import ops
from lambdanet_tf.analysis.operations import operation_flops
from tests import checks

LAYERS = {
    "plain": (layers.LambdaLayer, {"scope": 3}),
    "intra-depth": (layers.LambdaLayer, {"scope": 3, "intra_depth": 2}),
    "multi-head": (layers.LambdaLayer, {"scope": 5, "multi_head": True}),
    "content": (layers.LambdaLayer, {"use_position": False}),
    "position": (layers.LambdaLayer, {"scope": 3, "use_content": False}),
    "timm": (layers.LambdaLayer, {"scope": 3, "use_position_bias": True}),
    "global": (layers.LambdaLayer, {"implementation": "einsum"}),
    "convolution": (layers.LambdaConv, {"kernel_size": 3}),
    "strided": (layers.LambdaConv, {"kernel_size": 3, "strides": 2}),
}
SIZES = {"filters": 10, "num_heads": 2, "key_dim": 3}


def built(name, dtype="float64"):
    """A layer for maps of 6 by 5 with 7 channels, with random weights."""
    make, arguments = LAYERS[name]
    layer = make(**SIZES, **arguments, dtype=dtype)
    layer.build((None, 6, 5, 7))
    checks.randomize(layer, np.random.default_rng(5))
    return layer


def with_gradients(layer, *inputs, **arguments):
    """Outputs, and gradients of inputs and weights."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(*inputs, **arguments)
        loss = tf.reduce_sum(tf.sin(outputs))
    return [outputs, *tape.gradient(loss, [*inputs, *layer.trainable_weights])]


def operations(function, *specs):
    """The operations of a traced function."""
    traced = tf.function(function, autograph=False)
    return traced.get_concrete_function(*specs).graph.get_operations()


@pytest.fixture
def images(rng):
    return tf.constant(rng.normal(size=[2, 6, 5, 7]))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("training", [False, True])
def test_layers_are_the_same_function_on_a_tpu(name, training, images):
    layer = built(name)
    weights = layer.get_weights()
    expected = with_gradients(layer, images, training=training)
    layer.set_weights(weights)  # batch statistics among them
    with ops.planning_for("tpu"):
        actual = with_gradients(layer, images, training=training)
    for got, wanted in zip(actual, expected, strict=True):
        checks.assert_close(got, wanted, 1e-10)


def test_a_context_of_its_own_on_a_tpu(images, rng):
    layer = layers.LambdaLayer(**SIZES, scope=3, dtype="float64")
    context = tf.constant(rng.normal(size=[2, 6, 5, 4]))
    expected = with_gradients(layer, images, context)
    with ops.planning_for("tpu"):
        actual = with_gradients(layer, images, context)
    for got, wanted in zip(actual, expected, strict=True):
        checks.assert_close(got, wanted, 1e-10)


def test_a_stream_on_a_tpu(rng):
    layer = layers.LambdaLayer(**SIZES, scope=5, causal=True, dtype="float64")
    sequence = tf.constant(rng.normal(size=[2, 6, 7]))
    expected = layer(sequence)
    state = layer.initial_state(2)
    with ops.planning_for("tpu"):
        outputs, _ = layer.step(sequence, state)
    checks.assert_close(outputs, expected, 1e-10)


# Changes of layout.


@pytest.fixture
def half(rng):
    return tf.cast(rng.normal(size=[2, 30, 2, 5]), tf.bfloat16)


@pytest.mark.parametrize("function", [ops.relaid, ops.relaid_gradient])
def test_nothing_changes(function, half):
    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
            loss = tf.reduce_sum(y * y * y)
        return y, tape.gradient(loss, x)

    assert function(half) is half
    expected = both(half)
    with ops.planning_for("tpu"):
        for got, wanted in zip(both(half), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)
        # A TPU would round the factors of a product.
        wide = tf.cast(half, tf.float32)
        assert function(wide) is wide


@pytest.mark.parametrize("function", [ops.relaid, ops.relaid_gradient])
def test_second_derivatives(function, half):
    with ops.planning_for("tpu"), tf.GradientTape() as outer:
        outer.watch(half)
        with tf.GradientTape() as inner:
            inner.watch(half)
            loss = tf.reduce_sum(function(half) ** 3)
        gradient = inner.gradient(loss, half)
    np.testing.assert_array_equal(
        outer.gradient(gradient, half), tf.cast(6.0, half.dtype) * half
    )


def test_where_the_products_are(half):
    def gradient(function):
        def run(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.sin(function(x))
            return tape.gradient(y, x)

        return run

    def count(function):
        found = operations(function, tf.TensorSpec(half.shape, half.dtype))
        return sum(x.type == "Einsum" for x in found)

    assert count(ops.relaid) == count(gradient(ops.relaid_gradient)) == 0
    with ops.planning_for("tpu"):
        assert count(ops.relaid) == 1
        assert count(ops.relaid_gradient) == 0
        assert count(gradient(ops.relaid)) == 1
        assert count(gradient(ops.relaid_gradient)) == 1


def test_nan_stays_at_its_position(half):
    spoilt = tf.tensor_scatter_nd_update(
        half, [[1, 4, 0, 2]], tf.constant([np.nan], tf.bfloat16)
    )
    with ops.planning_for("tpu"):
        outputs = ops.relaid(spoilt)
    bad = np.isnan(tf.cast(outputs, tf.float32)).any(axis=(2, 3))
    assert np.argwhere(bad).tolist() == [[1, 4]]


@pytest.mark.parametrize("name", ["plain", "convolution"])
def test_a_layer_in_half_precision(name):
    """Relaid once forward, and once in the gradient of the queries."""
    layer = built(name, "mixed_bfloat16")
    spec = tf.TensorSpec([2, 6, 5, 7], tf.bfloat16)

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        return tape.gradient(y, [x, *layer.trainable_weights])

    def count(function):
        # An identity has as many rows as columns, and is made in the graph.
        return sum(
            x.type.startswith("MatrixDiag") for x in operations(function, spec)
        )

    assert count(layer) == count(gradient) == 0
    with ops.planning_for("tpu"):
        assert count(layer) == 1
        assert count(gradient) == 2


def test_a_change_of_layout_is_no_operation():
    layer = built("global", "mixed_bfloat16")
    spec = tf.TensorSpec([2, 6, 5, 7], tf.bfloat16)

    def flops():
        return sum(map(operation_flops, operations(layer, spec)))

    expected = flops()
    assert expected > 2 * 2 * 30 * 7 * (6 + 3 + 5)  # the projections
    with ops.planning_for("tpu"):
        assert flops() == expected


def test_a_product_with_another_diagonal_is_one():
    spec = tf.TensorSpec([2, 30, 10], tf.bfloat16)

    def flops(diagonal):
        def run(x):
            matrix = tf.linalg.diag(tf.cast(diagonal, x.dtype))
            return tf.einsum("bnc,cd->bnd", x, matrix)

        return sum(map(operation_flops, operations(run, spec)))

    assert flops(tf.ones([10])) == 0
    assert flops(tf.range(10)) == 2 * 2 * 30 * 10 * 10
