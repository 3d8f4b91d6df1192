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
from tests.support.serving_run import answer
from tests.support.serving_run import card_of
from tests.support.serving_run import classifier
from tests.support.serving_run import export

BINARY = tf.keras.losses.BinaryCrossentropy(from_logits=True)
SPARSE = "sparse_categorical_crossentropy"


def sigmoid_layer():
    return tf.keras.layers.Activation("sigmoid", dtype="float32")


@pytest.mark.parametrize(
    ("model", "wanted", "activation"),
    [
        (lambda: classifier(1), None, "sigmoid"),
        (lambda: classifier(1, "sigmoid"), None, "sigmoid"),
        (lambda: classifier(1, loss=BINARY), None, "sigmoid"),
        (lambda: classifier(1, loss="mse"), "sigmoid", "sigmoid"),
        (lambda: classifier(4), "sigmoid", "sigmoid"),
        (lambda: classifier(4, "sigmoid"), None, "sigmoid"),
        (lambda: classifier(4, "softmax"), None, "softmax"),
        (lambda: classifier(4, tf.nn.softmax), None, "softmax"),
        (lambda: classifier(4, loss=BINARY), None, "sigmoid"),
        (lambda: classifier(4, loss="binary_crossentropy"), None, "sigmoid"),
        (lambda: classifier(4, loss=BINARY), "softmax", "softmax"),
        (lambda: classifier(4, loss=SPARSE), None, "softmax"),
        (
            lambda: classifier(4, layer=tf.keras.layers.Softmax()),
            None,
            "softmax",
        ),
        (lambda: classifier(4, layer=sigmoid_layer()), None, "sigmoid"),
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
    options = serving.read_metadata(folder)["options"]
    assert options["classifier_activation"] == "sigmoid"
    assert "sigmoid of one output" in card_of(folder)


@pytest.mark.thorough
@pytest.mark.once
def test_labels_are_served_through_sigmoids_and_may_share_a_name(tmp_path, rng):
    model = classifier(4, loss=BINARY)
    mask = os.umask(0o027)
    try:
        folder = export(model, tmp_path, labels=("a", "b", "a", "c"))
    finally:
        os.umask(mask)
    images = rng.uniform(0, 255, (3, 8, 8, 3)).astype(np.float32)
    wanted = tf.sigmoid(model.predict(images, verbose=0))
    found = answer(folder, images=images)["probabilities"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert serving.verify_export(folder).agrees
    assert folder.stat().st_mode & 0o777 == 0o750


@pytest.mark.thorough
def test_eight_threads_call_one_loaded_export(small_export, rng):
    images = rng.uniform(0, 255, (8, 2, *SHAPE)).astype(np.float32)
    one, run = (
        tf.saved_model.load(str(small_export)).signatures["serving_default"]
        for _ in range(2)
    )
    wanted = [one(images=tf.constant(x))["logits"].numpy() for x in images]

    def ten_times(x):
        return [run(images=tf.constant(x))["logits"].numpy() for _ in range(10)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for received, logits in zip(
            pool.map(ten_times, images), wanted, strict=True
        ):
            np.testing.assert_allclose(received, [logits] * 10, rtol=1e-5)
