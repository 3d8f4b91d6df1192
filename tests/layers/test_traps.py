"""Mistakes that other implementations made, one test each."""

import functools
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
from tests.support.checks import built
from tests.support.checks import normal

pytestmark = pytest.mark.every_lane

_SIZE = {"filters": 10, "num_heads": 2, "key_dim": 3}
_CAUSAL = {"causal": True}


def test_config_tells_the_truth():
    """An argument that a config forgets would come back as its default."""
    changed = {"name": "own", "dtype": "mixed_bfloat16", "trainable": False}
    for case in cases.CASES:
        config = checks.plain(case.make(**changed).get_config())
        names = {*inspect.signature(case.layer.__init__).parameters}
        assert names - {"self", "args", "kwargs"} <= config.keys(), case.name
        for name, value in case.arguments.items():
            if isinstance(value, str | int | float):
                assert config[name] == value, (case.name, name)
        copy = case.layer.from_config(config)
        assert checks.plain(copy.get_config()) == config, case.name
        assert (copy.name, copy.compute_dtype) == ("own", "bfloat16")
        assert not copy.trainable


def test_a_table_serves_any_number_of_channels():
    table = RelativePositionEmbedding(3)
    for channels in (8, 4):
        assert table(tf.zeros([2, 5, channels])).shape == (5, 5, 3)


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


# A layer, and the length that its model knows.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer_type", "arguments", "length"),
    [
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


_PAST = {"padding": "causal", "kernel_size": 3}
_PAIRS = np.random.default_rng(0).random([20, 20]) < 0.7
FUTURE = {
    "global": (LambdaLayer, _CAUSAL),
    "mask": (LambdaLayer, {**_CAUSAL, "scope": 5}, {"attention_mask": _PAIRS}),
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
    layer_type, arguments, *call = FUTURE[kind]
    x = normal(rng, 2, 20, 5)
    layer = built(x, layer_type, **_SIZE, **arguments)
    apply = functools.partial(layer, **dict(*call))
    # Statistics of a batch would tell of the future.
    assert not getattr(layer, "use_batch_norm", False)
    past = 9 // arguments.get("strides", 1) + 1
    changed = np.concatenate([x[:, :10], normal(rng, 2, 10, 5)], axis=1)
    for training in (False, True):
        expected = apply(x, training=training).numpy()
        output = apply(changed, training=training).numpy()
        np.testing.assert_array_equal(output[:, :past], expected[:, :past])
        checks.assert_far(output[:, past:], expected[:, past:])
    # The present must count: or a layer shifted by one would pass.
    changed[:, 9] += 1
    checks.assert_far(layer(changed)[:, past - 1], expected[:, past - 1], 1e-3)
