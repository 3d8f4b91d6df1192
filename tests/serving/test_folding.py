"""Folded networks compute the same function with fewer weights."""

import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import ops
from lambdanet_tf import serving
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.serving import fold_batch_norm
from tests.support import cases
from tests.support import checks
from tests.support.networks import vary
from tests.support.serving_run import shake

Keras = tf.keras.layers
Conv2D = Keras.Conv2D
Norm = Keras.BatchNormalization


def norms_of(model):
    return [layer for layer in model.layers if isinstance(layer, Norm)]


def chain(shape, *steps, **arguments):
    """A model of one layer after the other."""
    x = inputs = tf.keras.Input(shape, **arguments)
    for step in steps:
        x = step(x)
    return tf.keras.Model(inputs, x)


def compare(model, inputs, devices=("cpu",), **arguments):
    """Folds a model: on every device it is the same function, as before."""
    expected = tf.nest.flatten(model(inputs))
    folded = fold_batch_norm(model, **arguments)
    for device in devices:
        with ops.planning_for(device):
            for network in (model, folded):
                found = tf.nest.flatten(network(inputs))
                for output, wanted in zip(found, expected, strict=True):
                    assert np.abs(wanted).max() > 0
                    checks.assert_close(output, wanted, 1e-5)
    return folded


def fold(model, rng, **arguments):
    """Shakes and folds a model; returns what is left after comparing."""
    shake(model, rng)
    inputs = [
        rng.normal(size=(2, *tensor.shape[1:])).astype(np.float32)
        for tensor in model.inputs
    ]
    inputs = inputs if len(inputs) > 1 else inputs[0]
    return compare(model, inputs, **arguments)


@pytest.mark.slow
@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("builder", "arguments"),
    [
        (
            "LambdaResNetSmall",
            {"stages": ("CL", "LL"), "widths": (8, 8), "strides": (1, 2)},
        ),
        (
            "LambdaResNetSmall",
            {
                "stages": ("C", "LLL"),
                "widths": (8, 8),
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
                "widths": (8,),
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
    size = 32 if builder == "MobileNetV2" else 9
    model = getattr(models, builder)(
        input_shape=(size, size, 3), classes=5, **arguments
    )
    shake(model, rng)
    images = rng.uniform(0, 255, (2, size, size, 3)).astype(np.float32)
    folded = compare(model, images)
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
        lambda: Keras.DepthwiseConv2D(3, depth_multiplier=2),
        lambda: Keras.Dense(7),
    ],
)
def test_a_norm_disappears_into_the_linear_layer_before_it(layer, norm, rng):
    model = chain((7, 5, 3), layer(), Norm(**norm))
    assert norms_of(fold(model, rng)) == []


def tied(y, z):
    """What is after the sum reads the first tensor of the layer's own call."""
    activation = Keras.LeakyReLU()
    activation(tf.keras.Input(y.shape[1:]))
    return Keras.Add()([z, activation(y)])


READERS = {
    "a layer": lambda y, z: Keras.Add()([y, z]),
    "the user": lambda y, z: [y, z],
    "a sum": lambda y, z: y + z,
    "a sum from the left": lambda y, z: z + y,
    "a product": lambda y, z: y * tf.keras.activations.sigmoid(z),
    "an argument by name": lambda y, z: layers.LambdaLayer(
        4, num_heads=2, key_dim=3, scope=3
    )(z, context=y),
    "a second argument": lambda y, z: Keras.MultiHeadAttention(2, 3)(z, y),
    "a layer that has read before": tied,
}


@pytest.mark.representatives(len(READERS), everywhere=True)
@pytest.mark.parametrize("reader", READERS)
def test_what_somebody_else_reads_keeps_its_norm(reader, rng):
    is_sequence = "argument" in reader
    inputs = tf.keras.Input((6, 4) if is_sequence else (7, 5, 3))
    y = (Keras.Dense(4) if is_sequence else Conv2D(5, 3))(inputs)
    model = tf.keras.Model(inputs, READERS[reader](y, Norm()(y)))
    assert len(norms_of(fold(model, rng))) == 1


class Squared(Conv2D):
    """Somebody's convolution, by the squares of its kernel."""

    def call(self, inputs):
        kernel = tf.convert_to_tensor(self.kernel)
        return tf.nn.conv2d(inputs, kernel**2, 1, "VALID")


def twice():
    shared = Conv2D(3, 3, padding="same")
    return [shared, Norm(), shared, Norm()]


# What a network is made of, and how many of its norms stay.
STEPS = {
    "after an activation": (
        lambda: [Conv2D(5, 3, activation="relu"), Norm()],
        1,
    ),
    "of a layer that is called twice": (twice, 2),
    "of the batch": (
        lambda: [
            Keras.Dense(4),
            functools.partial(Norm(momentum=1.0), training=True),
        ],
        1,
    ),
    "of an average": (lambda: [Keras.Dense(4), Norm(momentum=1.0)], 0),
    "subclass": (lambda: [Squared(4, 3, use_bias=False), Norm()], 1),
    "transposed": (lambda: [Keras.Conv2DTranspose(3, 3), Norm()], 1),
    "another axis": (lambda: [Conv2D(4, 3), Norm(axis=1)], 1),
    "grouped": (lambda: [Conv2D(6, 3, groups=3), Norm()], 0),
    "separable": (lambda: [Keras.SeparableConv2D(4, 3), Norm()], 1),
    "ours": (lambda: [Conv2D(4, 3), layers.BatchNormalization()], 0),
}


@pytest.mark.representatives(len(STEPS), everywhere=True)
@pytest.mark.parametrize("name", STEPS)
def test_which_norms_stay(name, rng):
    steps, number = STEPS[name]
    folded = fold(chain((7, 5, 3), *steps()), rng)
    assert len(norms_of(folded)) == number


@pytest.mark.parametrize("nested", [False, True])
def test_what_was_adapted_stays(nested, rng):
    sample = rng.normal(3.0, 5.0, (8, 6, 4)).astype(np.float32)
    norm = Keras.Normalization()
    norm.adapt(sample)
    first = tf.keras.Sequential([tf.keras.Input((6, 4)), norm])
    model = chain((6, 4), first if nested else norm, Keras.Dense(3))
    folded = fold_batch_norm(model)
    np.testing.assert_allclose(folded(sample), model(sample), atol=1e-5)


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
    layer = layers.LambdaLayer(num_heads=2, key_dim=3, **arguments)
    folded = fold(chain((7, 6), layer), rng)
    assert folded.layers[-1].query_norm is None
    assert folded.layers[-1].value_norm is None


def test_a_lambda_convolution_with_strides(rng):
    layer = layers.LambdaConv(4, 3, strides=2, num_heads=2, key_dim=3)
    fold(chain((7, 6, 4), layer), rng)


def test_a_context_of_its_own(rng):
    inputs, context = tf.keras.Input((5, 6)), tf.keras.Input((7, 3))
    layer = layers.LambdaLayer(num_heads=2, key_dim=3, use_position=False)
    outputs = layer(inputs, context=context)
    fold(tf.keras.Model([inputs, context], outputs), rng)


def test_shared_embeddings_stay_shared(rng):
    table = layers.RelativePositionEmbedding(key_dim=3)
    arguments = {"num_heads": 2, "key_dim": 3, "position_embedding": table}
    both = [layers.LambdaLayer(**arguments) for _ in range(2)]
    first, second = fold(chain((7, 6), *both), rng).layers[-2:]
    assert first.position_embedding is second.position_embedding


@cases.every_implementation
def test_the_algorithm_can_be_chosen(implementation, rng):
    layer = layers.LambdaLayer(num_heads=2, key_dim=3, scope=5)
    model = chain((7, 5, 6), layer)
    folded = fold(model, rng, implementation=implementation)
    assert folded.layers[-1].implementation == implementation


def test_a_loss_that_is_in_no_file_is_left_alone(rng):
    def loss(truth, answer):
        return tf.reduce_mean(tf.abs(truth - answer))

    model = chain((6, 5, 2), Conv2D(3, 3), Norm())
    model.compile("sgd", loss)
    assert not norms_of(fold(model, rng))


def test_a_sequential_model_is_folded(rng):
    layer = layers.LambdaLayer(8, num_heads=2, key_dim=4, scope=3)
    pool, head = Keras.GlobalAveragePooling2D(), Keras.Dense(3)
    images = tf.keras.Input((8, 8, 1))
    fold(tf.keras.Sequential([images, layer, pool, head]), rng)


# Models that somebody changed, on every device.


DEVICES = ("cpu", "tpu")


def test_masks_pass_a_folded_norm():
    model = chain(
        (7,),
        Keras.Embedding(5, 6, mask_zero=True),
        Keras.Dense(6),
        Norm(),
        layers.LambdaLayer(num_heads=2, key_dim=3),
        dtype="int32",
    )
    vary(model)
    tokens = [[1, 2, 3, 4, 1, 0, 0], [3, 0, 0, 0, 0, 0, 0]]
    compare(model, np.array(tokens), DEVICES)


MIDDLES = {
    "lambda": lambda: layers.LambdaLayer(num_heads=2, key_dim=3),
    "convolution": lambda: layers.LambdaConv(8, 3, num_heads=2, key_dim=3),
    "attention": lambda: layers.RelativeAttention(num_heads=2),
}


def quantize(model, _):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layers that cannot
        model.quantize("int8")


def enable_low_rank(model, rng):
    for layer in model._flatten_layers():
        if isinstance(layer, (Keras.Dense, Conv2D)):
            layer.enable_lora(2, lora_alpha=5)
            shape = layer.lora_kernel_b.shape
            layer.lora_kernel_b.assign(rng.normal(size=shape))


def replace(model, _):
    layer = model.layers[3]
    units, channels = layer.key.units, layer.key.kernel.shape[0]
    layer.key = Keras.Dense(units, "tanh", name="mine")
    layer.key.build((None, None, channels))


# Keras 2 has neither of the first, Keras 3 replaces no sublayer.
CHANGES = (
    {"low rank": enable_low_rank, "quantized": quantize}
    if KERAS_3
    else {"replaced": replace}
)


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize("middle", MIDDLES)
@pytest.mark.parametrize("how", CHANGES)
def test_networks_with_other_projections(how, middle, rng):
    model = chain(
        (6, 7, 3),
        Conv2D(8, 1),
        Norm(),
        MIDDLES[middle](),
        Keras.GlobalAveragePooling2D(),
        Keras.Dense(5),
    )
    vary(model)
    images = rng.uniform(0, 255, (2, 6, 7, 3)).astype(np.float32)
    before = model(images)
    CHANGES[how](model, rng)
    after = model(images)
    assert np.abs(after - before).max() > 1e-4 * np.abs(before).max()
    compare(model, images, DEVICES)
    logits = serving.Inference(model)(images=images)["logits"]
    checks.assert_close(logits, after, 1e-5)
