"""Nothing in a training step lacks a kernel on TPUs or is float64."""

import types

import pytest
import tensorflow as tf

from benchmarks.tpu.operations import audit
from benchmarks.tpu.operations import kernels
from lambdanet_tf import layers
from lambdanet_tf import ops
from lambdanet_tf.ops import planning_for
from lambdanet_tf.training import Averages
from lambdanet_tf.training import recipe_network
from lambdanet_tf.training import recipe_optimizer
from lambdanet_tf.training import resolve
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.steps import evaluation_step
from lambdanet_tf.training.steps import update_step

pytestmark = pytest.mark.once

BATCH, SIZE = 2, 32
IMAGES = types.SimpleNamespace(channels=3, classes=range(5))
# A block of every kind: convolution, SE, local and global lambda layers.
SHALLOW = {"stages": ["CL", "L"], "widths": [8, 8], "strides": [1, 2]}
NETWORKS = {
    "ResNet50": SHALLOW,
    "LambdaResNet50": {**SHALLOW, "se_stages": [2, 3]},
    "LambdaResNetSmall": {**SHALLOW, "scope": None, "share_embeddings": True},
    "MobileNetV2": {"lambda_blocks": [2, 16]},
}


def trace(function, *specs):
    return tf.function(function).get_concrete_function(*specs)


def steps(model, changes, **recipe):
    """Training and evaluation step of a network, as concrete functions."""
    recipe = resolve(
        "smoke",
        {
            "model": model,
            "model_arguments": {**changes, "use_sync_bn": True},
            "image_size": SIZE,
            "batch_size": BATCH,
            "precision": "mixed_bfloat16",
            "dropout_rate": 0.1,
            "global_clipnorm": 1.0,
            **recipe,
        },
    )
    network = recipe_network(recipe, IMAGES)
    optimizer = recipe_optimizer(recipe, 10)
    averages = Averages(network, recipe.ema_decay)
    state = TrainState(network, optimizer, averages)
    update = update_step(state, recipe)
    images = tf.TensorSpec([BATCH, SIZE, SIZE, 3], tf.bfloat16)
    labels = tf.TensorSpec([BATCH, 5], tf.float32)
    weights = tf.TensorSpec([BATCH], tf.float32)
    yield trace(update, images, labels, tf.TensorSpec([], tf.int64))
    evaluate = evaluation_step(network)
    batch = (images, labels, weights, tf.TensorSpec([], tf.float32))
    yield evaluate.get_concrete_function(batch)


def nothing_wrong(found):
    assert found.without_kernel == ()
    assert found.dynamic == ()
    assert found.double == ()
    return True


@pytest.mark.slow
@pytest.mark.parametrize("model", NETWORKS)
def test_the_steps_of_a_network(model):
    recipe = {"optimizer": "rmsprop"}
    if "MobileNet" not in model:
        recipe = {"drop_path_rate": 0.2}
    with planning_for("tpu"):
        for step in steps(model, NETWORKS[model], **recipe):
            found = audit(step)
            assert nothing_wrong(found)
            assert found.counts["Conv2D"] > 1
            assert found.counts["BatchMatMulV2"] > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "implementation",
    ops.implementations(2),
)
def test_every_implementation_of_a_layer(implementation):
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    layer = layers.LambdaLayer(8, scope=3, implementation=implementation)
    layer.build((BATCH, 8, 8, 8))

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.cast(layer(x, training=True), tf.float32))
        return tape.gradient(loss, [x, *layer.trainable_variables])

    with planning_for("tpu"):
        step = trace(gradient, tf.TensorSpec([BATCH, 8, 8, 8], tf.bfloat16))
    assert nothing_wrong(audit(step))


# The audit itself.

VECTOR = tf.TensorSpec([4], tf.float32)


def test_the_list_of_kernels_is_plausible():
    assert len(kernels()) > 500
    assert {"Einsum", "Conv2D", "CrossReplicaSum"} <= kernels()
    assert "DecodeJpeg" not in kernels()


def in_float64(x):
    return tf.cast(x, tf.float64) * 2.0


def in_python(x):
    return tf.numpy_function(lambda y: y, [x], tf.float32)


@pytest.mark.parametrize(
    ("function", "without_kernel", "dynamic", "double"),
    [
        (tf.strings.as_string, ("AsString",), (), False),
        (in_python, ("PyFunc",), (), False),
        (lambda x: tf.unique(x)[0], (), ("Unique",), False),
        (lambda x: tf.boolean_mask(x, x > 0), (), ("Where",), False),
        (in_float64, (), (), True),
    ],
    ids=["no kernel", "Python", "unique", "mask", "float64"],
)
def test_what_a_tpu_cannot_compute_is_found(
    function, without_kernel, dynamic, double
):
    found = audit(trace(lambda x: function(x), VECTOR))
    assert found.without_kernel == without_kernel
    assert found.dynamic == dynamic
    assert any("mul" in name for name in found.double) == double


def test_what_is_called_is_looked_at_too():
    @tf.function
    def inner(x):
        return tf.unique(tf.cast(x, tf.complex128))[0]

    def outer(x):
        for _ in tf.range(3):
            if tf.reduce_sum(x) > 0:
                x += tf.cast(tf.math.real(inner(x)[0]), tf.float32)
        return x

    found = audit(trace(outer, VECTOR))
    assert found.counts["Unique"] == 1
    assert found.dynamic == ("Unique",)
    assert found.double


def test_a_function_that_is_never_called_does_not_count():
    def outer(x):
        tf.function(lambda x: tf.unique(x)[0]).get_concrete_function(VECTOR)
        return x + 1.0

    assert nothing_wrong(audit(trace(outer, VECTOR)))
