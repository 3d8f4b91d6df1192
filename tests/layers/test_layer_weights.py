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
from tests.support.random_layers import copy_weights


@pytest.mark.parametrize("use_batch_norm", [False, True])
def test_weights_have_the_documented_shapes(use_batch_norm):
    layer = layers.LambdaLayer(
        filters=10,
        num_heads=2,
        key_dim=3,
        intra_depth=7,
        scope=(3, 5),
        use_batch_norm=use_batch_norm,
    )
    layer(tf.zeros([1, 4, 6, 11]))
    shapes = {
        name: tuple(variable.shape)
        for name, variable in checks.reference_weights(layer).items()
    }
    assert shapes["query"] == (11, 2 * 3)
    assert shapes["key"] == (11, 3 * 7)
    assert shapes["value"] == (11, 5 * 7)
    assert shapes["embeddings"] == (3, 5, 3, 7)
    assert layer.value_dim == 5
    if use_batch_norm:
        assert shapes["query_mean"] == (6,)
        assert shapes["value_mean"] == (35,)
    else:
        assert layer.query_norm is None
        assert layer.value_norm is None
    assert not layer.query.use_bias
    heads = layers.LambdaLayer(
        filters=10, num_heads=2, key_dim=3, intra_depth=7, multi_head=True
    )
    heads(tf.zeros([1, 4, 6, 11]))
    assert tuple(heads.key.kernel.shape) == (11, 2 * 3 * 7)
    assert tuple(heads.value.kernel.shape) == (11, 2 * 5 * 7)
    table = heads.position_embedding.embeddings
    assert tuple(table.shape) == (7, 11, 2, 3, 7)


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
    variables = checks.reference_weights(layer)
    for name, deviation in expected.items():
        weights = checks.raw(variables[name]).numpy().ravel()
        noise = weights.size**-0.5
        assert abs(weights.mean()) < 5 * noise * deviation, name
        assert abs(weights.std() / deviation - 1) < 5 * noise, name
        # A normal distribution, not one cut off at two deviations.
        assert np.mean(np.abs(weights) > 2.2 * deviation) > 0.015, name


@pytest.mark.slow
def test_initial_weights_follow_the_seed():
    def weights(seed):
        tf.keras.utils.set_random_seed(seed)
        layer = layers.LambdaLayer(6, num_heads=2, key_dim=3, intra_depth=3)
        layer(tf.zeros([1, 4, 6]))
        return [checks.raw(weight).numpy() for weight in layer.weights]

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
    layer = layers.LambdaLayer(22, num_heads=2, key_dim=3, norm_momentum=0.8)
    tensors = {name: tf.constant(value) for name, value in call.items()}
    layer(**tensors)
    checks.randomize(layer, rng)
    before, _ = checks.split_point(layer, call)
    layer(**tensors, training=False)
    unmoved, _ = checks.split_point(layer, call)
    layer(**tensors, training=True)
    after, _ = checks.split_point(layer, call)
    x = call["inputs"].reshape(3, 20, 7).astype(np.float64)
    for name in ("query", "value"):
        mean, variance = oracle.batch_statistics(x @ before[name], real)
        kept = f"{name}_mean", f"{name}_variance"
        for average, statistic in zip(kept, (mean, variance), strict=True):
            np.testing.assert_array_equal(before[average], unmoved[average])
            expected = 0.8 * before[average] + 0.2 * statistic
            checks.assert_close(after[average], expected, 1e-6)
            checks.assert_far(before[average], expected, 0.1)


@pytest.mark.slow
def test_synchronised_statistics_equal_one_device(two_replicas, rng):
    x = rng.normal(size=[4, 5, 7]).astype("float32")
    x[:2] += 3  # the replicas' own statistics are far apart

    def build():
        inputs = tf.keras.Input([5, 7])
        layer = layers.LambdaLayer(
            6, num_heads=2, key_dim=3, use_sync_bn=True, norm_momentum=0.5
        )
        return tf.keras.Model(inputs, layer(inputs))

    single = build()
    checks.randomize(single, rng)
    weights = single.get_weights()
    expected = single(x, training=True)
    with two_replicas.scope():
        model = build()
        model.set_weights(weights)
    parts = two_replicas.experimental_distribute_values_from_function(
        lambda context: tf.constant(
            np.split(x, 2)[context.replica_id_in_sync_group]
        )
    )
    run = tf.function(
        lambda part: two_replicas.run(
            lambda images: model(images, training=True), (part,)
        )
    )
    outputs = two_replicas.experimental_local_results(run(parts))
    checks.assert_close(tf.concat(outputs, 0), expected, 1e-5)
    moved = zip(model.get_weights(), single.get_weights(), weights, strict=True)
    for found, wanted, before in moved:
        if np.any(wanted != before):
            checks.assert_close(found, wanted, 1e-5)


def test_regularizers_and_constraints():
    layer = layers.LambdaLayer(
        6,
        num_heads=2,
        key_dim=3,
        kernel_regularizer=tf.keras.regularizers.L2(0.1),
        embeddings_regularizer=tf.keras.regularizers.L1(0.01),
        kernel_constraint=tf.keras.constraints.NonNeg(),
        embeddings_constraint="non_neg",
    )
    inputs = tf.keras.Input([5, 7])
    model = tf.keras.Model(inputs, layer(inputs))
    weights = {
        name: checks.raw(variable).numpy()
        for name, variable in checks.reference_weights(layer).items()
    }
    expected = 0.01 * np.abs(weights["embeddings"]).sum()
    expected += 0.1 * sum(
        (weights[name] ** 2).sum() for name in ("query", "key", "value")
    )
    np.testing.assert_allclose(sum(model.losses), expected, rtol=1e-5)
    model.compile("sgd", "mse", jit_compile=False)
    model.train_on_batch(np.ones([2, 5, 7]), np.zeros([2, 5, 6]))
    for name in ("query", "key", "value", "embeddings"):
        weight = checks.raw(checks.reference_weights(layer)[name]).numpy()
        assert weight.min() == 0, name


def test_initializers_are_used():
    names = ("query", "key", "value", "embeddings")
    constants = {
        f"{name}_initializer": tf.keras.initializers.Constant(number)
        for number, name in enumerate(names)
    }
    layer = layers.LambdaLayer(6, num_heads=2, key_dim=3, **constants)
    layer.build((None, 5, 7))
    variables = checks.reference_weights(layer)
    for number, name in enumerate(names):
        assert np.all(checks.raw(variables[name]).numpy() == number)


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


def two_layers_sharing_a_table():
    table = layers.RelativePositionEmbedding(3, scope=3)
    pair = [
        layers.LambdaLayer(
            6,
            num_heads=2,
            key_dim=3,
            scope=3,
            position_embedding=table,
            name=name,
        )
        for name in ("first", "second")
    ]
    return table, pair


def model_sharing_a_table():
    _, (first, second) = two_layers_sharing_a_table()
    inputs = tf.keras.Input([5, 7, 6])
    return tf.keras.Model(inputs, second(first(inputs)))


def lambda_layers(model):
    return [model.get_layer(name) for name in ("first", "second")]


@pytest.mark.slow
def test_shared_table_receives_the_sum_of_gradients(rng):
    table, pair = two_layers_sharing_a_table()
    x = tf.constant(rng.normal(size=[2, 5, 7, 6]), tf.float32)
    for layer in pair:
        layer(x)
        checks.randomize(layer, rng)
    own = []
    for layer in pair:
        copy = layers.LambdaLayer(6, num_heads=2, key_dim=3, scope=3)
        copy(x)
        copy_weights(layer, copy)
        own.append(copy)

    def loss(chain):
        return tf.reduce_sum(chain[1](chain[0](x)) ** 2)

    tables = [checks.raw(layer.position_embedding.embeddings) for layer in own]
    shared = checks.raw(table.embeddings)
    with tf.GradientTape() as tape:
        value = loss(pair)
    gradient = tape.gradient(value, shared)
    with tf.GradientTape() as tape:
        own_value = loss(own)
    first, second = tape.gradient(own_value, tables)
    checks.assert_close(value, own_value, 1e-6)
    checks.assert_close(gradient, first + second, 1e-5)
    checks.assert_far(gradient, first)
    checks.assert_far(gradient, second)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["model.keras", "model.weights.h5"])
def test_shared_table_is_saved_and_restored_once(ending, tmp_path, rng):
    model = model_sharing_a_table()
    # 2 layers of 3 kernels and 2 x 2 trainable vectors of batch norm; 1 table.
    assert len(model.trainable_weights) == 2 * 7 + 1
    kernels, norms = 6 * 6 + 6 * 3 + 6 * 3, 4 * 6 + 4 * 3
    assert model.count_params() == 2 * (kernels + norms) + 3 * 3 * 3
    checks.randomize(model, rng)
    x = tf.constant(rng.normal(size=[2, 5, 7, 6]), tf.float32)
    expected = model(x).numpy()
    if ending == "model.keras":
        model.save(tmp_path / ending)
        restored = tf.keras.models.load_model(tmp_path / ending)
    else:
        model.save_weights(tmp_path / ending)
        restored = model_sharing_a_table()
        restored.load_weights(tmp_path / ending)
    np.testing.assert_array_equal(restored(x), expected)
    assert len(restored.weights) == len(model.weights)
    assert restored.count_params() == model.count_params()
    first, second = lambda_layers(restored)
    table = checks.raw(first.position_embedding.embeddings)
    table.assign(tf.zeros_like(table))
    other = checks.raw(second.position_embedding.embeddings).numpy()
    assert np.all(other == 0), "the layers no longer share"


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
        first, second = lambda_layers(model)
        assert first.position_embedding is second.position_embedding
        assert len(model.trainable_weights) == 2 * 7 + 1


def test_global_table_serves_smaller_grids(rng):
    # The paper shares embeddings between layers that see the same geometry;
    # a smaller grid uses the middle of the table.
    table = layers.RelativePositionEmbedding(3)
    large = layers.LambdaLayer(
        6, num_heads=2, key_dim=3, position_embedding=table
    )
    large(tf.zeros([1, 5, 7, 4]))
    small = layers.LambdaLayer(
        6, num_heads=2, key_dim=3, position_embedding=table
    )
    call = {"inputs": rng.normal(size=[2, 3, 4, 4]).astype("float32")}
    small(tf.constant(call["inputs"]))
    checks.randomize(small, rng)
    assert tuple(table.embeddings.shape) == (9, 13, 3, 1)
    middle = table.embeddings.numpy()[2:7, 3:10]
    point, fixed = checks.split_point(small, call)
    point["embeddings"] = middle
    inputs = point.pop("inputs")
    expected = oracle.lambda_layer(
        inputs, point, **checks.oracle_settings(small)
    )
    checks.assert_close(small(call["inputs"]), expected, 1e-5)


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
    arguments = {
        "filters": 10,
        "num_heads": 2,
        "key_dim": 3,
        "intra_depth": depth,
        "multi_head": heads is not None,
    }
    own = layers.LambdaLayer(**arguments, scope=scope, position_embedding=table)
    own(x)
    checks.randomize(own, rng)
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
