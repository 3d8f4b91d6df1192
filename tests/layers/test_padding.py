"""Whatever stands at padding reaches no output and no gradient.

Every way to say what is padding, in every layer that takes one: NaN and
infinity there change nothing of what zeros there give.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import ops
from tests.support import checks

LENGTH, CHANNELS = 11, 5
REAL = np.ones([3, LENGTH], bool)
REAL[0, 7:] = REAL[1, :2] = REAL[1, 5] = False
REAL[2] = False  # an example without any position
PAIRS = REAL[:, :, None] & REAL[:, None]
COLUMNS = np.broadcast_to(REAL[:, None], PAIRS.shape)

_SMALL = {"filters": 6, "num_heads": 2, "key_dim": 3}


@dataclasses.dataclass(frozen=True)
class Row:
    """A layer, its arguments, and the masks of its call.

    `context` and `embeddings` say what else the call is given; `finite`
    whether the outputs at padding are finite: not if nothing says that these
    queries are padding.
    """

    layer: type
    arguments: dict
    masks: dict
    context: bool = False
    embeddings: tuple | None = None
    finite: bool = True


def _lambda(masks, **arguments):
    more = {n: arguments.pop(n) for n in _FIELDS if n in arguments}
    return Row(layers.LambdaLayer, {**_SMALL, **arguments}, masks, **more)


def _conv(**arguments):
    arguments = {**_SMALL, "kernel_size": 3, **arguments}
    return Row(layers.LambdaConv, arguments, {"mask": REAL})


def _attention(masks, **arguments):
    more = {n: arguments.pop(n) for n in _FIELDS if n in arguments}
    return Row(layers.RelativeAttention, {**_SMALL, **arguments}, masks, **more)


_FIELDS = ("context", "embeddings", "finite")
_CONTEXT, _KERAS = {"context_mask": REAL}, {"mask": REAL}
_QUERIES, _ALONE = {"attention_mask": PAIRS}, {"attention_mask": COLUMNS}
_BOTH = {**_ALONE, **_CONTEXT}
_PAIR = (LENGTH, LENGTH, 3)
_GIVEN = {"position_embedding": "explicit", "embeddings": _PAIR}
_BY_EXAMPLE = {**_GIVEN, "embeddings": (3, *_PAIR)}
_FREE = {"use_position": False, "context": True}
ROWS = {
    "layer": _lambda(_CONTEXT),
    "layer_keras": _lambda(_KERAS, scope=3),
    "layer_pairs": _lambda(_QUERIES, scope=3, finite=False),
    "layer_columns": _lambda(_ALONE, finite=False),
    "layer_both": _lambda(_BOTH, num_heads=6, query_normalization="softmax"),
    "layer_l2": _lambda(_CONTEXT, scope=3, key_normalization="l2"),
    "layer_l2_columns": _lambda(_ALONE, key_normalization="l2", finite=False),
    "layer_sums": _lambda(_BOTH, key_normalization=None),
    "multi_head": _lambda(
        _CONTEXT, scope=3, multi_head=True, use_position_bias=True
    ),
    "bias_columns": _lambda(_ALONE, use_position_bias=True, finite=False),
    "causal": _lambda(_CONTEXT, causal=True, scope=5, use_batch_norm=True),
    "causal_l2": _lambda(_KERAS, causal=True, key_normalization="l2"),
    "causal_columns": _lambda(_ALONE, causal=True, finite=False),
    "context": _lambda(_CONTEXT, **_FREE),
    "context_columns": _lambda(_ALONE, **_FREE),
    "explicit": _lambda(_CONTEXT, **_BY_EXAMPLE),
    "explicit_keras": _lambda(_KERAS, **_BY_EXAMPLE, num_heads=1),
    "explicit_both": _lambda(_BOTH, **_BY_EXAMPLE, intra_depth=1),
    "explicit_columns": _lambda(_ALONE, **_BY_EXAMPLE, finite=False),
    "explicit_causal": _lambda(_CONTEXT, **_BY_EXAMPLE, causal=True),
    "explicit_context": _lambda(_CONTEXT, **_BY_EXAMPLE, context=True),
    "explicit_shared": _lambda(_BOTH, **_GIVEN),
    "no_norm": _lambda(_CONTEXT, scope=3, use_batch_norm=False),
    # Positions have an algorithm, over a map as over the past.
    **{
        f"layer_{name}": _lambda(_CONTEXT, scope=5, implementation=name)
        for name in ops.implementations(1)[1:]
    },
    **{
        f"causal_{name}": _lambda(_CONTEXT, causal=True, implementation=name)
        for name in ops.implementations(1)[1:]
    },
    "conv": _conv(),
    "conv_strided": _conv(strides=2),
    "conv_valid": _conv(padding="valid", use_position_bias=True),
    "conv_causal": _conv(
        padding="causal", dilation_rate=2, use_batch_norm=True
    ),
    "attention": _attention(_CONTEXT),
    "attention_keras": _attention(_KERAS, position_embedding="joint"),
    "attention_local": _attention(_CONTEXT, scope=3),
    "attention_axis": _attention(_CONTEXT, axis=1, scope=5),
    "attention_pairs": _attention(_QUERIES, scope=3, finite=False),
    "attention_columns": _attention(_ALONE, finite=False),
    "attention_positions": _attention(_BOTH, use_content=False),
    "attention_causal": _attention(_CONTEXT, causal=True, scope=5),
    "attention_past": _attention(_CONTEXT, causal=True),
    "attention_context": _attention(
        _CONTEXT, position_embedding=None, context=True
    ),
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


def _real_outputs(row, layer, inputs):
    """Where outputs count, `(batch, n)`."""
    if row.context:
        return np.ones_like(REAL)
    if isinstance(layer, layers.LambdaConv):
        return layer.compute_mask(inputs, tf.constant(REAL)).numpy()
    return REAL


def _tensors(data):
    return {name: tf.constant(x, tf.float32) for name, x in data.items()}


def _call(row, layer, data, training):
    """The output, gradients of what is real, and weights after the call."""
    tensors = _tensors(data)
    weights = [checks.raw(weight) for weight in layer.trainable_weights]
    before = layer.get_weights()
    with tf.GradientTape() as tape:
        tape.watch(list(tensors.values()))
        output = layer(**tensors, **row.masks, training=training)
        counted = tf.boolean_mask(
            output, _real_outputs(row, layer, tensors["inputs"])
        )
        loss = tf.reduce_sum(counted**2)
    gradients = tape.gradient(
        loss, [*tensors.values(), *weights], unconnected_gradients="zero"
    )
    after = layer.get_weights()
    layer.set_weights(before)
    gradients = dict(zip([*tensors, *range(99)], gradients, strict=False))
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
    layer = row.layer(**row.arguments)
    data, padding = _data(row)
    layer(**_tensors(data), **row.masks)
    checks.randomize(layer, np.random.default_rng(5))
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
    layer = row.layer(**row.arguments)
    data, padding = _data(row)
    layer(tf.constant(data["inputs"], tf.float32))
    checks.randomize(layer, np.random.default_rng(5))
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


@pytest.mark.parametrize("layer_type", [layers.LambdaLayer, layers.LambdaConv])
@pytest.mark.parametrize("form", ["blank", "padded", "masked", "causal"])
def test_gradients_of_a_blank_example_are_bounded(form, layer_type, rng):
    # Keys of no length cannot be normalized to unit length.
    x = rng.normal(size=[2, LENGTH, CHANNELS])
    arguments, masks = {**_SMALL, "key_normalization": "l2"}, {}
    is_conv = layer_type is layers.LambdaConv
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
