"""Masks of every shape that there is, on every layer."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from tests.support import checks
from tests.support import random_layers
from tests.support.random_layers import normal

BATCH, HEADS = 2, 2
_SMALL = {"filters": 6, "num_heads": HEADS, "key_dim": 3}
_PAST = {"scope": 3, "causal": True, "key_normalization": "l2"}

LAYERS = {
    "global": (LambdaLayer, {}),
    "scope": (LambdaLayer, {"scope": 3, "intra_depth": 2}),
    "causal": (LambdaLayer, _PAST),
    "content": (LambdaLayer, {"use_position": False}),
    "bias": (LambdaLayer, {"use_position_bias": True}),
    "attention": (RelativeAttention, {}),
    "attention_scope": (RelativeAttention, {"scope": 3}),
    "attention_causal": (RelativeAttention, {"causal": True}),
    "attention_free": (RelativeAttention, {"position_embedding": None}),
}
# Of 5 queries and 5 context positions.
SHAPES = [(5, 5), (1, 5), (BATCH, 5, 5), (BATCH, 1, 5), (1, 5, 5), (1, 1, 5)]


def random_mask(rng, *shape):
    return rng.integers(0, 2, shape).astype(bool)


def built(name, rng, *grid):
    layer_type, arguments = LAYERS[name]
    x = normal(rng, BATCH, *grid, 4)
    return random_layers.built(x, layer_type, **_SMALL, **arguments), x


@pytest.mark.once
@pytest.mark.parametrize("name", [n for n in LAYERS if "attention" not in n])
def test_every_shape(name, rng):
    layer, x = built(name, rng, 5)
    unmasked = layer(x).numpy()
    for shape in SHAPES:
        mask = random_mask(rng, *shape)
        mask.flat[0], mask.flat[-1] = True, False
        if shape[-2] == 5:
            mask[..., 2, :] = False  # a query of nothing
        kind = rng.choice(["bool", "float32", "float64"])
        output = layer(x, attention_mask=mask.astype(kind)).numpy()
        full = np.broadcast_to(mask, [BATCH, 5, 5])
        own = {"inputs": x, "attention_mask": full}
        expected = checks.oracle_output(layer, own)
        checks.assert_close(output, expected, 2e-5)
        checks.assert_far(output, unmasked, 1e-3)


@pytest.mark.once
@pytest.mark.parametrize("form", ["masks", "causal", "context"])
def test_without_positions_it_is_keras_attention(form, rng):
    x = normal(rng, 2, 5, 7)
    context = normal(rng, 2, 6, 4) if form == "context" else x
    call = {"context": context if form == "context" else None}
    causal = form == "causal"
    size = {"filters": 10, "num_heads": HEADS, "key_dim": 3}
    arguments = {**size, "position_embedding": None, "causal": causal}
    layer = random_layers.attention(x, **arguments, call=call)
    sizes = {"key_dim": 3, "value_dim": 5, "output_shape": 10}
    keras = tf.keras.layers.MultiHeadAttention(HEADS, use_bias=False, **sizes)
    keras(x, context)
    kernels = [
        np.reshape(checks.raw(kernel), [kernel.shape[0], HEADS, -1])
        for kernel in (layer.query.kernel, layer.key.kernel, layer.value.kernel)
    ]
    keras.set_weights([*kernels, np.eye(10).reshape(HEADS, 5, 10)])
    expected = keras(x, context, use_causal_mask=causal)
    checks.assert_close(layer(x, **call), expected, 1e-5)
    shapes = [shape for shape in SHAPES if len(shape) < 4]
    for shape in shapes if form == "masks" else ():
        mask = random_mask(rng, *shape)
        mask[..., 0] = True  # Keras averages rows of nothing
        expected = keras(x, x, attention_mask=mask)
        checks.assert_close(layer(x, attention_mask=mask), expected, 1e-5)


@pytest.mark.parametrize("name", ["scope", "causal", "attention_scope"])
def test_one_mask_for_all_queries_needs_no_static_sizes(name, rng):
    layer, x = built(name, rng, 5)
    inputs, mask = tf.keras.Input([None, 4]), tf.keras.Input([1, None])
    model = tf.keras.Model([inputs, mask], layer(inputs, attention_mask=mask))
    real = normal(rng, BATCH, 1, 5) > 0
    output = model([tf.constant(x), tf.constant(real, tf.float32)])
    checks.assert_close(output, layer(x, attention_mask=real), 1e-5)
