"""Layers with random weights, copies of them, and their inputs."""

import numpy as np
import tensorflow as tf

from lambdanet_tf import layers
from tests.support import checks


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def built(x, layer=layers.LambdaLayer, seed=5, call=None, **arguments):
    """A layer with random weights, built for `x`."""
    layer = layer(**arguments)
    layer(tf.constant(x), **(call or {}))
    checks.randomize(layer, np.random.default_rng(seed))
    return layer


def attention(x, **arguments):
    return built(x, layers.RelativeAttention, **arguments)
