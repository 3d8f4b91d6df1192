"""Lambda layers as they are called on a TPU; nothing here runs on one."""

import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import ops
from tests.support import checks

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
    "context": (layers.LambdaLayer, {"scope": 3}),
}
SIZES = {"filters": 10, "num_heads": 2, "key_dim": 3}


def with_gradients(layer, *inputs, **arguments):
    """Outputs, and gradients of inputs and weights."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(*inputs, **arguments)
        loss = tf.reduce_sum(tf.sin(outputs))
    return [outputs, *tape.gradient(loss, [*inputs, *layer.trainable_weights])]


@pytest.mark.representatives(len(LAYERS), everywhere=True)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_the_same_function_on_a_tpu(name, training, rng):
    make, arguments = LAYERS[name]
    layer = make(**SIZES, **arguments, dtype="float64")
    inputs = [tf.constant(rng.normal(size=[2, 6, 5, 7]))]
    if name == "context":
        inputs.append(tf.constant(rng.normal(size=[2, 6, 5, 4])))
    layer(*inputs)
    checks.randomize(layer, rng)
    weights = layer.get_weights()
    expected = with_gradients(layer, *inputs, training=training)
    layer.set_weights(weights)  # batch statistics among them
    with ops.planning_for("tpu"):
        actual = with_gradients(layer, *inputs, training=training)
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
