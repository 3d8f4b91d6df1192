"""The weights of lambda layers: shapes, first values, statistics, sharing.

The attribute contract stands in the docstring of `LambdaLayer`; converters
and saved files rely on it.
"""

import inspect
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf.arguments import fraction
from lambdanet_tf.layers.argument import argument
from tests.support import checks
from tests.support import oracle
from tests.support.random_layers import built
from tests.support.random_layers import copy_weights
from tests.support.random_layers import normal

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


def test_attributes_are_the_documented_ones():
    layer = layers.LambdaLayer(**_DEEP, use_batch_norm=False)
    layer.build((1, 4, 6, 11))
    assert layer.value_dim == 5
    assert layer.query_norm is layer.value_norm is None
    assert not layer.query.use_bias


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


@pytest.mark.slow
def test_initial_weights_follow_the_seed():
    def weights(seed):
        tf.keras.utils.set_random_seed(seed)
        layer = layers.LambdaLayer(6, **_SIZE, intra_depth=3)
        layer(tf.zeros([1, 4, 6]))
        return layer.get_weights()

    first, again, other = weights(5), weights(5), weights(6)
    for one, two, three in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(one, two)
        if one.std():
            assert np.any(one != three)
    # Weights of one shape must not be drawn alike.
    key, value = first[0:2]
    assert key.shape != value.shape or np.any(key != value)


@pytest.mark.parametrize("padded", [False, True])
def test_batch_statistics_move_the_averages(padded, rng):
    call = {"inputs": rng.normal(2.0, 3.0, [3, 4, 5, 7]).astype("float32")}
    real = np.ones([3, 20], bool)
    if padded:
        real = rng.uniform(size=[3, 20]) < 0.6
        call["context_mask"] = real
    layer = layers.LambdaLayer(22, **_SIZE, norm_momentum=0.8)
    tensors = {name: tf.constant(value) for name, value in call.items()}
    layer(**tensors)
    checks.randomize(layer, rng)
    before = weights_of(layer)
    layer(**tensors, training=False)
    unmoved = weights_of(layer)
    layer(**tensors, training=True)
    after = weights_of(layer)
    x = call["inputs"].reshape(3, 20, 7).astype(np.float64)
    for name in ("query", "value"):
        mean, variance = oracle.batch_statistics(x @ before[name], real)
        kept = f"{name}_mean", f"{name}_variance"
        for average, statistic in zip(kept, (mean, variance), strict=True):
            np.testing.assert_array_equal(before[average], unmoved[average])
            expected = 0.8 * before[average] + 0.2 * statistic
            checks.assert_close(after[average], expected, 1e-6)
            checks.assert_far(before[average], expected, 0.1)


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


def test_initializers_are_used():
    names = ("query", "key", "value", "embeddings")
    constants = {
        f"{name}_initializer": tf.keras.initializers.Constant(number)
        for number, name in enumerate(names)
    }
    layer = layers.LambdaLayer(6, **_SIZE, **constants)
    layer.build((None, 5, 7))
    for number, name in enumerate(names):
        assert np.all(weights_of(layer)[name] == number)


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize(
    ("layer_type", "arguments"),
    [
        (layers.LambdaLayer, {"num_heads": 2, "use_position_bias": True}),
        (layers.LambdaConv, {"filters": 6, "kernel_size": 3, "num_heads": 2}),
        (layers.RelativeAttention, {"filters": 6, "num_heads": 2}),
        (layers.RelativeAttention, {"num_heads": 1, "axis": 1}),
        (layers.SqueezeExcite, {"ratio": 1.0}),
    ],
)
def test_one_initializer_gives_each_weight_its_own_numbers(
    layer_type, arguments, seed
):
    def values():
        given = tf.keras.initializers.RandomNormal(seed=seed)
        names = inspect.signature(layer_type.__init__).parameters
        drawn = {n: given for n in names if n.endswith("_initializer")}
        layer = layer_type(**arguments, **drawn)
        layer(tf.zeros([1, 4, 4, 6]))
        again = layer_type.from_config(checks.plain(layer.get_config()))
        again(tf.zeros([1, 4, 4, 6]))
        return [
            [checks.raw(w).numpy().ravel() for w in one.trainable_weights]
            for one in (layer, again)
        ]

    first, copied = values()
    drawn = [i for i, value in enumerate(first) if np.unique(value).size > 1]
    assert len(drawn) >= 2
    for i in drawn:
        for j in drawn:
            size = min(first[i].size, first[j].size)
            if i < j:  # Equal numbers, or as many of them as there are.
                assert not np.allclose(first[i][:size], first[j][:size])
        assert np.array_equal(first[i], copied[i]) == (seed is not None)
    for one, other in zip(first, values()[0], strict=True):
        same = seed is not None or np.unique(one).size == 1
        assert np.array_equal(one, other) == same
    if seed is not None:  # One weight has the numbers of the seed itself.
        given = tf.keras.initializers.RandomNormal(seed=seed)
        sizes = [np.ravel(given(first[i].shape)) for i in drawn]
        same = map(np.allclose, sizes, [first[i] for i in drawn])
        assert sum(same) == 1


def model_sharing_a_table():
    table = layers.RelativePositionEmbedding(3, scope=3)
    size = {**_SIZE, "scope": 3, "position_embedding": table}
    x = inputs = tf.keras.Input([5, 7, 6])
    for name in ("first", "second"):
        x = layers.LambdaLayer(6, **size, name=name)(x)
    return tf.keras.Model(inputs, x)


@pytest.mark.slow
def test_a_shared_table_is_once_in_a_weights_file(tmp_path, rng):
    model = model_sharing_a_table()
    # 2 layers of 3 kernels and 2 x 2 trainable vectors of batch norm; 1 table.
    assert len(model.trainable_weights) == 2 * 7 + 1
    kernels, norms = 6 * 6 + 6 * 3 + 6 * 3, 4 * 6 + 4 * 3
    assert model.count_params() == 2 * (kernels + norms) + 3 * 3 * 3
    checks.randomize(model, rng)
    model.save_weights(tmp_path / "model.weights.h5")
    restored = model_sharing_a_table()
    restored.load_weights(tmp_path / "model.weights.h5")
    x = tf.constant(normal(rng, 2, 5, 7, 6))
    np.testing.assert_array_equal(restored(x), model(x))
    assert len(restored.weights) == len(model.weights)
    assert restored.count_params() == model.count_params()


LOSES_SHARING = {"clone_model", "from_config", "json"}


@pytest.mark.slow
@pytest.mark.parametrize("way", [*checks.COPIES, "clone_network"])
def test_what_is_shared_stays_so_or_is_warned_of(way, tmp_path):
    model = model_sharing_a_table()
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


def test_global_table_serves_smaller_grids(rng):
    # The paper shares embeddings between layers that see the same geometry;
    # a smaller grid uses the middle of the table.
    table = layers.RelativePositionEmbedding(3)
    size = {**_SIZE, "filters": 6}
    built(normal(rng, 1, 5, 7, 4), **size, position_embedding=table)
    x = normal(rng, 2, 3, 4, 4)
    small = built(x, **size, position_embedding=table)
    assert tuple(table.embeddings.shape) == (9, 13, 3, 1)
    alone = built(x, **size)
    middle = checks.raw(table.embeddings).numpy()[2:7, 3:10]
    copy_weights(small, alone, embeddings=middle)
    checks.assert_close(small(x), alone(x), 1e-5)


@pytest.mark.parametrize(
    ("scope", "depth", "heads"),
    [(None, 1, None), (None, 2, 2), ((3, 5), 1, 2), ((3, 5), 2, None)],
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
    # What an explicit layer computes from them is what the table computes.
    arguments = {**_DEEP, "intra_depth": depth, "multi_head": heads is not None}
    own = built(x, **arguments, scope=scope, position_embedding=table)
    explicit = layers.LambdaLayer(**arguments, position_embedding="explicit")
    explicit(x, embeddings=table(x))
    copy_weights(own, explicit)
    checks.assert_close(explicit(x, embeddings=table(x)), own(x), 1e-5)


_WRONG_CALLS = """
from lambdanet_tf import layers

layers.LambdaLayer(8, num_head=2)
layers.LambdaLayer(8, 2)
layers.LambdaConv(8, multi_head=True)
layers.RelativeAttention(8, intra_depth=2)
layers.LambdaConv(8, 3, num_heads=2, value_initializer="zeros", name="right")
"""


@pytest.mark.slow
@pytest.mark.once
def test_static_checkers_see_what_a_constructor_takes(tmp_path):
    pytest.importorskip("basedpyright")
    module = tmp_path / "calls.py"
    module.write_text(_WRONG_CALLS, encoding="utf-8")
    checked = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", str(module)]
        + ["--pythonpath", sys.executable],
        cwd=pathlib.Path(__file__).parents[2],
        check=False,
        capture_output=True,
        text=True,
    )
    found = json.loads(checked.stdout)["generalDiagnostics"]
    messages = [error["message"] for error in found]
    assert len(messages) == 4, messages
    assert "num_head" in messages[0]
    assert "positional" in messages[1]
    assert "kernel_size" in messages[2]
    assert "intra_depth" in messages[3]


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
