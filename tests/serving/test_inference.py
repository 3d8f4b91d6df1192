"""Classifiers: what makes probabilities of logits, and what is refused."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf import serving
from tests.support import checks
from tests.support.serving_run import answer
from tests.support.serving_run import card_of
from tests.support.serving_run import classifier
from tests.support.serving_run import export

Keras = tf.keras.layers


@pytest.mark.parametrize(
    ("own", "said", "activation"),
    [
        ("softmax", None, "softmax"),
        ("sigmoid", "sigmoid", "sigmoid"),
        (None, "softmax", "softmax"),
        (None, "sigmoid", "sigmoid"),
    ],
)
def test_probabilities_are_those_of_the_activation(own, said, activation, rng):
    model = classifier(4, own)
    inference = serving.Inference(model, serving.ExportOptions(activation=said))
    assert inference.options.activation == activation
    images = rng.uniform(0, 255, (3, 8, 8, 3)).astype(np.float32)
    wanted = model.predict(images, verbose=0)
    if own is None:
        wanted = getattr(tf.keras.activations, said)(wanted)
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
    assert {*(logits[:, 0] > 0)} == {True, False}
    outputs = answer(folder, images=images)
    wanted = tf.sigmoid(logits).numpy()
    np.testing.assert_allclose(outputs["probabilities"], wanted, rtol=1e-5)
    np.testing.assert_array_equal(outputs["classes"], logits[:, 0] > 0)
    best = np.where(logits[:, 0] > 0, b"yes", b"no")
    np.testing.assert_array_equal(outputs["top_labels"][:, 0], best)
    found = outputs["top_probabilities"][:, :1]
    likelier = np.maximum(wanted, 1 - wanted)
    np.testing.assert_allclose(found, likelier, rtol=1e-5)
    assert serving.verify_export(folder).agrees
    assert "| probabilities | sigmoid |" in card_of(folder)


def two_inputs():
    images = tf.keras.Input((4, 4, 3))
    pooled = Keras.GlobalAveragePooling2D()(images)
    return tf.keras.Model([images, tf.keras.Input((1,))], pooled)


def stack(shape, *steps):
    return tf.keras.Sequential([tf.keras.Input(shape), *steps])


FIVE = functools.partial(classifier, 5, "softmax")
LOGITS = functools.partial(classifier, 4)
BARE = functools.partial(models.LambdaResNetSmall, include_preprocessing=False)
REFUSED = [
    (LOGITS, {}, "`activation` must be .*given for a model of logits"),
    (LOGITS, {"activation": "relu"}, "`activation` must be one of"),
    (FIVE, {"activation": "sigmoid"}, "'sigmoid' for 'dense.*' with 'softmax'"),
    (lambda: classifier(4, "tanh"), {}, "with 'tanh'"),
    (lambda: stack((8, 8, 3), Keras.Dense(4)), {}, r"`model\.export\(folder"),
    (lambda: stack((16,), Keras.Dense(3)), {}, "must classify images"),
    (two_inputs, {}, "must classify images"),
    (lambda: classifier(3, "softmax", size=None), {}, "`image_size` must be"),
    (FIVE, {"image_size": (8, 9)}, r"\(8, 9\) for a model of images \(8, 8\)"),
    (BARE, {}, "read images in .*built with include_preprocessing=False"),
    (FIVE, {"labels": ("a",)}, "`labels` must hold 5 names.*: 1 names"),
    (FIVE, {"implementation": "magic"}, "`implementation` must be one of"),
    (FIVE, {"device": "abacus"}, "`device` must be one of"),
    (FIVE, {"formats": ("tflit",)}, "`formats` must be one .* mean 'tflite'"),
    (FIVE, {"evaluation_crop": 2}, "`evaluation_crop` must be a number in"),
]


@pytest.mark.parametrize(("make", "options", "message"), REFUSED)
def test_what_cannot_be_exported(make, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export(make(), tmp_path, **options)
    assert not [*tmp_path.iterdir()]
