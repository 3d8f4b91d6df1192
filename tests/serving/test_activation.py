"""What makes probabilities of logits: one class, one output, several labels."""

import concurrent.futures
import os

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import serving
from lambdanet_tf.serving import formats
from lambdanet_tf.serving.classifier import classifier_of
from tests.support.serving_run import SHAPE

BINARY = tf.keras.losses.BinaryCrossentropy(from_logits=True)


def make(units, activation=None, layer=None, loss=None):
    images = tf.keras.Input((8, 8, 3))
    x = tf.keras.layers.GlobalAveragePooling2D()(images / 255.0)
    dense = tf.keras.layers.Dense(
        units, activation=activation, bias_initializer="ones"
    )
    outputs = dense(x)
    if layer is not None:
        outputs = layer(outputs)
    model = tf.keras.Model(images, outputs)
    if loss is not None:
        model.compile("sgd", loss)
    return model


def each_pixel():
    images = tf.keras.Input((8, 8, 3))
    return tf.keras.Model(images, tf.keras.layers.Dense(4)(images))


def sigmoid_layer():
    return tf.keras.layers.Activation("sigmoid", dtype="float32")


@pytest.mark.parametrize(
    ("model", "wanted", "activation"),
    [
        (lambda: make(1), None, "sigmoid"),
        (lambda: make(1, "sigmoid"), None, "sigmoid"),
        (lambda: make(1, loss=BINARY), None, "sigmoid"),
        (lambda: make(1, loss="mse"), "sigmoid", "sigmoid"),
        (lambda: make(4), "sigmoid", "sigmoid"),
        (lambda: make(4, "sigmoid"), None, "sigmoid"),
        (lambda: make(4, "softmax"), None, "softmax"),
        (lambda: make(4, tf.nn.softmax), None, "softmax"),
        (lambda: make(4, loss=BINARY), None, "sigmoid"),
        (lambda: make(4, loss="binary_crossentropy"), None, "sigmoid"),
        (lambda: make(4, loss=BINARY), "softmax", "softmax"),
        (
            lambda: make(4, loss="sparse_categorical_crossentropy"),
            None,
            "softmax",
        ),
        (lambda: make(4, layer=tf.keras.layers.Softmax()), None, "softmax"),
        (lambda: make(4, layer=sigmoid_layer()), None, "sigmoid"),
    ],
)
def test_activation_is_the_models(model, wanted, activation):
    options = serving.ExportOptions(classifier_activation=wanted)
    assert classifier_of(model(), options).activation == activation


@pytest.mark.thorough
@pytest.mark.parametrize("loss", [None, "mse"])
def test_an_assumed_softmax_is_said(loss, tmp_path):
    model = make(4, loss=loss)
    with pytest.warns(UserWarning, match="by a softmax, assumed: .*'sigmoid'"):
        folder = serving.export_model(model, tmp_path, "m")
    card = (folder / "assets.extra/model_card.md").read_text(encoding="utf-8")
    assert "softmax: one class for each image (assumed: the" in card
    assert serving.verify_export(folder).agrees


@pytest.mark.parametrize(
    ("model", "wanted", "message"),
    [
        (lambda: make(1, "softmax"), None, "softmax of one output is 1"),
        (lambda: make(1), "softmax", "classifier_activation='sigmoid'"),
        (lambda: make(4, "sigmoid"), "softmax", "must be the model's own"),
        (lambda: make(4, "softmax"), "sigmoid", "must be the model's own"),
        (lambda: make(1, loss="mse"), None, "compiled with a binary loss"),
        (lambda: make(4, "tanh"), None, "Received: tanh"),
        (
            lambda: make(4, "softmax", sigmoid_layer()),
            None,
            "Received: sigmoid and softmax",
        ),
        (
            lambda: make(4, layer=tf.keras.layers.Softmax(axis=0)),
            None,
            "another axis",
        ),
        (each_pixel, None, r"one row of classes.*\(None, 8, 8, 4\).*'predict'"),
    ],
)
def test_what_is_ambiguous_is_refused(model, wanted, message, tmp_path):
    options = serving.ExportOptions(classifier_activation=wanted)
    with pytest.raises(ValueError, match=message):
        serving.export_model(model(), tmp_path, "m", options=options)


@pytest.mark.parametrize("shape", [(16,), (16, 5), (4, 8, 8, 3)])
def test_models_of_anything_but_images_are_no_classifiers(shape, tmp_path):
    inputs = tf.keras.Input(shape)
    flat = tf.keras.layers.Flatten()(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(3)(flat))
    options = serving.ExportOptions(task="classify")
    with pytest.raises(ValueError, match=r"must take images.*task='predict'"):
        serving.export_model(model, tmp_path, "m", options=options)


def test_one_logit_is_served_through_a_sigmoid(tmp_path, rng):
    model = make(1)
    kernel = np.array([[3.0], [-9.0], [2.0]])
    model.layers[-1].set_weights([kernel, np.array([0.5])])
    options = serving.ExportOptions(labels=("no", "yes"), formats=("tflite",))
    folder = serving.export_model(model, tmp_path, "m", options=options)
    images = rng.uniform(0, 255, (6, 8, 8, 3)).astype(np.float32)
    images[::2, ..., 1] = 0
    logits = model.predict(images, verbose=0)
    assert {*(logits[:, 0] > 0)} == {True, False}
    outputs = tf.saved_model.load(str(folder)).signatures["serving_default"](
        images=tf.constant(images)
    )
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
    options = serving.read_metadata(folder)["options"]
    assert options["classifier_activation"] == "sigmoid"
    assert "sigmoid of one output" in (
        folder / "assets.extra/model_card.md"
    ).read_text(encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.once
def test_labels_are_served_through_sigmoids_and_may_share_a_name(tmp_path, rng):
    model = make(4, loss=BINARY)
    options = serving.ExportOptions(labels=("a", "b", "a", "c"))
    mask = os.umask(0o027)
    try:
        folder = serving.export_model(model, tmp_path, "m", options=options)
    finally:
        os.umask(mask)
    images = rng.uniform(0, 255, (3, 8, 8, 3)).astype(np.float32)
    logits = model.predict(images, verbose=0)
    loaded = tf.saved_model.load(str(folder)).signatures["serving_default"]
    outputs = loaded(images=tf.constant(images))
    np.testing.assert_allclose(
        outputs["probabilities"], tf.sigmoid(logits), rtol=1e-5
    )
    assert serving.verify_export(folder).agrees
    assert folder.stat().st_mode & 0o777 == 0o750


@pytest.mark.thorough
def test_eight_threads_call_one_loaded_export(small_export, rng):
    path = str(small_export)
    images = rng.uniform(0, 255, (8, 2, *SHAPE)).astype(np.float32)
    one = tf.saved_model.load(path).signatures["serving_default"]
    wanted = [one(images=tf.constant(x))["logits"].numpy() for x in images]
    run = tf.saved_model.load(path).signatures["serving_default"]

    def ten_times(x):
        return [run(images=tf.constant(x))["logits"].numpy() for _ in range(10)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for received, logits in zip(
            pool.map(ten_times, images), wanted, strict=True
        ):
            np.testing.assert_allclose(received, [logits] * 10, rtol=1e-5)
