"""Mistakes that other implementations made, one test each.

That embeddings are trained, which others forgot, `test_conformance.py` shows of
every layer.
"""

import inspect
import sys

import numpy as np
import pytest
import tensorflow as tf

import lambdanet_tf
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from lambdanet_tf.layers import RelativePositionEmbedding
from tests.support import cases
from tests.support import checks
from tests.support.random_layers import built
from tests.support.random_layers import normal
from tests.support.random_layers import twin

pytestmark = pytest.mark.every_lane

_SIZE = {"filters": 10, "num_heads": 2, "key_dim": 3}
_CAUSAL = {"causal": True}

_OFF = ("use_content", "use_position", "use_batch_norm", "trainable")
_ON = ("use_position_bias", "causal", "use_sync_bn")
_TRAINED = ("embeddings", "kernel")
_PARTS = ("query", "key", "value", "position_bias", *_TRAINED)
_UNIFORM = tf.keras.initializers.RandomUniform
# An argument that a config forgets, or writes down wrongly, comes back as its
# default: none of these is.
EVERY_ARGUMENT = {
    **dict.fromkeys(_OFF, False),
    **dict.fromkeys(_ON, True),
    "filters": 24,
    "num_heads": 3,
    "key_dim": 5,
    "intra_depth": 2,
    "scope": 3,
    "position_embedding": "explicit",
    "axis": 2,
    "implementation": "conv2d",
    "key_normalization": "l2",
    "query_normalization": "softmax",
    "norm_momentum": 0.5,
    "norm_epsilon": 0.25,
    "kernel_size": (3, 5),
    "strides": (1, 2),
    "dilation_rate": 2,
    "padding": "valid",
    "ratio": 0.75,
    "activation": "gelu",
    "rate": 0.625,
    "dtype": "mixed_bfloat16",
    "name": "some_name",
    **{f"{x}_regularizer": tf.keras.regularizers.L1(0.5) for x in _TRAINED},
    **{f"{x}_constraint": tf.keras.constraints.MaxNorm(7.0) for x in _TRAINED},
    **{f"{name}_initializer": _UNIFORM(-3.0, 3.0, seed=4) for name in _PARTS},
}
_POSITION_EMBEDDINGS = {
    LambdaConv: RelativePositionEmbedding(16, scope=(3, 5)),
    RelativeAttention: "joint",
}


@pytest.mark.parametrize(
    "layer_type",
    dict.fromkeys(case.layer for case in cases.CASES if case.has_own_config),
)
def test_config_tells_the_truth(layer_type):
    parameters = inspect.signature(layer_type.__init__).parameters
    names = [name for name in parameters if name not in ("self", "kwargs")]
    empty = inspect.Parameter.empty
    required = [name for name in names if parameters[name].default is empty]
    required = {name: EVERY_ARGUMENT[name] for name in required}
    ordinary = checks.plain(layer_type(**required).get_config())
    for name in [*names, "dtype", "trainable", "name"]:
        value = EVERY_ARGUMENT[name]
        if name == "position_embedding":
            value = _POSITION_EMBEDDINGS.get(layer_type, value)
        layer = layer_type(**{**required, name: value})
        config = layer.get_config()
        if name not in required:
            assert checks.plain(config)[name] != ordinary[name], name
        copy = layer_type.from_config(checks.plain(config))
        assert checks.plain(copy.get_config()) == checks.plain(config), name
        if isinstance(value, str | int | float) and name != "dtype":
            assert config[name] == value
            if name not in ("activation", "position_embedding"):
                assert getattr(copy, name) == value
        if hasattr(value, "get_config"):
            assert type(getattr(copy, name)) is type(value)
            assert getattr(copy, name).get_config() == value.get_config()
        if name == "dtype":
            assert copy.compute_dtype == "bfloat16"


def test_activity_regularizers_are_kept():
    layer = LambdaLayer(**_SIZE, activity_regularizer="l2")
    copy = LambdaLayer.from_config(checks.plain(layer.get_config()))
    copy(tf.ones([1, 3, 4]))
    assert len(copy.losses) == 1


class Block(tf.keras.layers.Layer):
    """A user's own block, which makes its layers in the constructor."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = LambdaLayer(6, num_heads=2, key_dim=3, scope=3)

    def build(self, input_shape):
        self.inner.build(input_shape)
        super().build(input_shape)

    def call(self, inputs):
        return self.inner(inputs)


def test_layers_inside_others_are_saved(rng, tmp_path):
    inputs = tf.keras.Input([4, 5, 6])
    model = tf.keras.Model(inputs, Block()(inputs))
    x = normal(rng, 2, 4, 5, 6)
    model.save(tmp_path / "model.keras")
    ours = {"Block": Block}
    loaded = tf.keras.models.load_model(tmp_path / "model.keras", ours)
    checks.assert_close(loaded(x), model(x), 1e-6)


@pytest.mark.slow
def test_other_keras_is_refused():
    # A Keras 3 layer in a tf_keras model runs, and is never trained.
    other = pytest.importorskip("tf_keras" if KERAS_3 else "keras")
    if other.layers.Layer is tf.keras.layers.Layer:
        pytest.skip("TensorFlow 2.15 has one Keras")
    for case in cases.CASES:
        tensors = {name: other.Input(x) for name, x in case.shapes.items()}
        with pytest.raises(ValueError, match="TF_USE_LEGACY_KERAS"):
            case.call(case.make(), tensors)


@pytest.mark.slow
@pytest.mark.parametrize("normalization", ["softmax", "l2"])
@pytest.mark.parametrize("causal", [False, True])
def test_large_logits(causal, normalization):
    """The oracle's output and finite gradients, for weights of integers."""
    # One-hot inputs: every logit is a product with 1, up to 58 * 1024, which
    # both half types have.
    length, rng = 70, np.random.default_rng(3)
    steps = rng.integers(-58, 59, [length, 6])
    steps[:, 0] = np.round(np.linspace(-58, 58, length))  # rising
    steps[:, 1] = -steps[:, 0]  # falling
    steps[:, 2] = 58  # all the same
    x = np.eye(length, dtype="float32")[None]
    size = {"filters": 4, "num_heads": 1, "key_dim": 3, "intra_depth": 2}
    norms = {"key_normalization": normalization, "use_batch_norm": False}
    layer = built(x, **size, **norms, scope=3, causal=causal)
    table = layer.position_embedding.embeddings
    for weight in (layer.query.kernel, layer.value.kernel, table):
        weight.assign(rng.integers(-2, 3, weight.shape))
    layer.key.kernel.assign(1024 * steps)
    arguments = {"inputs": x}
    expected = checks.oracle_output(layer, arguments)
    policies = {"float32": 1e-5, "mixed_float16": 5e-3, "mixed_bfloat16": 4e-2}
    for policy, tolerance in policies.items():
        # Gradients of the inputs are as large as the keys; small enough for
        # half.
        other = twin(layer, x, dtype=policy)
        output, slopes = checks.output_and_gradients(other, arguments, 2.0**-10)
        checks.assert_close(output.astype(np.float64), expected, tolerance)
        for name, slope in slopes.items():
            assert np.all(np.isfinite(slope)), (policy, name)
        assert np.any(slopes["value"] != 0)


# A layer, and the length that its model knows.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer_type", "arguments", "length"),
    [
        (LambdaLayer, {}, 5),
        (LambdaLayer, _CAUSAL, 5),
        (LambdaConv, {"kernel_size": 3, "strides": 2}, None),
        (RelativeAttention, {}, 5),
    ],
)
def test_keras_mask_pads_and_travels_on(layer_type, arguments, length, rng):
    # As many examples as positions, to be mistaken.
    real = np.arange(5) < [[4], [1], [2], [4], [3]]
    tokens = rng.integers(1, 9, real.shape) * real
    layer = layer_type(**_SIZE, **arguments)
    inputs = tf.keras.Input([length], dtype="int32")
    embedding = tf.keras.layers.Embedding(9, 7, mask_zero=True)
    pool = tf.keras.layers.GlobalAveragePooling1D()
    model = tf.keras.Model(inputs, pool(layer(embedding(inputs))))
    checks.randomize(model, rng)
    x = tf.gather(checks.raw(embedding.embeddings), tokens)
    expected = checks.oracle_output(layer, {"inputs": x, "context_mask": real})
    checks.assert_far(checks.oracle_output(layer, {"inputs": x}), expected)
    real = real[:, :: arguments.get("strides", 1)]
    means = np.sum(expected * real[..., None], axis=1) / real.sum(1)[:, None]
    for call in (model, tf.function(model)):
        checks.assert_close(call(tf.constant(tokens)), means, 1e-5)


@pytest.mark.parametrize("layer_type", [LambdaLayer, RelativeAttention])
def test_keras_masks_outlive_casts_and_other_arguments(layer_type, rng):
    tokens = tf.constant([[1, 2, 0, 0], [3, 1, 4, 0]])
    free = {"position_embedding": "explicit", "use_position": False}
    free = free if layer_type is LambdaLayer else {"position_embedding": None}
    layer = layer_type(**_SIZE, **free, dtype="mixed_bfloat16")
    embedded = tf.keras.layers.Embedding(9, 7, mask_zero=True)(tokens)
    bare, real = tf.identity(embedded), tokens > 0
    x, pairs = normal(rng, 2, 5, 7), np.ones([4, 4], bool)
    expected = layer(x, bare, context_mask=real)
    np.testing.assert_array_equal(layer(x, embedded), expected)
    expected = layer(bare, mask=real)
    found = layer(embedded, attention_mask=pairs)
    checks.assert_close(found, expected, 1e-2)
    if layer_type is LambdaLayer:
        read = layer.read(embedded).content
        np.testing.assert_array_equal(read, layer.read(bare, mask=real).content)


def test_the_way_of_a_tensor_is_short(rng):
    """What one must know to follow a call: "The code in an hour"."""
    x, seen = tf.constant(normal(rng, 2, 14, 14, 64)), set()
    layer = built(x, LambdaLayer, scope=7)
    layer(x)
    package = lambdanet_tf.__path__[0]

    def note(frame, event, _):
        code = frame.f_code
        is_ours = code.co_filename.startswith(package)
        is_ours &= "<" not in code.co_name  # a generator
        if event == "call" and is_ours:
            seen.add((code.co_filename, code.co_name))

    sys.setprofile(note)
    try:
        layer(x)
    finally:
        sys.setprofile(None)
    assert len(seen) <= 45
    assert len({file for file, _ in seen}) <= 12


@pytest.mark.parametrize("layer_type", [LambdaLayer, RelativeAttention])
@pytest.mark.parametrize("policy", ["float32", "float64"])
def test_one_tensor_given_twice_is_no_other_context(layer_type, policy, rng):
    """Also where a cast, or NumPy, would make two tensors of it."""
    real, x = np.arange(5) < [[4], [2]], normal(rng, 2, 5, 7)
    layer = layer_type(**_SIZE, scope=3, dtype=policy)
    expected = layer(tf.constant(x), mask=real)
    for given in (x, tf.constant(x)):
        found = layer(given, given, mask=real)
        np.testing.assert_array_equal(found, expected)


_PAST = {"padding": "causal", "kernel_size": 3}
FUTURE = {
    "global": (LambdaLayer, _CAUSAL),
    "scope": (LambdaLayer, {**_CAUSAL, "scope": 5}),
    "dilated": (LambdaConv, {**_PAST, "dilation_rate": 2}),
    "strided": (LambdaConv, {**_PAST, "kernel_size": 5, "strides": 3}),
    "l2": (LambdaLayer, {**_CAUSAL, "key_normalization": "l2"}),
    "attention": (RelativeAttention, _CAUSAL),
    "attention_scope": (RelativeAttention, {**_CAUSAL, "scope": 7}),
    "attention_axis": (RelativeAttention, {**_CAUSAL, "axis": 1}),
}


@pytest.mark.parametrize("kind", FUTURE)
def test_the_future_changes_nothing(kind, rng):
    layer_type, arguments = FUTURE[kind]
    x = normal(rng, 2, 20, 5)
    layer = built(x, layer_type, **_SIZE, **arguments)
    # Statistics of a batch would tell of the future.
    assert not getattr(layer, "use_batch_norm", False)
    past = 9 // arguments.get("strides", 1) + 1
    changed = np.concatenate([x[:, :10], normal(rng, 2, 10, 5)], axis=1)
    for training in (False, True):
        expected = layer(x, training=training).numpy()
        output = layer(changed, training=training).numpy()
        np.testing.assert_array_equal(output[:, :past], expected[:, :past])
        checks.assert_far(output[:, past:], expected[:, past:])
    # The present must count: or a layer shifted by one would pass.
    changed[:, 9] += 1
    checks.assert_far(layer(changed)[:, past - 1], expected[:, past - 1], 1e-3)
