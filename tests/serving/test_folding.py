"""Folded networks compute the same function with fewer weights."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf.serving import fold_batch_norm
from tests.support import cases
from tests.support.serving_run import shake

Conv2D = tf.keras.layers.Conv2D
Norm = tf.keras.layers.BatchNormalization


def norms_of(model):
    return [layer for layer in model.layers if isinstance(layer, Norm)]


def fold(model, rng, *inputs, **arguments):
    """Folds a shaken model; returns what is left after comparing outputs."""
    shake(model, rng)
    folded = fold_batch_norm(model, **arguments)
    wanted = model(list(inputs) if len(inputs) > 1 else inputs[0])
    outputs = folded(list(inputs) if len(inputs) > 1 else inputs[0])
    for output, want in zip(
        tf.nest.flatten(outputs), tf.nest.flatten(wanted), strict=True
    ):
        scale = np.abs(want).max()
        assert scale > 0
        np.testing.assert_allclose(output, want, atol=1e-5 * scale)
    return folded


def sequence(x, *steps):
    for step in steps:
        x = step(x)
    return x


@pytest.mark.slow
@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("builder", "arguments"),
    [
        ("LambdaResNetSmall", {"stages": ("CL", "LL"), "strides": (1, 2)}),
        (
            "LambdaResNetSmall",
            {
                "stages": ("C", "LLL"),
                "strides": (1, 1),
                "share_embeddings": True,
                "se_ratio": 0.25,
                "se_stages": (2, 3),
                "drop_path_rate": 0.2,
            },
        ),
        (
            "LambdaResNetSmall",
            {
                "stages": ("LL",),
                "strides": (1,),
                "intra_depth": 2,
                "scope": None,
                "use_content": True,
            },
        ),
        ("MobileNetV2", {"lambda_blocks": (10, 16)}),
    ],
)
def test_networks(builder, arguments, rng):
    if "stages" in arguments:
        arguments = {"widths": (8, 8)[: len(arguments["stages"])], **arguments}
    size = 32 if builder == "MobileNetV2" else 9
    model = getattr(models, builder)(
        input_shape=(size, size, 3), classes=5, **arguments
    )
    images = rng.uniform(0, 255, (2, size, size, 3)).astype(np.float32)
    folded = fold(model, rng, images)
    # After a lambda layer a norm remains: see the module.
    lambdas = sum(
        isinstance(layer, (layers.LambdaLayer, layers.LambdaConv))
        for layer in model.layers
    )
    assert lambdas > 0
    assert len(norms_of(folded)) == lambdas < len(norms_of(model))
    assert folded.count_params() < model.count_params()


@pytest.mark.parametrize("norm", [{}, {"center": False}, {"scale": False}])
@pytest.mark.parametrize(
    "layer",
    [
        lambda: Conv2D(5, 3, use_bias=False),
        lambda: Conv2D(5, 3, strides=2, padding="same"),
        lambda: tf.keras.layers.DepthwiseConv2D(3, depth_multiplier=2),
        lambda: tf.keras.layers.Dense(7),
    ],
)
def test_a_norm_disappears_into_the_linear_layer_before_it(layer, norm, rng):
    images = tf.keras.Input((7, 5, 3))
    outputs = sequence(images, layer(), Norm(**norm))
    x = rng.normal(size=(2, 7, 5, 3)).astype(np.float32)
    assert norms_of(fold(tf.keras.Model(images, outputs), rng, x)) == []


def test_what_somebody_else_reads_keeps_its_norm(rng):
    images = tf.keras.Input((7, 5, 3))
    x = Conv2D(5, 3)(images)
    both = tf.keras.layers.Add()([x, Norm()(x)])
    sample = rng.normal(size=(2, 7, 5, 3)).astype(np.float32)
    assert len(norms_of(fold(tf.keras.Model(images, both), rng, sample))) == 1
    also_output = tf.keras.Model(images, [x, Norm()(x)])
    assert len(norms_of(fold(also_output, rng, sample))) == 1


def tied(y, z):
    """What is after the sum reads the first tensor of the layer's own call."""
    activation = tf.keras.layers.LeakyReLU()
    activation(tf.keras.Input(y.shape[1:]))
    return tf.keras.layers.Add()([z, activation(y)])


@pytest.mark.parametrize(
    "read",
    [
        lambda y, z: y + z,
        lambda y, z: z + y,
        lambda y, z: y * tf.keras.activations.sigmoid(z),
        lambda y, z: layers.LambdaLayer(4, num_heads=2, key_dim=3, scope=3)(
            z, context=y
        ),
        lambda y, z: tf.keras.layers.MultiHeadAttention(2, 3)(z, y),
        tied,
    ],
)
def test_every_kind_of_reader_counts(read, rng):
    inputs = tf.keras.Input((6, 4))
    y = tf.keras.layers.Dense(4)(inputs)
    model = tf.keras.Model(inputs, read(y, Norm()(y)))
    sample = rng.normal(size=(2, 6, 4)).astype(np.float32)
    assert len(norms_of(fold(model, rng, sample))) == 1


@pytest.mark.parametrize("arguments", [{"training": True}, {}])
def test_a_norm_of_the_batch_stays(arguments, rng):
    inputs = tf.keras.Input((6, 4))
    x = tf.keras.layers.Dense(4)(inputs)
    model = tf.keras.Model(inputs, Norm(momentum=1.0)(x, **arguments))
    sample = rng.normal(size=(2, 6, 4)).astype(np.float32)
    assert len(norms_of(fold(model, rng, sample))) == len(arguments)


@pytest.mark.parametrize("nested", [False, True])
def test_what_was_adapted_stays(nested, rng):
    sample = rng.normal(3.0, 5.0, (8, 6, 4)).astype(np.float32)
    norm = tf.keras.layers.Normalization()
    norm.adapt(sample)
    inputs = tf.keras.Input((6, 4))
    first = tf.keras.Sequential([tf.keras.Input((6, 4)), norm])
    x = (first if nested else norm)(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(3)(x))
    folded = fold_batch_norm(model)
    np.testing.assert_allclose(folded(sample), model(sample), atol=1e-5)


def test_a_norm_after_an_activation_stays(rng):
    images = tf.keras.Input((7, 5, 3))
    outputs = sequence(images, Conv2D(5, 3, activation="relu"), Norm())
    sample = rng.normal(size=(2, 7, 5, 3)).astype(np.float32)
    model = tf.keras.Model(images, outputs)
    assert len(norms_of(fold(model, rng, sample))) == 1


def test_a_layer_that_is_called_twice_keeps_its_norms(rng):
    images = tf.keras.Input((7, 5, 3))
    shared = Conv2D(3, 3, padding="same")
    outputs = sequence(images, shared, Norm(), shared, Norm())
    sample = rng.normal(size=(2, 7, 5, 3)).astype(np.float32)
    model = tf.keras.Model(images, outputs)
    assert len(norms_of(fold(model, rng, sample))) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"use_batch_norm": False},
        {"multi_head": True, "use_position_bias": True},
        {"use_position_bias": True},
        {"intra_depth": 2},
        {"use_content": False},
        {"use_position": False},
        {"query_normalization": "softmax"},
        {"causal": True, "use_batch_norm": True},
    ],
)
def test_lambda_layers_of_every_kind(arguments, rng):
    inputs = tf.keras.Input((7, 6))
    layer = layers.LambdaLayer(num_heads=2, key_dim=3, **arguments)
    sample = rng.normal(size=(2, 7, 6)).astype(np.float32)
    folded = fold(tf.keras.Model(inputs, layer(inputs)), rng, sample)
    assert folded.layers[-1].query_norm is None
    assert folded.layers[-1].value_norm is None


def test_a_lambda_convolution_with_strides(rng):
    inputs = tf.keras.Input((7, 6, 4))
    layer = layers.LambdaConv(
        filters=4, kernel_size=3, strides=2, num_heads=2, key_dim=3
    )
    sample = rng.normal(size=(2, 7, 6, 4)).astype(np.float32)
    fold(tf.keras.Model(inputs, layer(inputs)), rng, sample)


def test_a_context_of_its_own(rng):
    inputs, context = tf.keras.Input((5, 6)), tf.keras.Input((7, 3))
    layer = layers.LambdaLayer(num_heads=2, key_dim=3, use_position=False)
    outputs = layer(inputs, context=context)
    samples = [rng.normal(size=(2, *s)).astype("f4") for s in ((5, 6), (7, 3))]
    fold(tf.keras.Model([inputs, context], outputs), rng, *samples)


def test_shared_embeddings_stay_shared(rng):
    inputs = tf.keras.Input((7, 6))
    table = layers.RelativePositionEmbedding(key_dim=3)
    x = inputs
    for _ in range(2):
        x = layers.LambdaLayer(
            num_heads=2, key_dim=3, position_embedding=table
        )(x)
    sample = rng.normal(size=(2, 7, 6)).astype(np.float32)
    folded = fold(tf.keras.Model(inputs, x), rng, sample)
    first, second = folded.layers[-2:]
    assert first.position_embedding is second.position_embedding


@cases.every_implementation
def test_the_algorithm_can_be_chosen(implementation, rng):
    inputs = tf.keras.Input((7, 5, 6))
    layer = layers.LambdaLayer(num_heads=2, key_dim=3, scope=5)
    sample = rng.normal(size=(2, 7, 5, 6)).astype(np.float32)
    model = tf.keras.Model(inputs, layer(inputs))
    folded = fold(model, rng, sample, implementation=implementation)
    assert folded.layers[-1].implementation == implementation


def test_a_loss_that_is_in_no_file_is_left_alone(rng):
    def loss(truth, answer):
        return tf.reduce_mean(tf.abs(truth - answer))

    images = tf.keras.Input((6, 5, 2))
    model = tf.keras.Model(images, sequence(images, Conv2D(3, 3), Norm()))
    model.compile("sgd", loss)
    folded = fold(model, rng, rng.normal(size=(2, 6, 5, 2)).astype("f4"))
    assert not norms_of(folded)


def test_a_sequential_model_is_folded():
    model = tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 1)),
            layers.LambdaLayer(8, num_heads=2, key_dim=4, scope=3),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense(3),
        ]
    )
    images = tf.random.normal([2, 8, 8, 1])
    outputs = fold_batch_norm(model)(images)
    np.testing.assert_allclose(outputs, model(images), rtol=1e-4, atol=1e-5)
