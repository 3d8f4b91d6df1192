"""Whatever stands at padding reaches no output and no gradient.

Every way to say what is padding, in every layer that takes one: NaN and
infinity there change nothing of what zeros there give.
"""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from tests.support import checks
from tests.support.random_layers import built

LENGTH, CHANNELS = 11, 5
REAL = np.ones([3, LENGTH], bool)
REAL[0, 7:] = REAL[1, :2] = REAL[1, 5] = False
REAL[2] = False  # an example without any position
PAIRS = REAL[:, :, None] & REAL[:, None]
COLUMNS = np.broadcast_to(REAL[:, None], PAIRS.shape)

_SMALL = {"filters": 6, "num_heads": 2, "key_dim": 3}


@dataclasses.dataclass(frozen=True)
class Row:
    """A layer, its arguments, the masks of its call, what else it is given."""

    layer: type
    arguments: dict
    masks: dict
    context: bool
    embeddings: tuple | None

    @property
    def finite(self):
        """Not at queries of which nothing says that they are padding."""
        return self.context or [*self.masks] != ["attention_mask"]


def _row(layer, masks, context=False, embeddings=None, **arguments):
    return Row(layer, {**_SMALL, **arguments}, masks, context, embeddings)


_lambda = functools.partial(_row, LambdaLayer)
_conv = functools.partial(_row, LambdaConv, {"mask": REAL}, kernel_size=3)
_attention = functools.partial(_row, RelativeAttention)
_CONTEXT, _KERAS = {"context_mask": REAL}, {"mask": REAL}
_QUERIES, _ALONE = {"attention_mask": PAIRS}, {"attention_mask": COLUMNS}
_BOTH = {**_ALONE, **_CONTEXT}
_PAIR = (LENGTH, LENGTH, 3)
_GIVEN = {"position_embedding": "explicit", "embeddings": _PAIR}
_BY_EXAMPLE = {**_GIVEN, "embeddings": (3, *_PAIR)}
_FREE = {"use_position": False, "context": True}
_BIAS, _NO_TABLE = {"use_position_bias": True}, {"position_embedding": None}
_PAST = {"padding": "causal", "dilation_rate": 2}
ROWS = {
    "layer": _lambda(_CONTEXT),
    "layer_keras": _lambda(_KERAS, scope=3),
    "layer_pairs": _lambda(_QUERIES, scope=3),
    "layer_columns": _lambda(_ALONE),
    "layer_both": _lambda(_BOTH, num_heads=6, query_normalization="softmax"),
    "layer_l2": _lambda(_CONTEXT, scope=3, key_normalization="l2"),
    "layer_l2_columns": _lambda(_ALONE, key_normalization="l2"),
    "layer_sums": _lambda(_BOTH, key_normalization=None),
    "multi_head": _lambda(_CONTEXT, scope=3, multi_head=True, **_BIAS),
    "bias_columns": _lambda(_ALONE, **_BIAS),
    "causal": _lambda(_CONTEXT, causal=True, scope=5, use_batch_norm=True),
    "causal_l2": _lambda(_KERAS, causal=True, key_normalization="l2"),
    "causal_columns": _lambda(_ALONE, causal=True),
    "context": _lambda(_CONTEXT, **_FREE),
    "context_columns": _lambda(_ALONE, **_FREE),
    "explicit": _lambda(_CONTEXT, **_BY_EXAMPLE),
    "explicit_keras": _lambda(_KERAS, **_BY_EXAMPLE, num_heads=1),
    "explicit_both": _lambda(_BOTH, **_BY_EXAMPLE, intra_depth=1),
    "explicit_columns": _lambda(_ALONE, **_BY_EXAMPLE),
    "explicit_causal": _lambda(_CONTEXT, **_BY_EXAMPLE, causal=True),
    "explicit_context": _lambda(_CONTEXT, **_BY_EXAMPLE, context=True),
    "explicit_shared": _lambda(_BOTH, **_GIVEN),
    "no_norm": _lambda(_CONTEXT, scope=3, use_batch_norm=False),
    # Positions have an algorithm, over a map as over the past.
    **{
        f"{kind}_{name}": _lambda(_CONTEXT, **arguments, implementation=name)
        for kind, arguments in (
            ("layer", {"scope": 5}),
            ("causal", {"causal": True}),
        )
        for name in ops.implementations(1)[1:]
    },
    "conv": _conv(),
    "conv_strided": _conv(strides=2),
    "conv_valid": _conv(padding="valid", **_BIAS),
    "conv_causal": _conv(**_PAST, use_batch_norm=True),
    "attention": _attention(_CONTEXT),
    "attention_keras": _attention(_KERAS, position_embedding="joint"),
    "attention_local": _attention(_CONTEXT, scope=3),
    "attention_axis": _attention(_CONTEXT, axis=1, scope=5),
    "attention_pairs": _attention(_QUERIES, scope=3),
    "attention_columns": _attention(_ALONE),
    "attention_positions": _attention(_BOTH, use_content=False),
    "attention_causal": _attention(_CONTEXT, causal=True, scope=5),
    "attention_past": _attention(_CONTEXT, causal=True),
    "attention_context": _attention(_CONTEXT, **_NO_TABLE, context=True),
}


def _data(row):
    """Inputs by name with zeros at padding, and where padding is."""
    rng = np.random.default_rng(0)
    shape = [3, LENGTH, CHANNELS]
    data = {"inputs": rng.normal(size=shape)}
    padding = {"inputs": ~REAL}
    if row.context:
        data["context"] = rng.normal(size=shape)
        padding = {"inputs": np.zeros_like(REAL), "context": ~REAL}
    if row.embeddings is not None:
        data["embeddings"] = rng.normal(size=row.embeddings)
        pairs = COLUMNS if row.context else PAIRS
        shared = len(row.embeddings) == 3
        padding["embeddings"] = ~pairs.any(axis=0) if shared else ~pairs
    for name, where in padding.items():
        data[name][where] = 0
    return data, padding


def _bad(data, padding):
    rng = np.random.default_rng(1)
    bad = {name: array.copy() for name, array in data.items()}
    for name, where in padding.items():
        shape = bad[name][where].shape
        bad[name][where] = rng.choice([np.nan, np.inf, -np.inf, 1e3], shape)
    return bad


def _tensors(data):
    return {name: tf.constant(x, tf.float32) for name, x in data.items()}


def _call(row, layer, data, training):
    """The output, gradients of what is real, and weights after the call."""
    tensors = _tensors(data)
    real = np.ones_like(REAL) if row.context else REAL
    if row.layer is LambdaConv:
        real = layer.compute_mask(tensors["inputs"], tf.constant(REAL))
    weights = map(checks.raw, layer.trainable_weights)
    before = layer.get_weights()
    with tf.GradientTape() as tape:
        tape.watch(list(tensors.values()))
        output = layer(**tensors, **row.masks, training=training)
        counted = tf.boolean_mask(output, real)
        loss = tf.reduce_sum(counted**2)
    sources = tensors | {str(i): weight for i, weight in enumerate(weights)}
    gradients = tape.gradient(loss, sources, unconnected_gradients="zero")
    after = layer.get_weights()
    layer.set_weights(before)
    return output.numpy(), counted, gradients, after


# In inference each position is normalized by itself, whatever the mask; in
# training statistics may leak, too.
INFERENCE = ("layer", "layer_pairs", "causal", "explicit", "conv", "attention")


@pytest.mark.representatives(14)
@pytest.mark.parametrize(
    ("name", "training"),
    [
        *((name, True) for name in ROWS),
        *(
            pytest.param(name, False, marks=pytest.mark.once)
            for name in INFERENCE
        ),
    ],
)
def test_padding_stays_padding(name, training):
    row = ROWS[name]
    data, padding = _data(row)
    tensors = _tensors(data)
    inputs, call = tensors.pop("inputs"), {**tensors, **row.masks}
    layer = built(inputs, row.layer, **row.arguments, call=call)
    _, expected, gradients, averages = _call(row, layer, data, training)
    bad = _bad(data, padding)
    assert not np.all(np.isfinite(next(reversed(bad.values()))))
    output, counted, ours, moved = _call(row, layer, bad, training)
    checks.assert_close(counted, expected, 1e-5)
    assert not row.finite or np.all(np.isfinite(output))
    for source, gradient in gradients.items():
        assert np.any(gradient != 0), source
        ours_there = np.array(ours[source])
        assert np.all(np.isfinite(ours_there)), source
        gradient = np.array(gradient)
        if source in padding:
            assert np.all(ours_there[padding[source]] == 0), source
            # Zeros may count in the statistics of a batch.
            gradient[padding[source]] = 0
        checks.assert_close(ours_there, gradient, 2e-5)
    for one, other in zip(averages, moved, strict=True):
        checks.assert_close(other, one, 1e-5)


@pytest.mark.slow
def test_padding_of_a_stream_stays_padding():
    row = _lambda(_KERAS, causal=True, scope=5)
    data, padding = _data(row)
    layer = built(_tensors(data)["inputs"], **row.arguments)
    outputs = []
    for inputs in (data["inputs"], _bad(data, padding)["inputs"]):
        x, state = tf.constant(inputs, tf.float32), layer.initial_state(3)
        parts = []
        for begin, end in ((0, 4), (4, 5), (5, LENGTH)):
            part, mask = x[:, begin:end], REAL[:, begin:end]
            output, state = layer.step(part, state, mask)
            parts.append(output)
        outputs.append(tf.concat(parts, 1))
        assert np.all(np.isfinite(outputs[-1]))
    checks.assert_close(outputs[1][REAL], outputs[0][REAL], 1e-5)


@pytest.mark.parametrize("layer_type", [LambdaLayer, LambdaConv])
@pytest.mark.parametrize("form", ["blank", "padded", "masked", "causal"])
def test_gradients_of_a_blank_example_are_bounded(form, layer_type, rng):
    # Keys of no length cannot be normalized to unit length.
    x = rng.normal(size=[2, LENGTH, CHANNELS])
    arguments, masks = {**_SMALL, "key_normalization": "l2"}, {}
    is_conv = layer_type is LambdaConv
    arguments |= {"kernel_size": 3} if is_conv else {"scope": 3}
    if form == "causal":
        arguments |= {"padding": "causal"} if is_conv else {"causal": True}
        x[:, :4] = 0
    x[1] = 0
    if form == "padded":
        masks["mask"] = np.array([[True] * LENGTH, [False] * LENGTH])
    if form == "masked" and not is_conv:
        masks["attention_mask"] = np.eye(LENGTH)
    layer, x = layer_type(**arguments), tf.constant(x, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x, **masks)
    weights = [checks.raw(weight) for weight in layer.trainable_weights]
    (gradient, *others) = tape.gradient(output, [x, *weights])
    assert np.max(np.abs(gradient)) < 100
    for other in others:
        assert np.all(np.isfinite(other))
