"""The weights of lambda layers: shapes, first values, sharing."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from tests.support import checks

_SIZE = {"num_heads": 2, "key_dim": 3}
NAMES = "query", "key", "value", "embeddings"


def weights_of(layer):
    return checks.split_point(layer, {})[0]


@pytest.mark.parametrize("use_batch_norm", [False, True])
def test_weights_have_the_documented_shapes(use_batch_norm):
    """And each the values of its own initializer: 0, 1, 2, 3."""
    arguments = {"scope": (3, 5), "use_batch_norm": use_batch_norm}
    for number, name in enumerate(NAMES):
        constant = tf.keras.initializers.Constant(number)
        arguments[f"{name}_initializer"] = constant
    layer = layers.LambdaLayer(10, **_SIZE, intra_depth=7, **arguments)
    layer.build((1, 4, 6, 11))
    weights = weights_of(layer)
    shapes = [(11, 2 * 3), (11, 3 * 7), (11, 5 * 7), (3, 5, 3, 7)]
    expected = dict(zip(NAMES, shapes, strict=True))
    if use_batch_norm:
        for part in ("mean", "variance", "gamma", "beta"):
            expected |= {f"query_{part}": (6,), f"value_{part}": (35,)}
    assert {name: array.shape for name, array in weights.items()} == expected
    for number, name in enumerate(NAMES):
        assert np.all(weights[name] == number)


INITIAL = (
    (layers.LambdaLayer, [6, 6], {"intra_depth": 3}),
    (layers.LambdaLayer, [36], {"intra_depth": 3, "causal": True}),
    (layers.LambdaConv, [6, 6], {"intra_depth": 3, "kernel_size": 11}),
    (layers.RelativeAttention, [6, 6], {"position_embedding": "joint"}),
)


@pytest.mark.parametrize(("layer_type", "grid", "arguments"), INITIAL)
def test_initial_weights_are_the_papers(layer_type, grid, arguments):
    channels, key_dim = 400, 20
    layer = layer_type(200, key_dim=key_dim, **arguments)
    layer(tf.zeros([1, *grid, channels]))
    expected = dict.fromkeys(NAMES, channels**-0.5)
    expected["embeddings"] = 0.1 if layer.causal else 1.0
    # Attention divides by the root of the depth, lambda layers do not.
    scaled = "embeddings" if layer_type is layers.RelativeAttention else "query"
    expected[scaled] *= key_dim**-0.5
    for name, deviation in expected.items():
        weights = weights_of(layer)[name].ravel()
        noise = weights.size**-0.5
        assert abs(weights.mean()) < 5 * noise * deviation, name
        assert abs(weights.std() / deviation - 1) < 5 * noise, name
        # A normal distribution, not one cut off at two deviations.
        assert np.mean(np.abs(weights) > 2.2 * deviation) > 0.015, name


def test_regularizers_and_constraints():
    layer = layers.LambdaLayer(
        6,
        **_SIZE,
        kernel_regularizer=tf.keras.regularizers.L2(0.1),
        embeddings_regularizer=tf.keras.regularizers.L1(0.01),
        kernel_constraint=tf.keras.constraints.NonNeg(),
        embeddings_constraint="non_neg",
        activity_regularizer=tf.keras.regularizers.L1(0.0),
    )
    layer = type(layer).from_config(checks.plain(layer.get_config()))
    layer(tf.ones([1, 5, 7]))
    assert len(layer.losses) == 5
    inputs = tf.keras.Input([5, 7])
    model = tf.keras.Model(inputs, layer(inputs))
    weights = weights_of(layer)
    expected = 0.01 * np.abs(weights["embeddings"]).sum()
    expected += 0.1 * sum((weights[name] ** 2).sum() for name in NAMES[:3])
    np.testing.assert_allclose(sum(model.losses), expected, rtol=1e-5)
    model.compile("sgd", "mse", jit_compile=False)
    model.train_on_batch(np.ones([2, 5, 7]), np.zeros([2, 5, 6]))
    for name in NAMES:
        assert weights_of(layer)[name].min() == 0, name


@pytest.mark.slow
@pytest.mark.parametrize("way", ["keras_file", "deepcopy", "pickle"])
def test_what_is_shared_stays_so_in_files(way, tmp_path):
    table = layers.RelativePositionEmbedding(3, scope=3)
    size = {**_SIZE, "scope": 3, "position_embedding": table}
    x = inputs = tf.keras.Input([5, 7, 6])
    names = ("first", "second")
    for name in names:
        x = layers.LambdaLayer(6, **size, name=name)(x)
    model = tf.keras.Model(inputs, x)
    copied = checks.COPIES[way](model, tmp_path)
    for each in (model, copied, models.clone_network(copied)):
        tables = {each.get_layer(n).position_embedding for n in names}
        assert len(tables) == 1
        # 3 kernels and 2 x 2 trainable vectors of batch norm each, and 1 table.
        assert len(each.trainable_weights) == 2 * 7 + 1


def test_a_layer_that_is_made_frozen_freezes_the_table_that_it_shares():
    table = layers.RelativePositionEmbedding(4, scope=3)
    arguments = {"key_dim": 4, "scope": 3, "position_embedding": table}
    layers.LambdaLayer(8, **arguments)
    assert table.trainable
    layers.LambdaLayer(8, trainable=False, **arguments)
    assert not table.trainable
