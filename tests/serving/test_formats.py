"""Other runtimes: TFLite, ONNX, and C++ as TF Serving itself loads exports."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import serving
from lambdanet_tf.serving import formats
from tests.support import serve_check
from tests.support.serving_run import SHAPE

pytestmark = pytest.mark.once

BOTH = ("tflite", "onnx")


@pytest.mark.slow
def test_files_are_those_of_the_float32_network(small_run, tmp_path, rng):
    options = serving.ExportOptions(weights_dtype="bfloat16", formats=BOTH)
    formats.write(tmp_path, serving.Inference(small_run[1], options))
    images = rng.uniform(-50, 300, (3, *SHAPE)).astype(np.float32)
    wanted = small_run[1].predict(images.clip(0, 255), verbose=0)
    for name in BOTH:
        outputs = formats.load(tmp_path, name)(images)
        assert set(outputs) == {"logits", "probabilities"}
        outputs["logits"] = tf.nn.softmax(outputs["logits"])
        for found in outputs.values():
            np.testing.assert_allclose(found, wanted, atol=1e-5)


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
    path = str(small_export / formats.FORMATS["tflite"])
    run = litert.Interpreter(model_path=path).get_signature_runner()
    wanted = small_run[1].predict(images, verbose=0)
    found = run(images=images)["probabilities"]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.thorough
def test_nothing_of_a_conversion_is_printed(small_run, tmp_path, capfd):
    options = serving.ExportOptions(formats=tuple(formats.FORMATS))
    network = serving.Inference(small_run[1], options)
    formats.write(tmp_path, network, np.zeros((2, *SHAPE), np.float32))
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_an_export_runs_in_cc_with_xla_off(
    small_run, small_export, pytestconfig, tmp_path, rng
):
    program = serve_check.build(pytestconfig.cache.mkdir("serve_check"))
    images = rng.uniform(0, 255, (3, *SHAPE)).astype(np.float32)

    def outputs(images, signature="serving_default", output="probabilities"):
        return serve_check.run(
            program, small_export, images, tmp_path, signature, "images", output
        )

    wanted = small_run[1].predict(images, verbose=0)
    np.testing.assert_allclose(outputs(images), wanted, rtol=1e-4, atol=1e-7)
    assert outputs(images, "features", "features").shape == (3, 32)
    assert "not finite" in outputs(images * np.nan)
    assert "run: " in outputs(images[:, :5])
    assert "at least one image" in outputs(images[:0])
    # What a server without XLA cannot run does not keep it from loading.
    assert "run: " in outputs(images, "serving_default_xla")
