"""Masks of every shape that Keras' attention takes, on every layer.

What a shape means is Keras' own rule, written out in `permitted`; what a mask
does is the oracles'.
"""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.layers import LambdaConv
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
    "multi_head": (LambdaLayer, {"scope": 3, "multi_head": True}),
    "causal": (LambdaLayer, _PAST),
    "content": (LambdaLayer, {"use_position": False}),
    "bias": (LambdaLayer, {"use_position_bias": True}),
    "attention": (RelativeAttention, {}),
    "attention_scope": (RelativeAttention, {"scope": 3}),
    "attention_causal": (RelativeAttention, {"causal": True}),
    "attention_free": (RelativeAttention, {"position_embedding": None}),
    "convolution": (LambdaConv, {"kernel_size": 3, "strides": 2}),
}
# Of 5 queries and 5 context positions.
SHAPES = [
    *((5, 5), (1, 5), (5, 1)),
    *((BATCH, 5, 5), (BATCH, 1, 5), (BATCH, 5, 1), (1, 5, 5), (1, 1, 5)),
    *((BATCH, HEADS, 5, 5), (BATCH, 1, 5, 5), (BATCH, 1, 1, 5)),
    *((1, HEADS, 5, 5), (1, HEADS, 1, 5), (1, 1, 1, 1)),
]


def random_mask(rng, *shape):
    return rng.integers(0, 2, shape).astype(bool)


def mixed_mask(rng, shape):
    """The first entry is permitted, the last is not."""
    mask = random_mask(rng, *shape)
    mask.flat[0], mask.flat[-1] = True, False
    return mask


def permitted(mask, n, m):
    """As Keras' MultiHeadAttention reads a mask: `(batch, heads, n, m)`."""
    for _ in range(4 - mask.ndim):
        mask = np.expand_dims(mask, -3)
    return np.broadcast_to(mask, [BATCH, HEADS, n, m])


def assert_equals_oracle_by_head(layer, arguments, mask):
    """Holds each head's channels against the oracle's under its own mask."""
    context = arguments.get("context", arguments["inputs"])
    sizes = [x.shape[1:-1] for x in (arguments["inputs"], context)]
    masks = permitted(mask, *map(np.prod, sizes))
    heads = []
    for head in range(HEADS):
        own = {**arguments, "attention_mask": masks[:, head]}
        outputs = checks.oracle_output(layer, own)
        heads.append(np.split(outputs, HEADS, axis=-1)[head])
    output = layer(**arguments, attention_mask=mask)
    checks.assert_close(output, np.concatenate(heads, axis=-1), 2e-5)


def built(name, rng, *grid, **changes):
    kind, arguments = LAYERS[name]
    x = normal(rng, BATCH, *grid, 4)
    arguments = {**_SMALL, **arguments, **changes}
    return random_layers.built(x, kind, **arguments), x


@pytest.mark.representatives(4)
@pytest.mark.once
@pytest.mark.parametrize("name", [x for x in LAYERS if x != "convolution"])
def test_every_shape(name, rng):
    layer, x = built(name, rng, 5)
    full = random_mask(rng, BATCH, HEADS, 5, 5)
    assert_equals_oracle_by_head(layer, {"inputs": x}, full)
    unmasked = layer(x).numpy()
    for shape in SHAPES:
        mask = mixed_mask(rng, shape)
        output = layer(x, attention_mask=mask).numpy()
        same = layer(x, attention_mask=permitted(mask, 5, 5))
        checks.assert_close(output, same, 2e-5)
        checks.assert_far(output, unmasked, 1e-3)


def test_lists(rng):
    for name in ("scope", "attention"):
        layer, x = built(name, rng, 5)
        mask = rng.integers(0, 2, [BATCH, HEADS, 5, 5])
        np.testing.assert_array_equal(
            layer(x.tolist(), attention_mask=mask.tolist()),
            layer(x, attention_mask=mask),
        )


@pytest.mark.once
@pytest.mark.parametrize("form", ["masks", "causal", "context"])
def test_without_positions_it_is_keras_attention(form, rng):
    heads, key, value, channels = 2, 3, 5, 7
    x = normal(rng, 2, 5, channels)
    context = normal(rng, 2, 6, 4) if form == "context" else x
    call = {"context": context if form == "context" else None}
    theirs = {"use_causal_mask": True} if form == "causal" else {}
    layer = random_layers.attention(
        x,
        filters=heads * value,
        num_heads=heads,
        key_dim=key,
        position_embedding=None,
        causal=form == "causal",
        call=call,
    )
    keras = tf.keras.layers.MultiHeadAttention(
        heads, key, value, use_bias=False, output_shape=heads * value
    )
    keras(x, context)
    for name in ("query", "key", "value"):
        kernel = checks.raw(getattr(layer, name).kernel).numpy()
        dense = getattr(keras, f"_{name}_dense", None)
        dense = dense or getattr(keras, f"{name}_dense")
        dense.kernel.assign(kernel.reshape(len(kernel), heads, -1))
    output = getattr(keras, "_output_dense", None) or keras.output_dense
    output.kernel.assign(np.eye(10).reshape(heads, value, 10))
    checks.assert_close(layer(x, **call), keras(x, context, **theirs), 1e-5)
    for shape in SHAPES if form == "masks" else ():
        mask = random_mask(rng, *shape)
        mask[..., 0] = True  # Keras averages rows of nothing
        expected = keras(x, x, attention_mask=mask)
        checks.assert_close(layer(x, attention_mask=mask), expected, 1e-5)


@pytest.mark.once
@pytest.mark.parametrize("name", ["scope", "content", "attention"])
def test_axes_of_the_grids(name, rng):
    # As Keras' attention over two axes: (batch, heads, height, width, height,
    # width), from the right.
    layer, x = built(name, rng, 2, 3)
    for shape in ((2, 3, 2, 3), (BATCH, 2, 3, 2, 3), (BATCH, 1, 1, 2, 3)):
        mask = random_mask(rng, *shape)
        mask[..., 0, :] = True
        full = np.broadcast_to(mask, [*shape[:-4], 2, 3, 2, 3])
        flat = full.reshape([*shape[:-4], 6, 6])
        checks.assert_close(
            layer(x, attention_mask=mask), layer(x, attention_mask=flat), 1e-5
        )
        assert_equals_oracle_by_head(layer, {"inputs": x}, flat)


@pytest.mark.slow
@pytest.mark.once
def test_each_head_along_an_axis(rng):
    layer, x = built("attention", rng, 2, 5, axis=2)
    rows = np.reshape(x, [-1, 5, 4])
    lines = random_layers.twin(layer, rows, axis=None)
    for shape in SHAPES:
        mask = random_mask(rng, *shape)
        batch = shape[0] if len(shape) > 2 else 0
        repeated = np.repeat(mask, 2, axis=0) if batch == BATCH else mask
        checks.assert_close(
            layer(x, attention_mask=mask),
            np.reshape(lines(rows, attention_mask=repeated), [BATCH, 2, 5, 6]),
            1e-5,
        )


@pytest.mark.once
def test_explicit_embeddings_and_another_context(rng):
    x, context = normal(rng, BATCH, 5, 4), normal(rng, BATCH, 3, 7)
    others = {"context": context, "embeddings": normal(rng, 5, 3, 3)}
    layer = random_layers.built(
        x, **_SMALL, position_embedding="explicit", call=others
    )
    for shape in (
        (1, 3),
        (BATCH, 1, 3),
        (BATCH, HEADS, 5, 3),
        (1, HEADS, 5, 1),
    ):
        mask = random_mask(rng, *shape)
        mask.flat[0] = True
        assert_equals_oracle_by_head(layer, {"inputs": x, **others}, mask)


@pytest.mark.parametrize("name", ["scope", "bias", "causal", "attention_scope"])
def test_one_mask_for_all_queries_needs_no_static_sizes(name, rng):
    layer, x = built(name, rng, 5, scope=3)
    inputs, mask = tf.keras.Input([None, 4]), tf.keras.Input([1, None])
    model = tf.keras.Model([inputs, mask], layer(inputs, attention_mask=mask))
    real = normal(rng, BATCH, 1, 5) > 0
    expected = layer(x, attention_mask=real)
    checks.assert_close(
        model([tf.constant(x), tf.constant(real, tf.float32)]), expected, 1e-5
    )


@pytest.mark.once
@pytest.mark.parametrize("name", ["global", "multi_head", "attention"])
def test_gradients_of_each_head_under_its_own_mask(name, rng):
    layer, x = built(name, rng, 5)
    mask = random_mask(rng, BATCH, HEADS, 5, 5)
    mask[:, 1] = mask[:, 0]
    signal = rng.normal(size=[BATCH, 5, 6])
    (output, gradients), (same, expected) = (
        checks.output_and_gradients(
            layer, {"inputs": x, "attention_mask": given}, signal
        )
        for given in (mask, mask[:, 0])
    )
    checks.assert_close(output, same, 1e-5)
    for source, gradient in expected.items():
        checks.assert_close(gradients[source], gradient, 1e-5)


# Of a map of 2x3: the shapes that fit each mask, and others.
_FIT = [(BATCH, 2, 3), (BATCH, 6), (1, 6), (1, 2, 3), (BATCH, 2, 1), (BATCH, 2)]
_PADDING = {
    "context_mask": (_FIT, [(6, BATCH), (3, 4), (BATCH, 3, 2), (12,)]),
    "mask": ([(1, 2, 3), (BATCH, 2)], [(3, 2, 2), (BATCH, 3, 2), (12,)]),
}
_ONCE = [
    pytest.param(name, marks=pytest.mark.once)
    for name in ("scope", "content", "attention")
]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*_ONCE, "convolution"])
def test_padding_is_broadcast_or_refused(name, rng):
    layer, x = built(name, rng, 2, 3)
    unmasked = layer(x)
    for argument, (fitting, others) in _PADDING.items():
        if name == "convolution":
            argument = "mask"
        for shape in others:
            mask = {argument: mixed_mask(rng, shape)}
            with pytest.raises(ValueError, match=rf"`{argument}`.*\(2, 2, 3\)"):
                layer(x, **mask)
        for shape in fitting:
            mask = mixed_mask(rng, shape)
            full = mask.reshape([-1, 2, 3]) if shape[-1] == 6 else mask
            full = full[..., None] if full.ndim < 3 else full
            full = np.broadcast_to(full, [BATCH, 2, 3])
            expected = layer(x, **{argument: full})
            for given in (mask, mask.tolist()):
                output = layer(x, **{argument: given})
                checks.assert_close(output, expected, 1e-6)
            checks.assert_far(unmasked, expected, 1e-3)


def test_what_a_convolution_passes_on(rng):
    # The positions of its queries, whatever the shape of the mask.
    layer, x = built("convolution", rng, 4, 3)
    x = tf.constant(x)
    mask = random_mask(rng, BATCH, 4, 3)
    centers = layer.compute_mask(x, tf.constant(mask))
    assert centers.shape == layer(x).shape[:-1]
    for same in (mask.reshape([BATCH, 12]), mask[:, :, :]):
        np.testing.assert_array_equal(
            layer.compute_mask(x, tf.constant(same)), centers
        )
    leading = layer.compute_mask(x, tf.constant(mask[:, :, 0]))
    np.testing.assert_array_equal(leading[..., 0], centers[..., 0])
