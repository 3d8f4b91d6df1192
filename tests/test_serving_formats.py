"""Files for other runtimes beside the SavedModel, and what refuses them."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf import serving
from lambdanet_tf.serving import portable
from tests.serving_run import shake
from tests.serving_run import write_run

BOTH = ("tflite", "onnx")


class Inverse(tf.keras.layers.Layer):
    """What no converter has an operation for."""

    def call(self, inputs):
        return tf.linalg.inv(inputs)

    def compute_output_shape(self, input_shape):
        return input_shape


def test_both_files_say_what_keras_says(tmp_path, rng):
    run, model = write_run(tmp_path / "20250101-000000")
    options = serving.options_of(
        serving.read_run(run), formats=BOTH, weights_dtype="bfloat16"
    )
    place = serving.export_run(run, tmp_path / "exported", options=options)
    images = rng.uniform(-50, 300, (3, 8, 7, 1)).astype(np.float32)
    wanted = model.predict(images.clip(0, 255), verbose=0)
    for name in BOTH:
        answer, times = portable.answer(place, name, images, (1, 2))
        assert set(times) == {1, 2}
        assert set(answer) == {"logits", "probabilities"}
        np.testing.assert_allclose(answer["probabilities"], wanted, atol=1e-5)
        np.testing.assert_allclose(
            tf.nn.softmax(answer["logits"]), wanted, atol=1e-5
        )
    card = (place / "assets.extra/model_card.md").read_text()
    assert "`assets.extra/model.tflite`, `assets.extra/model.onnx`" in card


@pytest.mark.parametrize("name", BOTH)
def test_the_check_notices_another_file(tmp_path, rng, name):
    run, model = write_run(tmp_path / "20250101-000000")
    options = serving.options_of(serving.read_run(run), formats=(name,))
    place = serving.export_run(run, tmp_path / "exported", options=options)
    shake(model, rng)
    file = place / portable.FORMATS[name].FILE
    other = serving.export_model(model, tmp_path, "m", options=options)
    file.write_bytes((other / portable.FORMATS[name].FILE).read_bytes())
    model = serving.read_run(run).model()
    images = rng.uniform(0, 255, (2, 8, 7, 1)).astype(np.float32)
    check = serving.check_export(place, model, options, images)
    agreeing = [row.signature for row in check.signatures if row.agrees]
    assert agreeing == [
        *("serving_default", "serving_bytes", "classify", "features")
    ]


@pytest.mark.parametrize("name", BOTH)
def test_what_a_converter_says_reaches_the_user(tmp_path, name):
    images = tf.keras.Input((4, 4, 1))
    rows = tf.keras.layers.Reshape((4, 4))(images)
    flat = tf.keras.layers.Flatten()(Inverse()(rows))
    model = tf.keras.Model(images, tf.keras.layers.Dense(3)(flat))
    options = serving.ServingOptions(formats=(name,))
    with pytest.raises(ValueError, match=rf"(?is){name} .*MatrixInverse"):
        serving.export_model(model, tmp_path, "m", options=options)
    assert [*(tmp_path / "m").iterdir()] == []


def test_unknown_formats_are_refused():
    with pytest.raises(ValueError, match="`formats` must be some of .*'pb'"):
        serving.ServingOptions(formats=("pb",))


@pytest.mark.parametrize("module", ["tf2onnx.convert", "onnxruntime"])
def test_onnx_names_its_extra(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    model = models.LambdaResNetSmall(
        input_shape=(8, 8, 1), stages=("L",), widths=(8,), strides=(1,)
    )
    options = serving.ServingOptions(formats=("onnx",))
    with pytest.raises(ImportError, match=r'"lambdanet-tf\[onnx\]"'):
        serving.export_model(model, tmp_path, "m", options=options)
    assert [*(tmp_path / "m").iterdir()] == []
