"""Classifiers: what makes probabilities of logits, and what is refused."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import serving
from lambdanet_tf.serving import requests
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
def test_an_assumed_softmax_is_said(tmp_path):
    with pytest.warns(UserWarning, match="by a softmax, assumed: .*'sigmoid'"):
        folder = export(classifier(4), tmp_path)
    assert "one class for each image (assumed: the" in card_of(folder)
    assert serving.verify_export(folder).agrees


def test_one_logit_is_served_through_a_sigmoid(tmp_path, rng):
    model = classifier(1, size=None)
    kernel = np.array([[3.0], [-9.0], [2.0]])
    model.layers[-1].set_weights([kernel, np.array([0.5])])
    options = {"image_size": (8, 8), "formats": ("tflite",)}
    column = 255 * np.ones([2, 8, 8, 3]), [[1], [1]]  # as Keras' CIFAR has it
    options |= {"labels": ("no", "yes"), "examples": column}
    folder = export(model, tmp_path, **options)
    assert [*requests.read_examples(folder)["labels"]] == [1, 1]
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
    assert "sigmoid of one output" in card_of(folder)


def stack(shape, *steps, **arguments):
    return tf.keras.Sequential([tf.keras.Input(shape, **arguments), *steps])


def two_inputs():
    images = tf.keras.Input((4, 4, 3))
    pooled = Keras.GlobalAveragePooling2D()(images)
    return tf.keras.Model([images, tf.keras.Input((1,))], pooled)


WORDS = Keras.StringLookup(vocabulary=["a"], invert=True)
SOFTMAX = {"classifier_activation": "softmax"}
CLASSIFY = {"task": "classify"}
IMAGES = np.zeros([2, 8, 8, 3])
FIVE = functools.partial(classifier, 5, "softmax")
REFUSED = [
    (lambda: classifier(1, "softmax"), {}, "softmax of one output is 1"),
    (lambda: classifier(4, "sigmoid"), SOFTMAX, "must be the model's own"),
    (lambda: classifier(1, loss="mse"), {}, "compiled with a binary loss"),
    (lambda: classifier(4, "tanh"), {}, "Received: tanh"),
    (lambda: stack((8, 8, 3), Keras.Dense(4)), {}, "one row of .*8, 8, 4"),
    (lambda: stack((16,), Keras.Dense(3)), CLASSIFY, "take images.*'predict'"),
    (lambda: stack((4,), Keras.Dense(3), name="in"), {}, r"word.*\['in'\]"),
    (lambda: stack((4,), Keras.Dense(3), batch_size=2), {}, "any size.*: 2"),
    (lambda: stack((4,), WORDS, dtype="int64"), {}, "outputs .* of strings"),
    (two_inputs, CLASSIFY, "must have one input"),
    (lambda: stack((4,), Keras.Dense(3), name="_x"), {}, r"a letter.*\['_x'\]"),
    (lambda: classifier(3, "softmax", size=None), {}, "`image_size` must be"),
    (lambda: serving.Inference(classifier(3)), {"top": 1}, "`options` must be"),
    (FIVE, {"labels": ("a",)}, "`labels` must hold 5 names.*: 1 names"),
    (FIVE, {"labels": ("a\nb",)}, "`labels` must be one line of text"),
    (FIVE, {"labels": (*"abcd", "")}, "`labels` must be one line .* class 4"),
    (FIVE, {"implementation": "magic"}, "`implementation` must be one of"),
    (FIVE, {"task": "draw"}, "`task` must be one of .*'draw'"),
    (FIVE, {"formats": ("tflit",)}, "`formats` must be one .* mean 'tflite'"),
    (FIVE, {"image_size": (9, 9)}, r"the model's, \(8, 8\)"),
    (FIVE, {"evaluation_crop": 0}, "`evaluation_crop` must lie between"),
    (FIVE, {"examples": IMAGES}, "`examples` must be a pair.*: ndarray"),
    (FIVE, {"examples": (IMAGES, [1, 5])}, "0 to 4. .* with others"),
    (FIVE, {"examples": (IMAGES, np.ones([2, 5]))}, r"shape \(2, 5\)"),
    (FIVE, {"examples": (IMAGES + 0.5, [1, 1])}, "`examples` must be pixels"),
    (FIVE, {"test_set": (IMAGES[:0], [])}, "`test_set` must hold images"),
]


@pytest.mark.representatives(len(REFUSED), everywhere=True)
@pytest.mark.parametrize(("make", "options", "message"), REFUSED)
def test_what_cannot_be_exported(make, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export(make(), tmp_path, **options)
    assert not [*tmp_path.glob("m/*")]


class Head(Keras.Dense):
    """Somebody's last layer, which its configuration does not make again."""

    def __init__(self):
        super().__init__(3, activation="softmax")


class Positive(tf.keras.constraints.Constraint):
    """Somebody's constraint, which Keras does not know by its name."""

    def __call__(self, weights):
        return tf.nn.relu(weights)


def test_a_refused_export_leaves_its_model_alone(tmp_path):
    model = classifier(3, layer=Head())
    with pytest.raises(ValueError, match="again. Received: head, a Head"):
        export(model, tmp_path)
    assert model.layers[-1].activation is tf.keras.activations.softmax
    head = Keras.Dense(3, "softmax", kernel_constraint=Positive())
    served = serving.fold_batch_norm(classifier(3, layer=head))
    assert served.layers[-1] is not head
