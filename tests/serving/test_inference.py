"""Networks for inference: folded, with probabilities, or refused."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import serving
from tests.support import checks
from tests.support.serving_run import answer
from tests.support.serving_run import card_of
from tests.support.serving_run import classifier
from tests.support.serving_run import export
from tests.support.serving_run import shake

Keras = tf.keras.layers
Conv2D = Keras.Conv2D
Norm = Keras.BatchNormalization
Lambda = functools.partial(layers.LambdaLayer, 6, num_heads=2, key_dim=3)


def chain(shape, *steps):
    """A model of one layer after the other."""
    x = inputs = tf.keras.Input(shape)
    for step in steps:
        x = step(x)
    return tf.keras.Model(inputs, x)


def fold(model, rng, **arguments):
    """Shakes and folds a model, which must stay the same function."""
    shake(model, rng)
    model.compile("sgd", tf.nn.log_poisson_loss)  # Keras cannot load it.
    x = rng.normal(size=(2, *model.inputs[0].shape[1:])).astype(np.float32)
    expected = tf.nest.flatten(model(x))
    folded = serving.fold_batch_norm(model, **arguments)
    checks.assert_each_close(tf.nest.flatten(folded(x)), expected, 1e-5)
    assert all(np.abs(wanted).max() > 0 for wanted in expected)
    return folded


def with_norms(layer, *arguments, **options):
    """Three layers, each with a norm of another kind behind it."""
    kinds = {}, {"center": False}, {"scale": False}
    rows = [(layer(*arguments, **options), Norm(**kind)) for kind in kinds]
    return [step for row in rows for step in row]


def read_by(reader):
    """A step whose values are read by a norm, and by something else."""

    def step(x):
        y = Conv2D(5, 3)(x)
        return reader(y, Norm()(y))

    return [step]


class Squared(Conv2D):
    """Somebody's convolution, by the squares of its kernel."""

    def call(self, inputs):
        kernel = tf.convert_to_tensor(self.kernel)
        return tf.nn.conv2d(inputs, kernel**2, 1, "VALID")


def attend(y, z):
    return layers.LambdaLayer(5, num_heads=1, key_dim=3, scope=3)(z, context=y)


def of_batch(x):
    return Norm(momentum=1.0)(x, training=True)


CAUSAL = Lambda(causal=True, use_batch_norm=True)
TWICE, TWICE_NORM = Conv2D(3, 1), Norm()
RELU = Conv2D(3, 1, activation="relu")
# What a network is made of, and how many of its norms stay.
STEPS = {
    "convolution": (with_norms(Conv2D, 5, 3, use_bias=False), 0),
    "strides": (with_norms(Conv2D, 5, 3, strides=2, padding="same"), 0),
    "depthwise": (with_norms(Keras.DepthwiseConv2D, 3, depth_multiplier=2), 0),
    "dense": (with_norms(Keras.Dense, 7), 0),
    "ours": ([Conv2D(4, 3), layers.BatchNormalization()], 0),
    "read by a layer": (read_by(lambda y, z: Keras.Add()([y, z])), 1),
    "read by the user": (read_by(lambda y, z: [y, z]), 1),
    "read by a sum": (read_by(lambda y, z: y + z), 1),
    "an argument by name": (read_by(attend), 1),
    "activation": ([Conv2D(5, 3, activation="relu"), Norm()], 1),
    "of a layer that is called twice": ([TWICE, Norm(), TWICE, Norm()], 2),
    "called twice": ([Conv2D(3, 1), TWICE_NORM, RELU, TWICE_NORM], 1),
    "of the batch": ([Keras.Dense(4), of_batch], 1),
    "subclass": ([Squared(4, 3, use_bias=False), Norm()], 1),
    "lambda": ([Lambda()], 0),
    "bias": ([Lambda(use_position_bias=True)], 0),
    "position": ([Lambda(use_content=False)], 0),
    "content": ([Lambda(use_position=False)], 0),
    "causal": ([Keras.Reshape((63, 3)), CAUSAL], 0),
    "lambda convolution": ([layers.LambdaConv(4, 3, strides=2, key_dim=3)], 0),
}


@pytest.mark.parametrize("name", STEPS)
def test_which_norms_stay(name, rng):
    steps, number = STEPS[name]
    folded = fold(chain((7, 9, 3), *steps), rng)
    names = "query_norm", "value_norm"
    inner = [getattr(x, name, None) for x in folded.layers for name in names]
    assert sum(isinstance(x, Norm) for x in [*folded.layers, *inner]) == number


@pytest.mark.parametrize("implementation", ["auto", "einsum"])
def test_the_algorithm_is_chosen_and_tables_stay_shared(implementation, rng):
    table = layers.RelativePositionEmbedding(3, scope=5)
    both = [Lambda(scope=5, position_embedding=table) for _ in range(2)]
    model = chain((7, 5, 6), *both)
    folded = fold(model, rng, implementation=implementation).layers[-2:]
    assert folded[0].position_embedding is folded[1].position_embedding
    assert {layer.implementation for layer in folded} == {implementation}


@pytest.mark.parametrize(
    ("own", "said"),
    [
        *(("softmax", None), ("sigmoid", "sigmoid")),
        *((None, "softmax"), (None, "sigmoid")),
    ],
)
def test_probabilities_are_those_of_the_activation(own, said, rng):
    model = classifier(4, own)
    inference = serving.Inference(model, serving.ExportOptions(activation=said))
    assert inference.options.activation == (own or said)
    images = rng.uniform(0, 255, (3, 8, 8, 3)).astype(np.float32)
    wanted = model.predict(images, verbose=0)
    if own is None:
        wanted = getattr(tf.nn, said)(wanted).numpy()
    logits = inference(images)["logits"]
    checks.assert_close(inference.probabilities(logits), wanted, 1e-5)
    expected = inference.expected_outputs(images)
    checks.assert_close(expected["logits"], logits, 1e-5)
    checks.assert_close(expected["probabilities"], wanted, 1e-5)


def test_one_logit_is_served_through_a_sigmoid(tmp_path, rng):
    model = classifier(1, size=None)
    kernel = np.array([[3.0], [-9.0], [2.0]])
    model.layers[-1].set_weights([kernel, np.array([0.5])])
    options = {"image_size": (8, 8), "formats": ("tflite",)}
    options |= {"activation": "sigmoid", "labels": ("no", "yes")}
    column = 255 * np.ones([2, 8, 8, 3]), [[1], [1]]  # as Keras' CIFAR has it
    folder = export(model, tmp_path, examples=column, **options)
    images = rng.uniform(0, 255, (6, 8, 8, 3)).astype(np.float32)
    images[::2, ..., 1] = 0
    logits = model.predict(images, verbose=0)
    is_yes = logits[:, 0] > 0
    assert {*is_yes} == {True, False}
    outputs = answer(folder, images=images)
    wanted = tf.sigmoid(logits).numpy()
    np.testing.assert_allclose(outputs["probabilities"], wanted, rtol=1e-5)
    np.testing.assert_array_equal(outputs["classes"], is_yes)
    best = np.where(is_yes, b"yes", b"no")
    np.testing.assert_array_equal(outputs["top_labels"][:, 0], best)
    found, best = outputs["top_probabilities"], np.maximum(wanted, 1 - wanted)
    np.testing.assert_allclose(found[:, :1], best, rtol=1e-5)
    assert serving.verify_export(folder).agrees
    assert "| probabilities | sigmoid |" in card_of(folder)


def two_outputs(x):
    return [x, Keras.Dense(3)(Keras.GlobalAveragePooling2D()(x))]


FIVE = functools.partial(classifier, 5, "softmax")
LOGITS = functools.partial(classifier, 4)
BARE = functools.partial(models.LambdaResNetSmall, include_preprocessing=False)
REFUSED = [
    (LOGITS, {}, "`activation` must be .*this returns logits"),
    (LOGITS, {"activation": "relu"}, "`activation` must be one of"),
    (FIVE, {"activation": "sigmoid"}, "'sigmoid' .*'dense.*' with 'softmax'"),
    (lambda: classifier(4, "tanh"), {}, "with 'tanh'"),
    (lambda: chain((8, 8, 3), Keras.Dense(4)), {}, r"`model\.export\(folder"),
    (lambda: chain((16,), Keras.Dense(3)), {}, "must classify images"),
    (lambda: chain((8, 8, 3), two_outputs), {}, "must classify images"),
    (lambda: classifier(3, "softmax", size=None), {}, "`image_size` must be"),
    (FIVE, {"image_size": (8, 9)}, r"\(8, 9\) for .* size \(8, 8\)"),
    (BARE, {}, "take images in .*built with include_preprocessing=False"),
    (FIVE, {"labels": ("a",)}, "`labels` must contain 5 name.*: 1 name"),
]


@pytest.mark.parametrize(("make", "options", "message"), REFUSED)
def test_what_cannot_be_exported(make, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export(make(), tmp_path, **options)
    assert not [*tmp_path.iterdir()]
