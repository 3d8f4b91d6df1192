"""Classifiers: what makes probabilities of logits, and what is refused."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import serving
from lambdanet_tf.serving import formats
from lambdanet_tf.serving.classifier import classifier_of
from tests.support.serving_run import answer
from tests.support.serving_run import card_of
from tests.support.serving_run import classifier
from tests.support.serving_run import export

BINARY = tf.keras.losses.BinaryCrossentropy(from_logits=True)
SPARSE = "sparse_categorical_crossentropy"
Keras = tf.keras.layers


@pytest.mark.parametrize(
    ("model", "wanted", "activation"),
    [
        (lambda: classifier(1), None, "sigmoid"),
        (lambda: classifier(1, loss="mse"), "sigmoid", "sigmoid"),
        (lambda: classifier(4, loss=BINARY), None, "sigmoid"),
        (lambda: classifier(4, loss="binary_crossentropy"), None, "sigmoid"),
        (lambda: classifier(4, loss=BINARY), "softmax", "softmax"),
        (lambda: classifier(4, loss=SPARSE), None, "softmax"),
        (lambda: classifier(4, layer=Keras.Softmax()), None, "softmax"),
    ],
)
def test_activation_is_the_models(model, wanted, activation):
    options = serving.ExportOptions(classifier_activation=wanted)
    assert classifier_of(model(), options).activation == activation


@pytest.mark.thorough
@pytest.mark.parametrize("loss", [None, "mse"])
def test_an_assumed_softmax_is_said(loss, tmp_path):
    with pytest.warns(UserWarning, match="by a softmax, assumed: .*'sigmoid'"):
        folder = export(classifier(4, loss=loss), tmp_path)
    card = card_of(folder)
    assert "softmax: one class for each image (assumed: the" in card
    assert serving.verify_export(folder).agrees


def test_one_logit_is_served_through_a_sigmoid(tmp_path, rng):
    model = classifier(1)
    kernel = np.array([[3.0], [-9.0], [2.0]])
    model.layers[-1].set_weights([kernel, np.array([0.5])])
    folder = export(model, tmp_path, labels=("no", "yes"), formats=("tflite",))
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
    np.testing.assert_allclose(
        outputs["top_probabilities"][:, 0],
        np.maximum(wanted, 1 - wanted)[:, 0],
        rtol=1e-5,
    )
    of_file = formats.load(folder, "tflite")(images)
    np.testing.assert_allclose(of_file["probabilities"], wanted, rtol=1e-4)
    assert serving.verify_export(folder).agrees
    assert "sigmoid of one output" in card_of(folder)


# What cannot be exported.


def each_pixel():
    images = tf.keras.Input((8, 8, 3))
    return tf.keras.Model(images, Keras.Dense(4)(images))


def series():
    inputs = tf.keras.Input((16, 5))
    return tf.keras.Model(inputs, Keras.Dense(3)(Keras.Flatten()(inputs)))


def two_inputs():
    images = tf.keras.Input((4, 4, 3))
    pooled = Keras.GlobalAveragePooling2D()(images)
    return tf.keras.Model([images, tf.keras.Input((1,))], pooled)


MODELS = [
    (lambda: classifier(1, "softmax"), {}, "softmax of one output is 1"),
    (
        lambda: classifier(4, "sigmoid"),
        {"classifier_activation": "softmax"},
        "must be the model's own",
    ),
    (lambda: classifier(1, loss="mse"), {}, "compiled with a binary loss"),
    (lambda: classifier(4, "tanh"), {}, "Received: tanh"),
    (each_pixel, {}, r"one row of classes.*\(None, 8, 8, 4\).*'predict'"),
    (series, {"task": "classify"}, r"must take images.*task='predict'"),
    (two_inputs, {"task": "classify"}, "must have one input"),
    (
        lambda: classifier(3, "softmax", size=None),
        {},
        "`image_size` must be given",
    ),
    (
        lambda: serving.Inference(classifier(3, "softmax")),
        {"top": 1},
        "`options` must be None for an",
    ),
]


@pytest.mark.representatives(len(MODELS), everywhere=True)
@pytest.mark.parametrize(("make", "options", "message"), MODELS)
def test_models_that_cannot_be_exported(make, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export(make(), tmp_path, **options)
    assert not [*tmp_path.glob("m/*")]


OPTIONS = [
    ({"labels": ("a",)}, "`labels` must hold 5 names.*Received: 1 names"),
    ({"labels": ("a\nb",)}, "`labels` must be one line of text"),
    ({"labels": (*"abcd", "")}, "`labels` must be one line .* class 4"),
    ({"implementation": "magic"}, "`implementation` must be one of"),
    ({"task": "draw"}, "`task` must be one of .*'draw'"),
    ({"formats": ("tflit",)}, "`formats` must be one .* mean 'tflite'"),
    ({"image_size": (9, 9)}, r"the model's, \(8, 7\). Received: \(9, 9\)"),
    ({"evaluation_crop": 0}, "`evaluation_crop` must lie between"),
    ({"evaluation_crop": 0.875}, r"must be 1 .* 0.875 for 8x7"),
]


@pytest.mark.representatives(len(OPTIONS), everywhere=True)
@pytest.mark.parametrize(("arguments", "message"), OPTIONS)
def test_options_that_do_not_fit(small_run, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        export(small_run[1], tmp_path, **arguments)
    assert not [*tmp_path.glob("m/*")]


@pytest.mark.once
@pytest.mark.parametrize("module", ["tf2onnx", "onnxruntime"])
def test_onnx_names_its_extra(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r'"lambdanet-tf\[onnx\]"'):
        export(classifier(3, "softmax"), tmp_path, formats=("onnx",))
    assert not (tmp_path / "m").exists()
