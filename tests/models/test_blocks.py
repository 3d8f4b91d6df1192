"""Residual blocks of every letter in float64, against the papers' sums."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from tests.support import checks
from tests.support import networks


def norm(x, weights, name):
    parts = "gamma", "beta", "moving_mean", "moving_variance"
    scale, offset, mean, variance = (weights[f"{name}_norm/{x}"] for x in parts)
    return (x - mean) / np.sqrt(variance + 1e-3) * scale + offset


def norm_relu(x, weights, name):
    return np.maximum(norm(x, weights, name), 0)


def dense(x, weights, name):
    return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]


def conv(x, weights, name, stride=1):
    return tf.nn.conv2d(x, weights[f"{name}/kernel"], stride, "SAME").numpy()


def pool(x, window):
    """Of what lies inside the map alone."""
    return tf.nn.avg_pool2d(x, window, 2, "SAME").numpy()


def layer(x, model, name):
    return checks.oracle_output(model.get_layer(name), {"inputs": x})


def pooled(suffix, window):
    def middle(x, weights, model, name):
        x = pool(layer(x, model, f"{name}_{suffix}"), window)
        return norm_relu(x, weights, f"{name}_{suffix}")

    return middle


def convolution(x, weights, model, name):
    x = conv(x, weights, f"{name}_conv2", stride=2)
    return norm_relu(x, weights, f"{name}_conv2")


def axial(x, weights, model, name):
    x = layer(x, model, f"{name}_height_attention")
    x = norm(x, weights, f"{name}_height_attention")
    return pooled("width_attention", 2)(x, weights, model, name)


def parallel(x, weights, model, name):
    name = f"{name}_parallel"
    attended = pool(layer(x, model, f"{name}_attention"), 2)
    attended = conv(attended, weights, f"{name}_mix")
    convolved = conv(x, weights, f"{name}_conv", stride=2)
    x = np.concatenate([convolved, attended], axis=-1)
    return norm_relu(x, weights, name)


MIDDLES = {
    "L": pooled("lambda", 3),
    "C": convolution,
    "S": pooled("local_attention", 2),
    "A": pooled("attention", 2),
    "X": axial,
    "P": parallel,
}


@pytest.mark.once
@pytest.mark.parametrize("letter", MIDDLES)
def test_a_strided_block_is_the_papers(letter):
    tf.keras.mixed_precision.set_global_policy("float64")
    spec = dataclasses.replace(
        networks.ATTENTION, stages=(letter,), widths=(20,), strides=(2,)
    )
    bare = {"include_top": False, "include_preprocessing": False}
    gated = {"se_ratio": 0.25, "se_stages": (2,)} if letter == "L" else {}
    model = models.ResNet(spec, input_shape=(5, 7, 3), **bare, **gated)
    networks.vary(model)
    weights = networks.arrays(model)
    # Inputs are float32.
    images = (networks.some_images(2, 5, 7, 3) / 64 - 2).astype("float64")

    name = "stage2_block1"
    x = norm_relu(conv(images, weights, "stem_conv1"), weights, "stem_conv1")
    residual = conv(pool(x, 2), weights, f"{name}_shortcut")
    residual = norm(residual, weights, f"{name}_shortcut")
    x = conv(x, weights, f"{name}_conv1")
    x = norm_relu(x, weights, f"{name}_conv1")
    x = MIDDLES[letter](x, weights, model, name)
    x = norm(conv(x, weights, f"{name}_conv3"), weights, f"{name}_conv3")
    if gated:
        gates = dense(x.mean(axis=(1, 2)), weights, f"{name}_se/reduce")
        gates = dense(np.maximum(gates, 0), weights, f"{name}_se/expand")
        x = x / (1 + np.exp(-gates[:, None, None]))
    checks.assert_close(model(images), np.maximum(residual + x, 0), 1e-10)
