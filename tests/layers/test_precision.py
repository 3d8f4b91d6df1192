"""Sums over positions and examples in half precision: float32 or wider.

Numbers that are all equal are the worst: a sum in bfloat16 stops at 256 times
its term, one in float16 at 2,048 times, and what is rounded is always rounded
the same way.
"""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import ops
from tests.support import checks

# A handful of roundings, one after the other.
TOLERANCE = {"bfloat16": 2e-2, "float16": 2.5e-3}
every_half = pytest.mark.parametrize("half", TOLERANCE)

_SMALL = {"filters": 2, "num_heads": 1, "key_dim": 2}
_SEQUENCE, _MAP, _SHORT = (2499, 2), (50, 51, 2), (301, 2)
_SEEN = np.ones([301, 301], bool)
_REAL = np.ones([1, 2550], bool)


@dataclasses.dataclass(frozen=True)
class Row:
    """A layer, its arguments, the shape of its inputs, and what else it gets.

    Shapes are without the batch axis.
    """

    layer: type
    arguments: dict
    inputs: tuple
    masks: dict = dataclasses.field(default_factory=dict)
    context: tuple | None = None
    embeddings: tuple | None = None
    batch: int = 1
    training: bool = False

    def tensors(self, dtype):
        """The same number in all places."""
        shapes = {"inputs": self.inputs, "context": self.context}
        data = {
            name: np.full([self.batch, *shape], 0.7)
            for name, shape in shapes.items()
            if shape is not None
        }
        if self.embeddings is not None:
            data["embeddings"] = np.full(self.embeddings, 0.3)
        return {n: tf.constant(_round(x), dtype) for n, x in data.items()}


_FIELDS = ("masks", "context", "embeddings", "batch", "training")


def _row(layer, inputs, **arguments):
    more = {n: arguments.pop(n) for n in _FIELDS if n in arguments}
    return Row(layer, arguments, inputs, **more)


_lambda = functools.partial(_row, layers.LambdaLayer, **_SMALL)
_conv = functools.partial(_row, layers.LambdaConv, **_SMALL, kernel_size=3)
_attention = functools.partial(_row, layers.RelativeAttention, **_SMALL)
_EXPLICIT = {"position_embedding": "explicit", "embeddings": (301, 301, 2)}
ROWS = {
    "global": _lambda((20, 21, 2)),
    "sequence": _lambda(_SEQUENCE),
    "content": _lambda((65536, 2), use_position=False),
    "l2": _lambda(_MAP, scope=3, key_normalization="l2"),
    "sums": _lambda(_SEQUENCE, scope=3, key_normalization=None),
    "multi_head": _lambda(
        _MAP, scope=3, num_heads=2, multi_head=True, use_position_bias=True
    ),
    "bias": _lambda(_MAP, scope=3, use_position_bias=True),
    "mask": _lambda(_SHORT, masks={"attention_mask": _SEEN}),
    "mask_l2": _lambda(
        _SHORT, masks={"attention_mask": _SEEN}, key_normalization="l2"
    ),
    "mask_by_example": _lambda(
        _SHORT, masks={"attention_mask": _SEEN[None]}, key_normalization=None
    ),
    "padding": _lambda(_MAP, scope=3, masks={"context_mask": _REAL}),
    "causal": _lambda(_SEQUENCE, scope=5, causal=True),
    "causal_l2": _lambda(
        _SEQUENCE, scope=5, causal=True, key_normalization="l2"
    ),
    "explicit": _lambda(_SHORT, **_EXPLICIT),
    "explicit_causal": _lambda(_SHORT, **_EXPLICIT, causal=True),
    "conv": _conv(_MAP),
    "conv_strided": _conv(_MAP, strides=2),
    "conv_causal": _conv(_SEQUENCE, padding="causal"),
    "conv_valid": _conv((13, 14, 15, 2), padding="valid"),
    "attention": _attention((20, 21, 2)),
    "attention_joint": _attention((20, 21, 2), position_embedding="joint"),
    "attention_local": _attention(_MAP, scope=3),
    "attention_axis": _attention((600, 3, 2), axis=1),
    "attention_causal": _attention(_SEQUENCE, scope=5, causal=True),
    "attention_mask": _attention(_SHORT, masks={"attention_mask": _SEEN}),
    "attention_padding": _attention(
        _MAP, scope=3, masks={"context_mask": _REAL}
    ),
    "attention_context": _attention(
        (3, 2), context=(65536, 2), position_embedding=None
    ),
    "embedding": _row(layers.RelativePositionEmbedding, (701, 2), key_dim=2),
    "squeeze_excite": _row(
        layers.SqueezeExcite, (256, 256, 2), ratio=1.0, batch=2
    ),
    "squeeze_excite_examples": _row(
        layers.SqueezeExcite, (3, 2), ratio=1.0, batch=4099
    ),
    "batch_normalization": _row(layers.BatchNormalization, _MAP),
    "batch_statistics": _row(layers.BatchNormalization, _MAP, training=True),
    "dropout": _row(layers.Dropout, _MAP, rate=0.5),
    "stochastic_depth": _row(layers.StochasticDepth, _MAP, rate=0.5),
}
ROWS |= {
    name: _lambda(_MAP, scope=3, implementation=name)
    for name in ops.implementations(2)
    if name not in ("auto", "einsum")
}
ROWS["einsum"] = _lambda(_SHORT, implementation="einsum")
ROWS |= {
    name: _lambda(_SEQUENCE, implementation=name)
    for name in ops.implementations(1)
    if name not in ops.implementations(2)
}


# What differs between the Kerases: weights in half precision, statistics.
BOTH_KERASES = (
    *("global", "bias", "mask", "padding", "causal", "explicit", "conv"),
    *("attention", "attention_causal", "embedding"),
    *("squeeze_excite", "squeeze_excite_examples"),
    *("batch_normalization", "batch_statistics"),
    *("dropout", "stochastic_depth"),
)


def _round(array):
    """The nearest numbers that both half precisions have."""
    narrow = tf.cast(tf.cast(array, tf.bfloat16), tf.float16)
    return tf.cast(narrow, tf.float64).numpy()


def _weights(layer):
    """Different from weight to weight, equal within each."""
    return [
        _round(np.full(weight.shape, 0.25 + index / 16))
        for index, weight in enumerate(layer.weights)
    ]


def output_and_gradients(row, layer, share=1.0):
    """Of a layer's call: the output, and gradients by their name.

    The gradients are those of the sum of the output times `share`.
    """
    data = row.tensors(layer.compute_dtype)
    weights = {
        f"{index} {weight.name.split('/')[-1]}": checks.raw(weight)
        for index, weight in enumerate(layer.trainable_weights)
    }
    sources = {**data, **weights}
    with tf.GradientTape() as tape:
        tape.watch(list(data.values()))
        output = layer(**data, **row.masks, training=row.training)
        loss = tf.reduce_sum(tf.cast(output, tf.float64)) * share
    gradients = tape.gradient(loss, sources, unconnected_gradients="zero")
    return {"output": output, **gradients}


def _largest(arrays):
    return max(np.max(np.abs(array)) for array in arrays.values())


def _built(row, dtype):
    layer = row.layer(**row.arguments, dtype=dtype)
    layer(**row.tensors(layer.compute_dtype), **row.masks)
    layer.set_weights(_weights(layer))
    return layer


@pytest.mark.slow
@pytest.mark.representatives(14)
@pytest.mark.parametrize(
    "name",
    [
        name
        if name in BOTH_KERASES
        else pytest.param(name, marks=pytest.mark.once_a_version)
        for name in ROWS
    ],
)
def test_equal_numbers_add_up(name):
    row = ROWS[name]
    wide = _built(row, "float64")
    largest = _largest(output_and_gradients(row, wide))
    # In float16 the gradient of a kernel must not overflow.
    share = min(1.0, 2.0 ** np.floor(np.log2(2.0**14 / largest)))
    wide.set_weights(_weights(wide))
    expected = output_and_gradients(row, wide, share)
    # Where the gradients of equal numbers cancel, what counts is the terms.
    largest = _largest(expected)
    for half, tolerance in TOLERANCE.items():
        layer = _built(row, f"mixed_{half}")
        found = output_and_gradients(row, layer, share)
        for name, array in expected.items():
            scale = np.max(np.abs(array))
            scale = largest if scale < 1e-6 * largest else scale
            error = np.max(np.abs(tf.cast(found[name], tf.float64) - array))
            assert error <= tolerance * scale, (half, name, error / scale)
        for one, other in zip(wide.weights, layer.weights, strict=True):
            one, other = checks.raw(one), tf.cast(checks.raw(other), tf.float64)
            checks.assert_close(other, one, tolerance)


def test_every_public_layer_is_swept():
    swept = {row.layer.__name__ for row in ROWS.values()}
    assert swept == set(layers.__all__)


@pytest.mark.slow
@every_half
def test_a_stream_adds_up(half):
    row = ROWS["causal"]
    outputs = []
    for dtype in ("float64", f"mixed_{half}"):
        layer = _built(row, dtype)
        x = row.tensors(layer.compute_dtype)["inputs"]
        state = layer.initial_state(1)
        for begin in (0, 2000):
            output, state = layer.step(x[:, begin : begin + 2000], state)
        outputs.append(tf.cast(output, tf.float64))
    checks.assert_close(outputs[1], outputs[0], TOLERANCE[half])


@pytest.mark.slow
@every_half
def test_networks_pool_in_single_precision(half):
    tf.keras.mixed_precision.set_global_policy(f"mixed_{half}")
    model = models.LambdaResNetSmall(
        include_top=False, input_shape=(32, 32, 3), pooling="avg"
    )
    pool = model.get_layer("pool")
    mean = pool(tf.fill([1, 256, 256, 2], tf.constant(3.0, half)))
    checks.assert_close(tf.cast(mean, tf.float32), np.full([1, 2], 3.0), 1e-6)


# Operations that add up, on the way from queries to outputs.
_PRODUCTS = ("Einsum", "BatchMatMulV2", "MatMul", "Conv2D")


def _graph(dtype, device):
    """The operations of a small layer, planned for a device."""

    @tf.function
    def read(queries, keys, values, table):
        geometry = ops.Geometry.of([ops.same_axis(8, 3)] * 2)
        keys, values = keys[:, :, None], values[:, :, None]
        return ops.lambda_output(queries, keys, values, table, geometry)

    shapes = [1, 64, 2, 4], [1, 64, 4, 1], [1, 64, 8, 1], [3, 3, 4, 1]
    with ops.planning_for(device):
        specs = [tf.TensorSpec(shape, dtype) for shape in shapes]
        return read.get_concrete_function(*specs).graph.get_operations()


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize(
    ("device", "half", "factors"),
    [
        ("cpu", "bfloat16", {"float32"}),
        ("cpu", "float16", {"float32"}),
        ("tpu", "bfloat16", {"bfloat16"}),
        ("tpu", "float16", {"float32"}),
        ("gpu", "bfloat16", {"bfloat16"}),
        # In float32 what is summed over all positions.
        ("gpu", "float16", {"float16", "float32"}),
    ],
)
def test_matrix_units_are_given_half_precision(device, half, factors):
    found = {
        operation.inputs[0].dtype.name
        for operation in _graph(half, device)
        if operation.type in _PRODUCTS
    }
    assert found == factors


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("device", ops.DEVICES)
def test_single_precision_is_not_cast(device, dtype):
    for operation in _graph(dtype, device):
        if operation.type == "Cast":
            assert not operation.inputs[0].dtype.is_floating, operation.name
