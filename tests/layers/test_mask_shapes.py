"""Masks of every shape that Keras' attention takes, on every layer.

What a shape means is Keras' own rule, written out in `permitted`; what a mask
does is the oracles'.
"""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from tests.support import checks
from tests.support.random_layers import attention
from tests.support.random_layers import normal

BATCH, HEADS = 2, 2
_SMALL = {"filters": 6, "num_heads": HEADS, "key_dim": 3}

LAYERS = {
    "global": (layers.LambdaLayer, {}),
    "scope": (layers.LambdaLayer, {"scope": 3, "intra_depth": 2}),
    "multi_head": (layers.LambdaLayer, {"scope": 3, "multi_head": True}),
    "causal": (
        layers.LambdaLayer,
        {"scope": 3, "causal": True, "key_normalization": "l2"},
    ),
    "content": (layers.LambdaLayer, {"use_position": False}),
    "bias": (layers.LambdaLayer, {"use_position_bias": True}),
    "attention": (layers.RelativeAttention, {}),
    "attention_scope": (layers.RelativeAttention, {"scope": 3}),
    "attention_causal": (layers.RelativeAttention, {"causal": True}),
    "attention_free": (layers.RelativeAttention, {"position_embedding": None}),
}
# Of 5 queries and 5 context positions.
SHAPES = [
    (5, 5),
    (1, 5),
    (5, 1),
    (BATCH, 5, 5),
    (BATCH, 1, 5),
    (1, 5, 5),
    (1, 1, 5),
    (BATCH, 5, 1),
    (BATCH, HEADS, 5, 5),
    (BATCH, 1, 5, 5),
    (BATCH, 1, 1, 5),
    (1, HEADS, 5, 5),
    (1, HEADS, 1, 5),
    (1, 1, 1, 1),
]


def permitted(mask, n, m):
    """As Keras' MultiHeadAttention reads a mask: `(batch, heads, n, m)`."""
    for _ in range(4 - mask.ndim):
        mask = np.expand_dims(mask, -3)
    return np.broadcast_to(mask, [BATCH, HEADS, n, m])


def by_head(layer, arguments, mask):
    """The oracle's output, each head's channels under its own mask."""
    grid = arguments["inputs"].shape[1:-1]
    n = np.prod(grid)
    m = np.prod(arguments.get("context", arguments["inputs"]).shape[1:-1])
    heads = []
    for head, own in enumerate(np.moveaxis(permitted(mask, n, m), 1, 0)):
        output = checks.oracle_output(
            layer, {**arguments, "attention_mask": own}
        )
        channels = layer.filters // HEADS
        heads.append(output[..., head * channels : (head + 1) * channels])
    return np.concatenate(heads, axis=-1)


def built(name, rng, *grid, **changes):
    kind, arguments = LAYERS[name]
    layer = kind(**{**_SMALL, **arguments, **changes})
    x = rng.normal(size=[BATCH, *grid, 4]).astype("float32")
    layer(x)
    checks.randomize(layer, rng)
    return layer, x


@pytest.mark.representatives(4)
@pytest.mark.once
@pytest.mark.parametrize("name", LAYERS)
def test_every_shape(name, rng):
    layer, x = built(name, rng, 5)
    full = rng.integers(0, 2, [BATCH, HEADS, 5, 5]).astype(bool)
    output = layer(x, attention_mask=full)
    checks.assert_close(output, by_head(layer, {"inputs": x}, full), 2e-5)
    unmasked = layer(x).numpy()
    for shape in SHAPES:
        mask = rng.integers(0, 2, shape).astype(bool)
        if np.prod(shape) > 1:
            mask.flat[0] = True
        mask.flat[-1] = False
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
    call, theirs = {"context": None}, {}
    if form == "context":
        call["context"] = context
    if form == "causal":
        theirs["use_causal_mask"] = True
    layer = attention(
        x,
        filters=10,
        num_heads=2,
        key_dim=3,
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
        mask = rng.integers(0, 2, shape).astype(bool)
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
        mask = rng.integers(0, 2, shape).astype(bool)
        mask[..., 0, :] = True
        full = np.broadcast_to(mask, [*shape[:-4], 2, 3, 2, 3])
        flat = full.reshape([*shape[:-4], 6, 6])
        checks.assert_close(
            layer(x, attention_mask=mask), layer(x, attention_mask=flat), 1e-5
        )
        checks.assert_close(
            layer(x, attention_mask=flat),
            by_head(layer, {"inputs": x}, flat),
            2e-5,
        )


@pytest.mark.slow
@pytest.mark.once
def test_each_head_along_an_axis(rng):
    layer, x = built("attention", rng, 2, 5, axis=2)
    lines = layers.RelativeAttention(**_SMALL)
    rows = np.reshape(x, [-1, 5, 4])
    lines(rows)
    lines.set_weights(layer.get_weights())
    for shape in SHAPES:
        mask = rng.integers(0, 2, shape).astype(bool)
        batch = shape[0] if len(shape) > 2 else 0
        repeated = np.repeat(mask, 2, axis=0) if batch == BATCH else mask
        checks.assert_close(
            layer(x, attention_mask=mask),
            np.reshape(lines(rows, attention_mask=repeated), [BATCH, 2, 5, 6]),
            1e-5,
        )


@pytest.mark.once
def test_explicit_embeddings_and_another_context(rng):
    layer = layers.LambdaLayer(**_SMALL, position_embedding="explicit")
    arguments = {
        "inputs": rng.normal(size=[BATCH, 5, 4]).astype("float32"),
        "context": rng.normal(size=[BATCH, 3, 7]).astype("float32"),
        "embeddings": rng.normal(size=[5, 3, 3]).astype("float32"),
    }
    layer(**arguments)
    checks.randomize(layer, rng)
    for shape in (
        (1, 3),
        (BATCH, 1, 3),
        (BATCH, HEADS, 5, 3),
        (1, HEADS, 5, 1),
    ):
        mask = rng.integers(0, 2, shape).astype(bool)
        mask.flat[0] = True
        output = layer(**arguments, attention_mask=mask)
        checks.assert_close(output, by_head(layer, arguments, mask), 2e-5)


@pytest.mark.parametrize("name", ["scope", "bias", "causal", "attention_scope"])
def test_one_mask_for_all_queries_needs_no_static_sizes(name, rng):
    layer, x = built(name, rng, 5, **({"scope": 3} if name == "bias" else {}))
    inputs, mask = tf.keras.Input([None, 4]), tf.keras.Input([1, None])
    model = tf.keras.Model([inputs, mask], layer(inputs, attention_mask=mask))
    real = rng.integers(0, 2, [BATCH, 1, 5])
    expected = layer(x, attention_mask=real)
    checks.assert_close(
        model([tf.constant(x), tf.constant(real, tf.float32)]), expected, 1e-5
    )


@pytest.mark.once
@pytest.mark.parametrize("name", ["global", "multi_head", "attention"])
def test_gradients_of_each_head_under_its_own_mask(name, rng):
    layer, x = built(name, rng, 5)
    mask = rng.integers(0, 2, [BATCH, HEADS, 5, 5]).astype(bool)
    mask[:, 1] = mask[:, 0]
    same = checks.output_and_gradients(
        layer,
        {"inputs": x, "attention_mask": mask[:, 0]},
        signal := rng.normal(size=[BATCH, 5, 6]),
    )
    each = checks.output_and_gradients(
        layer, {"inputs": x, "attention_mask": mask}, signal
    )
    checks.assert_close(each[0], same[0], 1e-5)
    for name, gradient in same[1].items():
        checks.assert_close(each[1][name], gradient, 1e-5)


# (mask of what, its shape on a map of 2x3, whether that is one)
_PADDING = [
    ("context_mask", (BATCH, 2, 3), True),
    ("context_mask", (BATCH, 6), True),
    ("context_mask", (1, 6), True),
    ("context_mask", (1, 2, 3), True),
    ("context_mask", (BATCH, 2, 1), True),
    ("context_mask", (BATCH, 2), True),
    ("context_mask", (6, BATCH), False),
    ("context_mask", (3, 4), False),
    ("context_mask", (BATCH, 3, 2), False),
    ("context_mask", (12,), False),
    ("mask", (1, 2, 3), True),
    ("mask", (BATCH, 2), True),
    ("mask", (3, 2, 2), False),
    ("mask", (BATCH, 3, 2), False),
    ("mask", (12,), False),
]
_PADDED = {
    **LAYERS,
    "convolution": (layers.LambdaConv, {"kernel_size": 3, "strides": 2}),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *(
            pytest.param(name, marks=pytest.mark.once)
            for name in ("scope", "content", "attention")
        ),
        "convolution",
    ],
)
def test_padding_is_broadcast_or_refused(name, rng):
    kind, arguments = _PADDED[name]
    layer = kind(**_SMALL, **arguments)
    x = rng.normal(size=[BATCH, 2, 3, 4]).astype("float32")
    unmasked = layer(x)
    for argument, shape, allowed in _PADDING:
        if name == "convolution":
            argument = "mask"
        mask = rng.integers(0, 2, shape).astype(bool)
        mask.flat[0], mask.flat[-1] = True, False
        if not allowed:
            with pytest.raises(ValueError, match=rf"`{argument}`.*\(2, 2, 3\)"):
                layer(x, **{argument: mask})
            continue
        full = mask.reshape([-1, 2, 3]) if shape[-1] == 6 else mask
        full = full[..., None] if full.ndim < 3 else full
        full = np.broadcast_to(full, [BATCH, 2, 3])
        expected = layer(x, **{argument: full})
        for given in (mask, mask.tolist()):
            checks.assert_close(layer(x, **{argument: given}), expected, 1e-6)
        checks.assert_far(unmasked, expected, 1e-3)


def test_what_a_convolution_passes_on(rng):
    # The positions of its queries, whatever the shape of the mask.
    layer = layers.LambdaConv(6, 3, strides=2, num_heads=2, key_dim=3)
    x = tf.constant(rng.normal(size=[BATCH, 4, 3, 4]), tf.float32)
    mask = rng.integers(0, 2, [BATCH, 4, 3]).astype(bool)
    centers = layer.compute_mask(x, tf.constant(mask))
    assert centers.shape == layer(x).shape[:-1]
    for same in (mask.reshape([BATCH, 12]), mask[:, :, :]):
        np.testing.assert_array_equal(
            layer.compute_mask(x, tf.constant(same)), centers
        )
    leading = layer.compute_mask(x, tf.constant(mask[:, :, 0]))
    np.testing.assert_array_equal(leading[..., 0], centers[..., 0])
