"""Files for other runtimes, and what their converters reject."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import serving
from lambdanet_tf.serving import formats
from tests.support.serving_run import SHAPE

pytestmark = pytest.mark.once

BOTH = ("tflite", "onnx")


class Inverse(tf.keras.layers.Layer):
    """What no converter has an operation for."""

    def call(self, inputs):
        return tf.linalg.inv(inputs)

    def compute_output_shape(self, input_shape):
        return input_shape


@pytest.fixture
def unconvertible():
    images = tf.keras.Input((4, 4, 1))
    rows = tf.keras.layers.Reshape((4, 4))(images)
    flat = tf.keras.layers.Flatten()(Inverse()(rows))
    return tf.keras.Model(
        images, tf.keras.layers.Dense(3, activation="softmax")(flat)
    )


@pytest.mark.slow
def test_files_are_those_of_the_float32_network(small_run, tmp_path, rng):
    options = serving.ExportOptions(weights_dtype="bfloat16", formats=BOTH)
    formats.write(tmp_path, serving.Inference(small_run[1], options))
    images = rng.uniform(-50, 300, (3, *SHAPE)).astype(np.float32)
    wanted = small_run[1].predict(images.clip(0, 255), verbose=0)
    for name in BOTH:
        outputs = formats.load(tmp_path, name)(images)
        assert set(outputs) == {"logits", "probabilities"}
        np.testing.assert_allclose(outputs["probabilities"], wanted, atol=1e-5)
        np.testing.assert_allclose(
            tf.nn.softmax(outputs["logits"]), wanted, atol=1e-5
        )


@pytest.mark.slow
def test_tensors_that_a_layer_keeps_are_in_the_files(tmp_path, rng):
    images = tf.keras.Input((4, 4, 1))
    norm = tf.keras.layers.Normalization(mean=[2.0], variance=[4.0])
    flat = tf.keras.layers.Flatten()(norm(images))
    outputs = tf.keras.layers.Dense(3, activation="softmax")(flat)
    model = tf.keras.Model(images, outputs)
    options = serving.ExportOptions(formats=BOTH)
    formats.write(tmp_path, serving.Inference(model, options))
    sample = rng.uniform(0, 9, (2, 4, 4, 1)).astype(np.float32)
    for name in BOTH:
        found = formats.load(tmp_path, name)(sample)["probabilities"]
        np.testing.assert_allclose(found, model(sample), atol=1e-5)


@pytest.mark.slow
def test_the_successor_of_the_tflite_interpreter_agrees(
    small_run, small_export, rng
):
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    images = rng.uniform(0, 255, (1, *SHAPE)).astype(np.float32)
    interpreter = litert.Interpreter(
        model_path=str(small_export / formats.FORMATS["tflite"])
    )
    outputs = interpreter.get_signature_runner()(images=images)
    np.testing.assert_allclose(
        outputs["probabilities"],
        small_run[1].predict(images, verbose=0),
        atol=1e-5,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*BOTH, "tflite_int8"])
def test_what_a_converter_rejects_reaches_the_user(
    unconvertible, tmp_path, name
):
    options = serving.ExportOptions(formats=(name,))
    with pytest.raises(ValueError, match=r"(?is)rejects it.*MatrixInverse"):
        serving.export_model(
            unconvertible,
            tmp_path,
            "m",
            options=options,
            calibration=np.eye(4, dtype=np.float32)[np.newaxis, ..., None],
        )
    assert [*(tmp_path / "m").iterdir()] == []


@pytest.mark.slow
def test_integers_need_images_to_choose_their_ranges(unconvertible, tmp_path):
    options = serving.ExportOptions(formats=("tflite_int8",))
    with pytest.raises(ValueError, match="only with images of the training"):
        serving.export_model(unconvertible, tmp_path, "m", options=options)


@pytest.mark.thorough
def test_nothing_of_a_conversion_is_printed(small_run, tmp_path, capfd):
    options = serving.ExportOptions(formats=tuple(formats.FORMATS))
    network = serving.Inference(small_run[1], options)
    formats.write(tmp_path, network, np.zeros((2, *SHAPE), np.float32))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("module", ["tf2onnx", "onnxruntime"])
def test_onnx_names_its_extra(unconvertible, tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    options = serving.ExportOptions(formats=("onnx",))
    with pytest.raises(ImportError, match=r'"lambdanet-tf\[onnx\]"'):
        serving.export_model(unconvertible, tmp_path, "m", options=options)
    assert not (tmp_path / "m").exists()
