"""Networks and layers at other sizes than those they were built for."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.models import sizes
from tests.support import checks
from tests.support import networks

KERAS = tf.keras.layers


@pytest.mark.parametrize(
    "build",
    [
        networks.tiny,
        functools.partial(networks.tiny_mobilenet, lambda_blocks=(2, 3)),
        functools.partial(
            models.ResNet, networks.ATTENTION, stages=("S", "SC", "S")
        ),
    ],
)
def test_free_sizes_equal_static_ones(build):
    free = build(input_shape=(None, None, 3))
    fixed = build(input_shape=(13, 22, 3))
    networks.vary(free)
    models.set_weights(fixed, networks.arrays(free), "free")
    x = networks.some_images(2, 13, 22, 3)
    checks.assert_close(free(x), fixed(x), 1e-4)


def images(rng, *size):
    return rng.normal(size=(2, *size, 3)).astype("float32")


def through(x, *steps):
    return functools.reduce(lambda y, step: step(y), steps, x)


def network(size, seed=0):
    """A classifier with global lambda layers that share a table, and more."""
    tf.keras.utils.set_random_seed(seed)
    table = layers.RelativePositionEmbedding(key_dim=4, name="table")
    arguments = {"num_heads": 2, "key_dim": 4, "position_embedding": table}
    inputs = tf.keras.Input((*size, 3))
    outputs = through(
        inputs,
        KERAS.Conv2D(6, 3, padding="same", name="stem"),
        layers.LambdaLayer(name="first", **arguments),
        layers.LambdaLayer(name="second", **arguments),
        layers.LambdaLayer(num_heads=2, scope=3, name="local"),
        layers.RelativeAttention(num_heads=2, name="attention"),
        KERAS.GlobalAveragePooling2D(),
        KERAS.Dense(5, name="predictions"),
    )
    return tf.keras.Model(inputs, outputs)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("LambdaLayer", {"key_dim": 3}),
        ("LambdaLayer", {"key_dim": 3, "intra_depth": 2}),
        ("RelativeAttention", {"key_dim": 3}),
        ("RelativeAttention", {"position_embedding": "joint"}),
    ],
)
def test_a_layer_takes_smaller_inputs_and_refuses_larger(kind, arguments, rng):
    layer = getattr(layers, kind)(num_heads=2, **arguments)
    layer.build((None, 9, 7, 6))
    checks.randomize(layer, rng)
    x = rng.normal(size=(2, 5, 6, 6)).astype("float32")
    smaller = models.resize_embeddings(layer, (5, 6, 6))
    assert smaller.count_params() < layer.count_params()
    checks.assert_close(layer(x), smaller(x), 2e-6)
    expected = checks.oracle_output(smaller, {"inputs": x})
    checks.assert_close(layer(x), expected, 1e-5)
    x = rng.normal(size=(2, 11, 9, 6)).astype("float32")
    with pytest.raises(ValueError, match="models.resize_embeddings"):
        layer(x)
    assert models.resize_embeddings(layer, x.shape[1:])(x).shape == x.shape
    sized = tf.keras.Sequential([tf.keras.Input((6, 3)), KERAS.PReLU()])
    for model, shape in (layer, (9, 7, 4)), (layer, (9, 6)), (sized, (5, 3)):
        with pytest.raises(ValueError, match="`input_shape` must leave"):
            models.resize_embeddings(model, shape)


def test_interpolation_is_linear_from_end_to_end():
    rows, columns = np.arange(-3, 4), np.arange(-1, 2)
    table = (rows[:, None] + 10 * columns)[..., None].astype(np.float32)
    wide = sizes.resize_table(table, (13, 7))
    expected = np.linspace(-3, 3, 13)[:, None] + np.linspace(-10, 10, 7)
    np.testing.assert_allclose(wide[..., 0], expected, atol=1e-6)
    assert wide.dtype == np.float32
    point = sizes.resize_table(table[3:4, 1:2], (3, 3))
    np.testing.assert_array_equal(point, np.zeros((3, 3, 1)))
    np.testing.assert_array_equal(sizes.resize_table(table, (7, 3)), table)


@pytest.mark.slow
def test_a_network_of_another_size_is_its_copy(rng, tmp_path, recwarn):
    model, path = network((9, 8)), tmp_path / "weights.npz"
    models.save_weights(model, path)
    smaller = models.resize_embeddings(model, (6, 5, 3))
    x = images(rng, 6, 5)
    # Each layer takes smaller inputs as it is.
    checks.assert_close(smaller(x), through(x, *model.layers[1:]), 5e-6)
    assert smaller.get_layer("first").position_embedding is (
        smaller.get_layer("second").position_embedding
    )
    larger = models.resize_embeddings(model, (12, 16, 3))
    assert larger(images(rng, 12, 16)).shape == (2, 5)
    networks.assert_weights(larger, model, but=sizes.global_tables(model))
    # Files are loaded across sizes, too.
    fresh = network((6, 5), seed=1)
    models.load_weights(fresh, path)
    networks.assert_weights(fresh, smaller)
    assert UserWarning not in {warning.category for warning in recwarn}
    fresh = network((12, 16), seed=1)
    with pytest.warns(UserWarning, match="interpolated"):
        models.load_weights(fresh, path)
    networks.assert_weights(fresh, larger)


@pytest.mark.parametrize("structure", [lambda x: [x], lambda x: {"x": x}])
def test_the_input_may_be_in_a_list_or_a_dictionary(structure):
    inputs = tf.keras.Input((6, 3), name="x")
    x = layers.LambdaLayer(4, num_heads=2, key_dim=3)(inputs)
    model = tf.keras.Model(structure(inputs), x)
    assert models.resize_embeddings(model, (5, 3)).output_shape == (None, 5, 4)
    assert analysis.analyze(model, 5, executed=False).image_shape == (5, 3)


@pytest.mark.slow
def test_models_inside_are_resized_too(rng):
    maps, inputs = tf.keras.Input((6, 5, 3)), tf.keras.Input((12, 10, 3))
    pool = KERAS.AveragePooling2D(2)
    layer = layers.LambdaLayer(6, num_heads=2)
    inside = tf.keras.Model(maps, layer(maps))
    model = tf.keras.Model(inputs, inside(pool(inputs)))
    checks.randomize(model, rng)
    smaller = models.resize_embeddings(model, (6, 8, 3))
    x = images(rng, 6, 8)
    checks.assert_close(smaller(x), layer(pool(x)), 5e-6)
    larger = models.resize_embeddings(model, (17, 20, 3))
    assert larger(images(rng, 17, 20)).shape == (2, 8, 10, 6)


@pytest.mark.parametrize("whole", [False, True])
def test_copies_freeze_what_is_frozen(whole):
    x, heads = tf.keras.Input((4, 3)), KERAS.MultiHeadAttention(2, 2)
    model = tf.keras.Model(x, KERAS.Dense(2)(heads(x, x)))
    model.trainable = not whole
    heads.trainable = model.layers[-1].trainable = True
    heads._output_dense.trainable = False
    resized = models.resize_embeddings(model, (4, 3))
    for copy in (resized, models.replace_layers(model, lambda *_: None)):
        assert len(copy.trainable_weights) == len(model.trainable_weights)
        assert len(copy.layers[-2].trainable_weights) == 6
        assert copy.layers[-1].trainable


@pytest.mark.once
@pytest.mark.skipif(not KERAS_3, reason="Keras 2 has no low-rank updates")
def test_copies_have_the_low_rank_updates_and_train_them(rng):
    layer = layers.LambdaLayer(6, num_heads=2, key_dim=3)
    model = tf.keras.Sequential([tf.keras.Input((4, 4, 3)), layer])
    layer.query.enable_lora(2, lora_alpha=3)
    layer.query.lora_kernel_b.assign(rng.normal(size=(2, 6)))
    x = images(rng, 4, 4)
    for copy in (
        models.resize_embeddings(model, (4, 4, 3)),
        models.replace_layers(model, lambda *_: None),
    ):
        np.testing.assert_allclose(copy(x), model(x), rtol=1e-4, atol=1e-4)
        assert len(copy.trainable_weights) == len(model.trainable_weights)
    parts = [analysis.layer_part(layer, x) for x in ("content", "position")]
    checks.assert_close(parts[0](x) + parts[1](x), layer(x), 1e-5)
    models.freeze(model, None)
    assert len(copy.trainable_weights) == len(model.trainable_weights)
