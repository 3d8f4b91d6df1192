"""The weights of lambda layers: shapes, first values, sharing.

The attribute contract stands in the docstring of `LambdaLayer`; converters
and saved files rely on it.
"""

import inspect
import itertools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf.arguments import fraction
from lambdanet_tf.layers.argument import argument
from tests.support import checks

_SIZE = {"num_heads": 2, "key_dim": 3}
_DEEP = {**_SIZE, "filters": 10, "intra_depth": 7}


def weights_of(layer):
    """Arrays of a layer's variables by their names in the oracle."""
    return checks.split_point(layer, {})[0]


def shapes_of(inputs, **arguments):
    layer = layers.LambdaLayer(**_DEEP, **arguments)
    layer.build(inputs)
    return {name: value.shape for name, value in weights_of(layer).items()}


@pytest.mark.parametrize("use_batch_norm", [False, True])
def test_weights_have_the_documented_shapes(use_batch_norm):
    expected = {
        "query": (11, 2 * 3),
        "key": (11, 3 * 7),
        "value": (11, 5 * 7),
        "embeddings": (3, 5, 3, 7),
    }
    if use_batch_norm:
        for part in ("mean", "variance", "gamma", "beta"):
            expected |= {f"query_{part}": (6,), f"value_{part}": (35,)}
    inputs, arguments = (1, 4, 6, 11), {"use_batch_norm": use_batch_norm}
    assert shapes_of(inputs, scope=(3, 5), **arguments) == expected
    of_heads = shapes_of(inputs, multi_head=True, **arguments)
    assert of_heads["key"] == (11, 2 * 3 * 7)
    assert of_heads["value"] == (11, 2 * 5 * 7)
    assert of_heads["embeddings"] == (7, 11, 2, 3, 7)


@pytest.mark.parametrize("layer_type", [layers.LambdaLayer, layers.LambdaConv])
def test_initial_weights_are_the_papers(layer_type):
    channels, key_dim = 400, 20
    size = {"kernel_size": 11} if layer_type is layers.LambdaConv else {}
    layer = layer_type(
        filters=200, num_heads=4, key_dim=key_dim, intra_depth=3, **size
    )
    layer(tf.zeros([1, 6, 6, channels]))
    expected = {
        "query": (key_dim * channels) ** -0.5,
        "key": channels**-0.5,
        "value": channels**-0.5,
        "embeddings": 1.0,
    }
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
    )
    inputs = tf.keras.Input([5, 7])
    model = tf.keras.Model(inputs, layer(inputs))
    weights = weights_of(layer)
    expected = 0.01 * np.abs(weights["embeddings"]).sum()
    expected += 0.1 * sum(
        (weights[name] ** 2).sum() for name in ("query", "key", "value")
    )
    np.testing.assert_allclose(sum(model.losses), expected, rtol=1e-5)
    model.compile("sgd", "mse", jit_compile=False)
    model.train_on_batch(np.ones([2, 5, 7]), np.zeros([2, 5, 6]))
    for name in ("query", "key", "value", "embeddings"):
        assert weights_of(layer)[name].min() == 0, name


def test_initializers_and_numbers_of_the_norms_are_used():
    names = ("query", "key", "value", "embeddings")
    constants = {
        f"{name}_initializer": tf.keras.initializers.Constant(number)
        for number, name in enumerate(names)
    }
    numbers = {"norm_momentum": 0.8, "norm_epsilon": 0.02}
    layer = layers.LambdaLayer(6, **_SIZE, **constants, **numbers)
    layer.build((None, 5, 7))
    for number, name in enumerate(names):
        assert np.all(weights_of(layer)[name] == number)
    for norm in (layer.query_norm, layer.value_norm):
        assert (norm.momentum, norm.epsilon) == (0.8, 0.02)


@pytest.mark.parametrize("seed", [None, 5])
def test_one_initializer_gives_each_weight_its_own_numbers(seed):
    given = tf.keras.initializers.RandomNormal(seed=seed)
    names = [f"{name}_initializer" for name in ("query", "key", "value")]
    layer = layers.LambdaLayer(6, **_SIZE, **dict.fromkeys(names, given))
    again = type(layer).from_config(checks.plain(layer.get_config()))
    first, copied = [], []
    for one, values in ((layer, first), (again, copied)):
        one.build((None, 4, 6))
        values += [weights_of(one)[name] for name in ("query", "key", "value")]
    for one, other in itertools.combinations(first, 2):
        size = min(one.size, other.size)
        assert not np.allclose(one.ravel()[:size], other.ravel()[:size])
    for one, copy in zip(first, copied, strict=True):
        assert np.array_equal(one, copy) == (seed is not None)


def model_sharing_a_table():
    table = layers.RelativePositionEmbedding(3, scope=3)
    size = {**_SIZE, "scope": 3, "position_embedding": table}
    x = inputs = tf.keras.Input([5, 7, 6])
    for name in ("first", "second"):
        x = layers.LambdaLayer(6, **size, name=name)(x)
    return tf.keras.Model(inputs, x)


LOSES_SHARING = {"clone_model", "from_config", "json"}


@pytest.mark.slow
@pytest.mark.parametrize("way", [*checks.COPIES, "clone_network"])
def test_what_is_shared_stays_so_or_is_warned_of(way, tmp_path):
    model = model_sharing_a_table()
    # 2 layers of 3 kernels and 2 x 2 trainable vectors of batch norm; 1 table.
    assert len(model.trainable_weights) == 2 * 7 + 1
    copied = checks.COPIES.get(
        way, lambda model, _: models.clone_network(model)
    )
    if way in LOSES_SHARING:
        with pytest.warns(UserWarning, match="models.clone_network"):
            restored = copied(model, tmp_path)
        assert len(restored.weights) == len(model.weights) + 1
        # A copy that shares nothing is copied in silence.
        restored = copied(restored, tmp_path)
        assert len(restored.weights) == len(model.weights) + 1
        return
    for _ in range(2):  # also a copy of the copy
        model = copied(model, tmp_path)
        tables = [
            model.get_layer(name).position_embedding
            for name in ("first", "second")
        ]
        assert tables[0] is tables[1]
        assert len(model.trainable_weights) == 2 * 7 + 1


@pytest.mark.parametrize(
    ("scope", "depth", "heads"),
    [(None, 2, 2), ((3, 5), 1, None)],
)
def test_table_called_gives_the_embedding_of_every_pair(
    scope, depth, heads, rng
):
    table = layers.RelativePositionEmbedding(
        3, intra_depth=depth, scope=scope, num_heads=heads
    )
    x = tf.constant(rng.normal(size=[2, 3, 4, 7]), tf.float32)
    pairs = table(x).numpy()
    entries = checks.raw(table.embeddings).numpy()
    assert entries.shape[:2] == ((5, 7) if scope is None else (3, 5))
    centre = [size // 2 for size in entries.shape[:2]]
    grid = list(np.ndindex(3, 4))
    for n, m in np.ndindex(12, 12):
        row, column = np.add(centre, np.subtract(grid[m], grid[n]))
        inside = 0 <= row < len(entries) and 0 <= column < len(entries[0])
        expected = entries[row, column] if inside else 0 * entries[0, 0]
        expected = expected if depth > 1 else expected[..., 0]
        np.testing.assert_array_equal(pairs[n, m], expected)


def test_an_argument_is_declared_once():
    class Scaled(layers.Dropout):
        scale: float = argument(default=1.0, check=fraction)

    assert [*inspect.signature(Scaled).parameters] == [
        *("rate", "scale", "kwargs")
    ]
    layer = Scaled(0.5, scale=0.25)
    assert Scaled.from_config(layer.get_config()).scale == 0.25
    with pytest.raises(ValueError, match="`scale` must be a number in"):
        Scaled(0.5, scale=2)
    with pytest.raises(ValueError, match="Did you mean 'scale'"):
        Scaled(0.5, scales=1.0)
    with pytest.raises(ValueError, match="Scaled takes `rate` by position"):
        Scaled(0.5, 0.25)
