"""Networks and layers at other sizes than those they were built for."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import serving
from lambdanet_tf.models import tables
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
        ("LambdaLayer", {"key_dim": 3, "intra_depth": 2}),
        ("RelativeAttention", {"key_dim": 3}),
        ("RelativeAttention", {"position_embedding": "joint"}),
    ],
)
def test_a_layer_takes_smaller_inputs_and_refuses_larger(kind, arguments, rng):
    layer, smaller = (
        getattr(layers, kind)(num_heads=2, **arguments) for _ in range(2)
    )
    layer.build((None, 9, 7, 6))
    checks.randomize(layer, rng)
    x = checks.normal(rng, 2, 5, 6, 6)
    smaller(x)
    weights = tables.fit_tables(smaller, networks.arrays(layer))
    models.set_weights(smaller, weights, "larger")
    checks.assert_close(layer(x), smaller(x), 2e-6)
    expected = checks.oracle_output(smaller, {"inputs": x})
    checks.assert_close(layer(x), expected, 1e-5)
    with pytest.raises(ValueError, match="models.load_weights"):
        layer(checks.normal(rng, 2, 11, 9, 6))


def test_interpolation_is_linear_from_end_to_end():
    rows, columns = np.arange(-3, 4), np.arange(-1, 2)
    table = (rows[:, None] + 10 * columns)[..., None].astype(np.float32)
    wide = tables.resize_table(table, (13, 7))
    expected = np.linspace(-3, 3, 13)[:, None] + np.linspace(-10, 10, 7)
    np.testing.assert_allclose(wide[..., 0], expected, atol=1e-6)
    assert wide.dtype == np.float32
    point = tables.resize_table(table[3:4, 1:2], (3, 3))
    np.testing.assert_array_equal(point, np.zeros((3, 3, 1)))
    np.testing.assert_array_equal(tables.resize_table(table, (7, 3)), table)


@pytest.mark.slow
def test_files_are_loaded_across_sizes(rng, tmp_path, recwarn):
    model, path = network((9, 8)), tmp_path / "weights.npz"
    models.save_weights(model, path)
    smaller = network((6, 5), seed=1)
    models.load_weights(smaller, path)
    x = checks.normal(rng, 2, 6, 5, 3)
    # Each layer takes smaller inputs as it is.
    checks.assert_close(smaller(x), through(x, *model.layers[1:]), 5e-6)
    inputs = tf.keras.Input((6, 5, 3))
    shared = tf.keras.Model(inputs, through(inputs, *model.layers[1:]))
    options = serving.ExportOptions(activation="softmax")
    exported = serving.Inference(shared, options)
    for outputs in (exported(x), exported.expected_outputs(x)):
        checks.assert_close(outputs["logits"], smaller(x), 5e-6)
    assert UserWarning not in {warning.category for warning in recwarn}
    larger = network((12, 16), seed=1)
    with pytest.warns(UserWarning, match="interpolated"):
        models.load_weights(larger, path)
    old, new = networks.arrays(model), networks.arrays(larger)
    changed = [name for name, w in new.items() if w.shape != old[name].shape]
    assert len(changed) == 3  # one that is shared, and two axes of attention
    networks.assert_weights(larger, model, but=changed)
    table = new["table/embeddings"]
    expected = tables.resize_table(old["table/embeddings"], table.shape[:2])
    np.testing.assert_array_equal(table, expected)
