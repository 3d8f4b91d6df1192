"""Attention layers with random weights, and copies of them."""

import numpy as np
import tensorflow as tf

from lambdanet_tf.layers import RelativeAttention
from tests.support import checks


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def built(x, seed=5, call=None, **arguments):
    """A layer with random weights, built for `x`."""
    layer = RelativeAttention(**arguments)
    layer(tf.constant(x), **(call or {}))
    checks.randomize(layer, np.random.default_rng(seed))
    return layer


def copy_weights(source, target, **changes):
    weights = checks.reference_weights(source)
    for name, variable in checks.reference_weights(target).items():
        value = changes.get(name)
        if value is None:
            value = checks.raw(weights[name])
        variable.assign(value)
