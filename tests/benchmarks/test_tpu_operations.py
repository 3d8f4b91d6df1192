"""Nothing that a layer computes lacks a kernel on TPUs or is float64."""

import pytest
import tensorflow as tf

from benchmarks.tpu.operations import audit
from lambdanet_tf import layers
from lambdanet_tf import ops

pytestmark = pytest.mark.once


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ops.implementations(2))
def test_every_implementation_of_a_layer_has_kernels(implementation):
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    layer = layers.LambdaLayer(8, scope=3, implementation=implementation)
    layer.build((2, 8, 8, 8))

    @tf.function(input_signature=[tf.TensorSpec([2, 8, 8, 8], tf.bfloat16)])
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.cast(layer(x, training=True), tf.float32))
        return tape.gradient(loss, [x, *layer.trainable_variables])

    with ops.planning_for("tpu"):
        found = audit(gradient.get_concrete_function())
    assert (found.without_kernel, found.dynamic, found.double) == ((), (), ())


def test_what_a_tpu_cannot_compute_is_found():
    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32)])
    def bad(x):
        doubled = tf.cast(x, tf.float64) * 2.0
        return doubled, tf.strings.as_string(x), tf.unique(x)[0]

    found = audit(bad.get_concrete_function())
    assert found.without_kernel == ("AsString",)
    assert found.dynamic == ("Unique",)
    assert any("mul" in name for name in found.double)
