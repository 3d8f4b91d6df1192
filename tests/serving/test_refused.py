"""What cannot be exported is refused, and leaves nothing behind."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import serving
from tests.support.serving_run import classifier
from tests.support.serving_run import export

Keras = tf.keras.layers


def softmax_of_the_batch():
    return classifier(4, layer=Keras.Softmax(axis=0))


def both():
    return classifier(4, "softmax", layer=Keras.Activation("sigmoid"))


def each_pixel():
    images = tf.keras.Input((8, 8, 3))
    return tf.keras.Model(images, Keras.Dense(4)(images))


def of_shape(*shape):
    inputs = tf.keras.Input(shape)
    flat = Keras.Flatten()(inputs)
    return tf.keras.Model(inputs, Keras.Dense(3)(flat))


def two_inputs():
    images = tf.keras.Input((4, 4, 3))
    pooled = Keras.GlobalAveragePooling2D()(images)
    return tf.keras.Model([images, tf.keras.Input((1,))], pooled)


def any_size():
    return classifier(3, "softmax", size=None)


class Inverse(Keras.Layer):
    """What no converter has an operation for."""

    def call(self, inputs):
        return tf.linalg.inv(inputs)

    def compute_output_shape(self, input_shape):
        return input_shape


def unconvertible():
    images = tf.keras.Input((4, 4, 1))
    rows = Keras.Reshape((4, 4))(images)
    flat = Keras.Flatten()(Inverse()(rows))
    return tf.keras.Model(images, Keras.Dense(3, activation="softmax")(flat))


SIGMOID = {"classifier_activation": "sigmoid"}
SOFTMAX = {"classifier_activation": "softmax"}
CLASSIFY = {"task": "classify"}
NO_IMAGES = r"must take images.*task='predict'"
OWN = "must be the model's own"
MODELS = [
    (lambda: classifier(1, "softmax"), {}, "softmax of one output is 1"),
    (lambda: classifier(1), SOFTMAX, "classifier_activation='sigmoid'"),
    (lambda: classifier(4, "sigmoid"), SOFTMAX, OWN),
    (lambda: classifier(4, "softmax"), SIGMOID, OWN),
    (lambda: classifier(1, loss="mse"), {}, "compiled with a binary loss"),
    (lambda: classifier(4, "tanh"), {}, "Received: tanh"),
    (both, {}, "Received: sigmoid and softmax"),
    (softmax_of_the_batch, {}, "another axis"),
    (each_pixel, {}, r"one row of classes.*\(None, 8, 8, 4\).*'predict'"),
    (lambda: of_shape(16), CLASSIFY, NO_IMAGES),
    (lambda: of_shape(16, 5), CLASSIFY, NO_IMAGES),
    (lambda: of_shape(4, 8, 8, 3), CLASSIFY, NO_IMAGES),
    (two_inputs, CLASSIFY, "must have one input"),
    (any_size, {}, "`image_size` must be given"),
    (
        lambda: serving.Inference(classifier(3, "softmax")),
        {"top": 1},
        "`options` must be None for an",
    ),
    pytest.param(
        unconvertible,
        {"formats": ("tflite_int8",)},
        "only with images of the training",
        marks=[pytest.mark.slow, pytest.mark.once],
    ),
]


@pytest.mark.representatives(len(MODELS), everywhere=True)
@pytest.mark.parametrize(("make", "options", "message"), MODELS)
def test_models_that_cannot_be_exported(make, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export(make(), tmp_path, **options)
    assert not [*tmp_path.glob("m/*")]


@pytest.mark.representatives(18, everywhere=True)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": ("a",)}, "`labels` must hold 5 names.*Received: 1 names"),
        ({"labels": ("a\nb",)}, "`labels` must be one line of text"),
        ({"labels": (*"abcd", "")}, "`labels` must be one line .* class 4"),
        ({"top": 0}, "`top` must be at least 1. Received: top=0"),
        ({"max_pixels": 1.5}, "`max_pixels` must be .* max_pixels=1.5"),
        ({"weights_dtype": "int8"}, "`weights_dtype` must be one of .*'int8'"),
        ({"implementation": "magic"}, "`implementation` must be one of"),
        ({"task": "draw"}, "`task` must be one of .*'draw'"),
        ({"formats": ("tflit",)}, "`formats` must be one .* mean 'tflite'"),
        ({"image_size": (9, 9)}, r"the model's, \(8, 7\). Received: \(9, 9\)"),
        ({"evaluation_crop": 0}, "`evaluation_crop` must lie between"),
        ({"evaluation_crop": 1.01}, "`evaluation_crop` must lie between"),
        ({"evaluation_crop": "all"}, "`evaluation_crop` must be float"),
        ({"evaluation_crop": 0.875}, r"must be 1 .* 0.875 for 8x7"),
        ({"device": "TPU"}, "`device` must be one of .*'cpu'"),
        ({"device": "cpu:0"}, "`device` must be one of .*'cpu'"),
        ({"device": ""}, "`device` must be one of .*'cpu'"),
        ({"device": None}, "`device` must be str"),
    ],
)
def test_options_that_do_not_fit(small_run, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        export(small_run[1], tmp_path, **arguments)
    assert not [*tmp_path.glob("m/*")]


@pytest.mark.thorough
@pytest.mark.once
@pytest.mark.parametrize("name", ["tflite", "onnx", "tflite_int8"])
def test_what_a_converter_rejects_reaches_the_user(tmp_path, name):
    options = serving.ExportOptions(formats=(name,))
    numbers = np.eye(4, dtype=np.float32)[np.newaxis, ..., None]
    with pytest.raises(ValueError, match=r"(?is)rejects it.*MatrixInverse"):
        serving.export_model(
            unconvertible(),
            tmp_path,
            "m",
            options=options,
            calibration=numbers,
        )
    assert [*(tmp_path / "m").iterdir()] == []


@pytest.mark.once
@pytest.mark.parametrize("module", ["tf2onnx", "onnxruntime"])
def test_onnx_names_its_extra(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r'"lambdanet-tf\[onnx\]"'):
        export(unconvertible(), tmp_path, formats=("onnx",))
    assert not (tmp_path / "m").exists()
