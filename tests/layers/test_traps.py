"""Mistakes that other implementations made, one test each.

Wrong forms are written out and shown to be far from the layer, so that a test
that could not fail would be noticed. That embeddings are trained, which others
forgot, `test_conformance.py` shows of every layer.
"""

import inspect
import json

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import ops
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from lambdanet_tf.layers.randomness import random_streams
from tests.support import attention_oracle
from tests.support import cases
from tests.support import checks
from tests.support import oracle
from tests.support.random_layers import attention
from tests.support.random_layers import built
from tests.support.random_layers import normal
from tests.support.random_layers import spoilt
from tests.support.random_layers import twin

pytestmark = pytest.mark.every_lane
ONCE_A_VERSION = pytest.mark.once_a_version

_SIZE = {"filters": 10, "num_heads": 2, "key_dim": 3}
_CAUSAL = {"causal": True}


# Wrong forms -----------------------------------------------------------------


def over_depth(keys):
    """Softmax over the key depth instead of the positions."""
    return np.moveaxis(oracle.softmax(np.moveaxis(keys, 2, 0)), 0, 2)


def over_everything(keys):
    """Softmax over positions and depth together."""
    return oracle.softmax(keys.reshape(-1, 1)).reshape(keys.shape)


def swapped(blocks):
    """Reads a kernel's channels with its two axes in the wrong order."""

    def wrong(weight):
        parts = weight.reshape(len(weight), blocks, -1)
        return parts.swapaxes(1, 2).reshape(weight.shape)

    return wrong


def shifted(table):
    """The centre of the scope one position off."""
    return np.roll(table, 1, 0)


def cut(table):
    """The scope one position too small on each side."""
    assert len(table) == 3
    return table[1:-1]


def unscaled(array):
    """The root of the depth forgotten."""
    return array * np.sqrt(3)


_AXES = ("axis1_embedding", "axis2_embedding")
_NORMS = ("query_gamma", "query_beta", "query_mean", "query_variance")
_NORMS += ("value_gamma", "value_beta", "value_mean", "value_variance")
# Of the oracle: other settings, or what is made of weights; None is nothing.
WRONG_LAYERS = {
    "softmax_over_depth": {"key_normalization": over_depth},
    "softmax_over_everything": {"key_normalization": over_everything},
    "softmax_forgotten": {"key_normalization": None},
    "queries_softmaxed": {"query_normalization": "softmax"},
    "query_heads_minor": {"query": swapped(2)},
    "key_intra_depth_major": {"key": swapped(3)},
    "value_intra_depth_major": {"value": swapped(5)},
    # The entry for n - m instead of m - n, here and with `tables_reversed`.
    "table_flipped": {"embeddings": lambda table: table[::-1, ::-1]},
    "table_transposed": {"embeddings": lambda table: table.swapaxes(0, 1)},
    "table_off_by_one": {"embeddings": shifted},
    "content_forgotten": {"use_content": False},
    "position_forgotten": {"use_position": False},
    "position_bias_forgotten": {"position_bias": None},
    "batch_norm_forgotten": dict.fromkeys(_NORMS),
    "batch_statistics_in_inference": {"training": True},
}
WRONG_ATTENTION = {
    "tables_reversed": dict.fromkeys(_AXES, np.flipud),
    "tables_exchanged": dict(zip(_AXES, _AXES[::-1], strict=True)),
    "tables_off_by_one": dict.fromkeys(_AXES, shifted),
    "scale_forgotten": {"query": unscaled},
    "scale_of_content_alone": dict.fromkeys(_AXES, unscaled),
    "attention_query_heads_minor": {"query": swapped(2)},
    "attention_value_heads_minor": {"value": swapped(2)},
    "attention_content_forgotten": {"use_content": False},
    "scope_too_small": {"scope": 1, **dict.fromkeys(_AXES, cut)},
    "lines_only": {"axis": 1, "scope": 3},
}
WRONG_FORMS = WRONG_LAYERS | WRONG_ATTENTION


def spoil(weights, changes):
    """What is made of weights by functions, names of others, or None."""
    wrong = dict(weights)
    for name in changes.keys() & weights.keys():
        change = changes[name]
        if change is None:
            del wrong[name]
        elif isinstance(change, str):
            wrong[name] = weights[change]
        else:
            wrong[name] = change(weights[name])
    return wrong


@pytest.mark.parametrize("name", WRONG_FORMS)
def test_wrong_form_is_far_from_the_layer(name, rng):
    x = normal(rng, 2, 5, 6, 7)
    if name in WRONG_ATTENTION:
        layer = attention(x, **_SIZE, scope=3)
        reference = attention_oracle.relative_attention
    else:
        layer = built(
            x, **_SIZE, scope=3, intra_depth=2, use_position_bias=True
        )
        reference = oracle.lambda_layer
    weights, _ = checks.split_point(layer, {"inputs": x})
    inputs, settings = weights.pop("inputs"), checks.oracle_settings(layer)
    output, changes = layer(x), WRONG_FORMS[name]
    checks.assert_close(output, reference(inputs, weights, **settings), 1e-5)
    settings |= {n: changes[n] for n in changes.keys() - weights.keys()}
    wrong = reference(inputs, spoil(weights, changes), **settings)
    checks.assert_far(output, wrong)


# Keras -----------------------------------------------------------------------


_PARTS = ("query", "key", "value", "embeddings", "position_bias", "kernel")
_UNIFORM = tf.keras.initializers.RandomUniform
# An argument that a config forgets, or writes down wrongly, comes back as its
# default: none of these is.
EVERY_ARGUMENT = {
    "filters": 24,
    "num_heads": 3,
    "key_dim": 5,
    "intra_depth": 2,
    "scope": 3,
    "use_content": False,
    "use_position": False,
    "use_position_bias": True,
    "multi_head": True,
    "causal": True,
    "position_embedding": "explicit",
    "axis": 2,
    "implementation": "conv2d",
    "key_normalization": "l2",
    "query_normalization": "softmax",
    "use_batch_norm": False,
    "norm_momentum": 0.5,
    "norm_epsilon": 0.25,
    "use_sync_bn": True,
    "kernel_size": (3, 5),
    "strides": (1, 2),
    "dilation_rate": 2,
    "padding": "valid",
    "ratio": 0.75,
    "activation": "gelu",
    "rate": 0.625,
    "dtype": "mixed_bfloat16",
    "trainable": False,
    "name": "some_name",
    "kernel_regularizer": tf.keras.regularizers.L1(0.5),
    "embeddings_regularizer": tf.keras.regularizers.L1(0.5),
    "kernel_constraint": tf.keras.constraints.MaxNorm(7.0),
    "embeddings_constraint": tf.keras.constraints.MaxNorm(7.0),
    **{f"{name}_initializer": _UNIFORM(-3.0, 3.0, seed=4) for name in _PARTS},
}
_POSITION_EMBEDDINGS = {
    LambdaConv: layers.RelativePositionEmbedding(16, scope=(3, 5)),
    RelativeAttention: "joint",
}


@pytest.mark.parametrize(
    "layer_type",
    sorted(
        {case.layer for case in cases.CASES if case.has_own_config},
        key=lambda layer_type: layer_type.__name__,
    ),
)
def test_config_tells_the_truth(layer_type):
    parameters = inspect.signature(layer_type.__init__).parameters
    names = [name for name in parameters if name not in ("self", "kwargs")]
    required = {
        name: EVERY_ARGUMENT[name]
        for name in names
        if parameters[name].default is inspect.Parameter.empty
    }
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
    assert json.dumps(config)


@pytest.mark.slow
def test_other_keras_is_refused():
    # A Keras 3 layer in a tf_keras model runs, and is never trained.
    other = pytest.importorskip("tf_keras" if KERAS_3 else "keras")
    if other.layers.Layer is tf.keras.layers.Layer:
        pytest.skip("TensorFlow 2.15 has one Keras")
    for case in cases.CASES:
        layer = case.make()
        tensors = {
            name: other.Input(shape, name=f"{case.name}_{name}")
            for name, shape in case.shapes.items()
        }
        with pytest.raises(ValueError, match="TF_USE_LEGACY_KERAS"):
            case.call(layer, tensors)
        case.call(layer, case.data(batch=2))  # and is not spoilt by it


# Half precision and large numbers --------------------------------------------


POLICIES = {"float32": 1e-5, "mixed_float16": 5e-3, "mixed_bfloat16": 4e-2}
every_form = pytest.mark.parametrize(
    "form", ["plain", "mask", "padding", "causal"]
)


def assert_exact_in_every_precision(layer, form, x, rng):
    """The oracle's output and finite gradients, for weights of integers."""
    length, arguments = x.shape[1], {"inputs": x}
    if form == "mask":
        arguments["attention_mask"] = rng.integers(0, 2, [length, length])
        arguments["attention_mask"][5] = 0
    if form == "padding":
        arguments["context_mask"] = rng.integers(0, 2, [1, length])
    expected = checks.oracle_output(layer, arguments)
    for policy, tolerance in POLICIES.items():
        # Gradients of the inputs are as large as the keys; small enough for
        # half.
        output, gradients = checks.output_and_gradients(
            twin(layer, x, dtype=policy),
            arguments,
            np.full_like(expected, 2.0**-10),
        )
        checks.assert_close(output.astype(np.float64), expected, tolerance)
        for name, gradient in gradients.items():
            assert np.all(np.isfinite(gradient)), (policy, name)
        assert np.any(gradients["value"] != 0)


@pytest.mark.slow
@pytest.mark.parametrize("normalization", ["softmax", "l2"])
@every_form
def test_large_logits(form, normalization):
    # One-hot inputs: every logit is a product with 1, up to 58 * 1024, which
    # both half types have.
    length, rng = 70, np.random.default_rng(3)
    steps = rng.integers(-58, 59, [length, 6])
    steps[:, 0] = np.round(np.linspace(-58, 58, length))  # rising
    steps[:, 1] = -steps[:, 0]  # falling
    steps[:, 2] = 58  # all the same
    x = np.eye(length, dtype="float32")[None]
    layer = built(
        x,
        filters=4,
        num_heads=1,
        key_dim=3,
        intra_depth=2,
        scope=3,
        causal=form == "causal",
        key_normalization=normalization,
        use_batch_norm=False,
    )
    table = layer.position_embedding.embeddings
    for weight in (layer.query.kernel, layer.value.kernel, table):
        weight.assign(rng.integers(-2, 3, weight.shape))
    layer.key.kernel.assign(1024 * steps)
    assert_exact_in_every_precision(layer, form, x, rng)


@pytest.mark.once
@every_form
def test_large_scores(form):
    # One-hot inputs make every score a product of integers, up to 50 * 1024.
    length, rng = 20, np.random.default_rng(3)
    x = np.eye(length, dtype="float32")[None]
    arguments = {"num_heads": 1, "key_dim": 4, "causal": form == "causal"}
    layer = attention(x, filters=4, **arguments, position_embedding=None)
    for dense, scale in ((layer.query, 32), (layer.key, 16)):
        steps = rng.integers(-5, 6, dense.kernel.shape)
        dense.kernel.assign(scale * steps)
    layer.value.kernel.assign(rng.integers(-2, 3, layer.value.kernel.shape))
    assert_exact_in_every_precision(layer, form, x, rng)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_large_queries_in_half_precision(policy, rng):
    layer = LambdaLayer(
        4,
        num_heads=2,
        key_dim=3,
        query_normalization="softmax",
        use_batch_norm=False,
        query_initializer=tf.keras.initializers.RandomNormal(stddev=6e3),
        dtype=policy,
    )
    x = tf.constant(np.sign(normal(rng, 2, 5, 7)))
    with tf.GradientTape() as tape:
        output = layer(x)
        loss = tf.reduce_sum(output)
    weights = [checks.raw(weight) for weight in layer.trainable_weights]
    assert np.all(np.isfinite(tf.cast(output, tf.float32)))
    for gradient in tape.gradient(loss, weights):
        assert np.all(np.isfinite(tf.convert_to_tensor(gradient)))


def test_l2_of_tiny_keys(rng):
    # What keeps the length of zero keys from dividing must not show elsewhere.
    x = normal(rng, 2, 11, 5)
    layer = built(x, **_SIZE, key_normalization="l2")
    layer.key.kernel.assign(checks.raw(layer.key.kernel).numpy() * 1e-4)
    expected = checks.oracle_output(layer, {"inputs": x})
    checks.assert_close(layer(x), expected, 1e-5)


# Nothing permitted -----------------------------------------------------------


_NORMALIZATIONS = [{"key_normalization": n} for n in ops.KEY_NORMALIZATIONS]
_ATTENTION = {"layer": RelativeAttention}


# Content has no algorithm, and positions have no normalization.
@pytest.mark.parametrize(
    "arguments",
    [
        *_NORMALIZATIONS,
        *(
            pytest.param({"implementation": name}, marks=ONCE_A_VERSION)
            for name in ops.implementations(1)[1:]
        ),
        *(
            pytest.param({**_ATTENTION, **arguments}, marks=pytest.mark.once)
            for arguments in ({}, {"scope": 5}, {"axis": 1})
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["mask", "padding", "causal"])
def test_nothing_permitted_gives_zero(form, arguments, rng):
    """Nor a gradient, and every other query reads something."""
    x = normal(rng, 2, 11, 5)
    layer = built(x, **_SIZE, causal=form == "causal", **arguments)
    arguments = {"inputs": x}
    empty = np.zeros([2, 11], bool)
    if form == "mask":
        mask = rng.integers(0, 2, [11, 11]) | np.eye(11, dtype=int)
        mask[4] = 0
        arguments["attention_mask"] = mask
        empty[:, 4] = True
        read = np.tile(mask.any(axis=0), [2, 1])
    else:
        read = np.ones([2, 11], bool)
        read[0] = False  # a whole example of padding
        read[1, :2] = False
        arguments["context_mask"] = read
        empty[0] = True
        empty[1, :2] = form == "causal"
    output, gradients = checks.output_and_gradients(
        layer, arguments, rng.normal(size=[2, 11, 10])
    )
    assert np.all(output[empty] == 0)
    assert np.all(np.any(output[~empty] != 0, axis=-1))
    for name, gradient in gradients.items():
        assert np.all(np.isfinite(gradient)), name
    assert np.all(gradients["inputs"][empty & ~read] == 0)
    checks.assert_equals_oracle(layer, arguments, rng, jointly=True)


# Keras' own masks ------------------------------------------------------------


def embedded(length=5, batch=5):
    """Tokens with padding; as many examples as positions, to be mistaken."""
    rng = np.random.default_rng(8)
    tokens = rng.integers(1, 9, [batch, length])
    for example, missing in enumerate(rng.integers(1, length, batch)):
        tokens[example, length - missing :] = 0
    return tokens


_WINDOW = {"kernel_size": 3}
_STRIDED = {"kernel_size": 3, "strides": 2}
# A layer, the length that its model knows, whether pairs are masked, too.
PROPAGATED = {
    "layer": (LambdaLayer, {}, 5, False),
    "layer_of_pairs": (LambdaLayer, {}, 5, True),
    "scope": (LambdaLayer, {"scope": 3}, None, False),
    "causal": (LambdaLayer, _CAUSAL, 5, False),
    "causal_pairs": (LambdaLayer, _CAUSAL, 5, True),
    "convolution": (LambdaConv, _WINDOW, 5, False),
    "strided": (LambdaConv, _STRIDED, 5, False),
    "strided_of_any_length": (LambdaConv, _STRIDED, None, False),
    "attention": (RelativeAttention, {}, 5, False),
    "attention_axis": (RelativeAttention, {"axis": 1}, 5, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROPAGATED)
def test_propagated_mask_is_padding_and_travels_on(kind):
    layer_type, arguments, length, pair_mask = PROPAGATED[kind]
    layer, tokens = layer_type(**_SIZE, **arguments), embedded()
    given, stride = {}, arguments.get("strides", 1)
    if pair_mask:
        rng = np.random.default_rng(2)
        given["attention_mask"] = rng.integers(0, 2, [5, 5])
    inputs = tf.keras.Input([length], dtype="int32")
    embedding = tf.keras.layers.Embedding(9, 7, mask_zero=True)
    outputs = layer(embedding(inputs), **given)
    pooled = tf.keras.layers.GlobalAveragePooling1D()(outputs)
    model = tf.keras.Model(inputs, [outputs, pooled])
    checks.randomize(model, np.random.default_rng(1))
    x = tf.gather(checks.raw(embedding.embeddings), tokens)
    real = (tokens != 0)[:, ::stride]
    arguments = {"inputs": x, "context_mask": tokens != 0, **given}
    for training in (False, True):
        expected = checks.oracle_output(layer, arguments, training)
        unmasked = checks.oracle_output(layer, {"inputs": x}, training)
        checks.assert_far(unmasked, expected)
        averages = model.get_weights()
        for call in (model, tf.function(model)):
            output, mean = call(tf.constant(tokens), training=training)
            output = output.numpy()
            checks.assert_close(output, expected, 1e-5)
            sums = np.sum(output * real[..., None], axis=1)
            checks.assert_close(mean, sums / real.sum(axis=1)[:, None], 1e-5)
            model.set_weights(averages)


def test_propagated_mask_of_the_context():
    tokens = embedded(length=6, batch=4)
    embedding = tf.keras.layers.Embedding(9, 7, mask_zero=True)
    layer = LambdaLayer(**_SIZE, use_position=False)
    queries = tf.keras.Input([3, 4])
    inputs = tf.keras.Input([6], dtype="int32")
    model = tf.keras.Model(
        [queries, inputs], layer(queries, context=embedding(inputs))
    )
    checks.randomize(model, np.random.default_rng(1))
    x = normal(np.random.default_rng(2), 4, 3, 4)
    arguments = {
        "inputs": x,
        "context": tf.gather(checks.raw(embedding.embeddings), tokens),
        "context_mask": tokens != 0,
    }
    expected = checks.oracle_output(layer, arguments)
    output = model([tf.constant(x), tf.constant(tokens)])
    checks.assert_close(output, expected, 1e-5)
    # A mask given by the caller applies as well.
    real = np.random.default_rng(4).integers(0, 2, [4, 6]).astype(bool)
    arguments["context_mask"] &= real
    expected = checks.oracle_output(layer, arguments)
    output = layer(
        tf.constant(x),
        context=embedding(tf.constant(tokens)),
        context_mask=real,
    )
    checks.assert_close(output, expected, 1e-5)


def test_wrappers_see_what_a_call_takes():
    # tf_keras' wrappers read the signature, and pass on what they find there.
    for layer in (case.make() for case in cases.CASES):
        taken = inspect.getfullargspec(layer.call).args
        assert taken == [*inspect.signature(type(layer).call).parameters]
        assert "inputs" in taken


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["layer", "convolution", "attention"])
def test_masks_of_every_time_step(kind):
    tokens = np.stack([embedded(), embedded()[::-1]], axis=1)  # [5, 2, 5]
    inputs = tf.keras.Input([2, 5], dtype="int32")
    embedding = tf.keras.layers.Embedding(9, 7, mask_zero=True)
    layer_type, arguments, _, _ = PROPAGATED[kind]
    layer = layer_type(**_SIZE, **arguments)
    steps = tf.keras.layers.TimeDistributed(layer)(embedding(inputs))
    model = tf.keras.Model(inputs, steps)
    x = tf.gather(checks.raw(embedding.embeddings), tokens)
    # As in `fit`: where a batch is static, tf_keras' wrapper has no masks for
    # layers that are not its own.
    free = tf.function(model, input_signature=[tf.TensorSpec([None, 2, 5])])
    output = free(tf.constant(tokens, tf.float32))
    for step in range(2):
        mask = tf.constant(tokens[:, step] != 0)
        expected = layer(x[:, step], mask=mask)
        checks.assert_far(layer(x[:, step]), expected)
        checks.assert_close(output[:, step], expected, 1e-5)


# NaN and infinity -------------------------------------------------------------


@pytest.mark.parametrize("by_example", [False, True])
@pytest.mark.parametrize("arguments", [*_NORMALIZATIONS, _ATTENTION])
def test_nan_reaches_whom_a_mask_permits(arguments, by_example, rng):
    x = normal(rng, 2, 11, 5)
    mask = rng.integers(0, 2, [2, 11, 11] if by_example else [11, 11])
    mask = mask.astype(bool)
    mask[..., 3] = False
    mask[..., 1, 6] = True
    layer = built(x, **_SIZE, **arguments)
    expected = layer(x, attention_mask=mask).numpy()
    bad = spoilt(x, (slice(None), [3, 6]), rng)
    output = layer(bad, attention_mask=mask).numpy()
    sees = np.broadcast_to(mask[..., 6], [2, 11])
    for example in range(2):
        for query in np.delete(np.arange(11), [3, 6]):
            found, wanted = output[example, query], expected[example, query]
            if sees[example, query]:
                assert np.all(np.isnan(found))
            else:
                checks.assert_close(found, wanted, 1e-5)


_PAST = {"padding": "causal", "kernel_size": 3}
FUTURE = {
    "global": (LambdaLayer, _CAUSAL),
    "scope": (LambdaLayer, {**_CAUSAL, "scope": 5}),
    "dilated": (LambdaConv, {**_PAST, "dilation_rate": 2}),
    "strided": (LambdaConv, {**_PAST, "kernel_size": 5, "strides": 3}),
    "l2": (LambdaLayer, {**_CAUSAL, "key_normalization": "l2"}),
    "sums": (LambdaLayer, {**_CAUSAL, "key_normalization": None}),
    "attention": (RelativeAttention, _CAUSAL),
    "attention_scope": (RelativeAttention, {**_CAUSAL, "scope": 7}),
    "attention_axis": (RelativeAttention, {**_CAUSAL, "axis": 1}),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "given"),
    [
        *((kind, {}) for kind in FUTURE),
        *(
            pytest.param(kind, {"implementation": name}, marks=ONCE_A_VERSION)
            for name in ops.implementations(1)[1:]
            for kind in ("global", "scope", "dilated", "strided")
        ),
    ],
    ids=str,
)
def test_the_future_changes_nothing(kind, given, rng):
    layer_type, arguments = FUTURE[kind]
    x = normal(rng, 2, 90, 5)  # more than one piece of any algorithm
    layer = built(x, layer_type, **_SIZE, **arguments, **given)
    expected = layer(x).numpy()
    for now in (6, 69):
        past = now // arguments.get("strides", 1) + 1
        changed, later = x.copy(), np.s_[:, now + 1 :]
        changed[later] = 1e4 * normal(rng, 2, 89 - now, 5)
        output = layer(changed).numpy()
        np.testing.assert_array_equal(output[:, :past], expected[:, :past])
        checks.assert_far(output[:, past:], expected[:, past:])
        output = layer(spoilt(x, later, rng)).numpy()
        checks.assert_close(output[:, :past], expected[:, :past], 1e-5)
        assert np.all(np.isnan(output[:, past:]))
        # The present must count: or a layer shifted by one would pass.
        changed = x.copy()
        changed[:, now] += 1
        output = layer(changed).numpy()[:, past - 1]
        checks.assert_far(output, expected[:, past - 1], 1e-3)


@pytest.mark.parametrize("kind", FUTURE)
def test_the_future_changes_nothing_in_training(kind, rng):
    layer_type, arguments = FUTURE[kind]
    x = normal(rng, 2, 20, 5)
    layer = built(x, layer_type, **_SIZE, **arguments)
    expected = layer(x, training=True).numpy()
    changed = np.concatenate([x[:, :10], normal(rng, 2, 10, 5)], axis=1)
    output = layer(changed, training=True).numpy()
    past = 9 // arguments.get("strides", 1) + 1
    np.testing.assert_array_equal(output[:, :past], expected[:, :past])
    checks.assert_far(output[:, past:], expected[:, past:])


def test_batch_normalization_of_a_causal_layer_is_asked_for():
    for layer_type, arguments in FUTURE.values():
        if layer_type is RelativeAttention:
            continue
        layer = layer_type(4, **arguments)
        assert not layer.use_batch_norm
        assert layer_type(4, **arguments, use_batch_norm=True).use_batch_norm
        again = layer_type.from_config(layer.get_config())
        assert not again.use_batch_norm
    assert LambdaLayer(4).use_batch_norm
    assert LambdaConv(4, 3).use_batch_norm


# A layer, its arguments, its grid, a place on it and who sees that.
SEEN = {
    "causal": (
        LambdaConv,
        {**_PAST, "kernel_size": 5, "dilation_rate": 2, "use_content": False},
        (40,),
        (10,),
        [10, 12, 14, 16, 18],
    ),
    "attention": (
        RelativeAttention,
        {"scope": (3, 5)},
        (12, 13),
        (5, 6),
        np.s_[4:7, 4:9],
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_nan_stays_in_the_scope(name, rng):
    layer_type, arguments, grid, place, seen = SEEN[name]
    x = normal(rng, 1, *grid, 5)
    layer = built(x, layer_type, **_SIZE, **arguments)
    hit = np.zeros(grid, bool)
    hit[seen] = True
    expected = layer(x).numpy()[0]
    output = layer(spoilt(x, (0, *place), rng)).numpy()[0]
    assert np.all(np.isnan(output[hit]))
    checks.assert_close(output[~hit], expected[~hit], 1e-5)


@pytest.mark.parametrize("layer_type", [layers.Dropout, layers.StochasticDepth])
def test_what_is_dropped_is_dropped(layer_type):
    x = tf.fill([64, 3], np.nan)
    output = layer_type(0.5)(x, training=True).numpy()
    assert np.any(output == 0)
    assert np.any(np.isnan(output))
    assert np.all((output == 0) | np.isnan(output))


# Keras habits -----------------------------------------------------------------


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


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.keras.Sequential([LambdaLayer(**_SIZE)]),
        lambda: tf.keras.layers.TimeDistributed(LambdaLayer(**_SIZE)),
        Block,
    ],
)
def test_layers_inside_others_are_saved(make, rng, tmp_path):
    inputs = tf.keras.Input([4, 5, 6])
    outer = make()
    # tf_keras' wrappers do not know what is registered under a package.
    scope = {"Block": Block, "LambdaLayer": LambdaLayer}
    scope = tf.keras.utils.custom_object_scope(scope)
    with scope:
        unbuilt = type(outer).from_config(outer.get_config())
    assert not unbuilt.built
    model = tf.keras.Model(inputs, outer(inputs))
    x = normal(rng, 2, 4, 5, 6)
    model.save(tmp_path / "model.keras")
    with scope:
        loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    checks.assert_close(loaded(x), model(x), 1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_learned_embeddings_are_a_variable(masked, causal, rng):
    layer = LambdaLayer(
        **_SIZE, intra_depth=2, position_embedding="explicit", causal=causal
    )
    x = tf.constant(normal(rng, 2, 5, 7))
    learned = tf.Variable(normal(rng, 5, 5, 3, 2))
    mask = rng.integers(0, 2, [5, 5]) if masked else None
    with tf.GradientTape() as tape:
        output = layer(x, embeddings=learned, attention_mask=mask)
        loss = tf.reduce_sum(output**2)
    constant = tf.constant(learned.numpy())
    expected = layer(x, embeddings=constant, attention_mask=mask)
    checks.assert_close(output, expected, 1e-6)
    assert np.any(tape.gradient(loss, learned) != 0)


def test_recomputed_gradients_see_the_same_draws(rng):
    dropout, dense = layers.Dropout(0.5), tf.keras.layers.Dense(5)
    x = tf.constant(normal(rng, 4, 5))
    dense(x)
    weights = [checks.raw(w) for w in dense.trainable_weights]

    def network(x):
        return tf.tanh(dense(dropout(tf.tanh(dense(x)), training=True)))

    gradients = []
    for function in (network, tf.recompute_grad(network)):
        with (
            random_streams(tf.constant([1, 2], tf.int64)),
            tf.GradientTape() as tape,
        ):
            loss = tf.reduce_sum(function(x) ** 2)
            gradients.append(tape.gradient(loss, weights))
    for one, other in zip(*gradients, strict=True):
        checks.assert_close(one, other, 1e-6)
