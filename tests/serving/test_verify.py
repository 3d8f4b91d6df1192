"""The verification of an export: it agrees with Keras, and can fail."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import cli
from lambdanet_tf import models
from lambdanet_tf import serving
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.serving import formats
from lambdanet_tf.serving import standalone
from lambdanet_tf.serving import verify
from lambdanet_tf.serving.requests import EXAMPLES_FILE
from tests.support.serving_run import CLASSES
from tests.support.serving_run import SHAPE
from tests.support.serving_run import export
from tests.support.serving_run import shake
from tests.support.serving_run import sign_anew
from tests.support.serving_run import write_run

pytestmark = pytest.mark.once

SIGNATURES = ["serving_default", "serving_bytes", "classify", "features"]
FILES = ["tflite", "onnx"]
XLA = "serving_default_xla"
HYBRID = {"stages": ("C", "CL"), "widths": (8, 16), "strides": (1, 2)}
SHARED = {
    "stages": ("L", "LL"),
    "widths": (8, 8),
    "strides": (2, 1),
    "scope": 5,
    "share_embeddings": True,
}
GLOBAL = {"stages": ("L",), "widths": (8,), "strides": (1,), "scope": None}


@pytest.fixture
def copy(small_export, tmp_path):
    """A copy of an export, to change."""
    return shutil.copytree(small_export, tmp_path / "copy" / "m" / "1")


@pytest.mark.slow
def test_an_export_agrees_with_keras_without_keras(small_export, monkeypatch):
    own = standalone.run_standalone  # Not the one that the tests share.
    monkeypatch.setattr(verify, "run_standalone", own)
    result = serving.verify_export(small_export, (1, 2))
    assert result.agrees, str(result)
    assert result.examples == 4
    assert result.warmup_requests == 12
    names = [row.signature for row in result.signatures]
    assert names == [*SIGNATURES, XLA, *FILES]
    for row in result.signatures:
        assert row.difference < 1e-5
        assert set(row.milliseconds) == {1, 2}
    assert result.signatures[0].shapes["probabilities"] == (4, len(CLASSES))
    assert result.bytes_on_disk["tflite"] > 10_000
    assert "ms/image at 2" in str(result)
    assert "warm-up requests answered: 12" in str(result)


@pytest.mark.thorough
def test_what_becomes_of_the_run_changes_nothing(tmp_path, capsys):
    run, model = write_run(tmp_path / "run")
    folder = serving.export_run(run, tmp_path / "exported")
    shake(model, np.random.default_rng(7))
    models.save_weights(model, run / "best.weights.npz")
    assert serving.verify_export(folder).agrees
    shutil.rmtree(run)
    assert serving.verify_export(folder).agrees
    assert (
        cli.export(["--verify", f"--destination={tmp_path / 'exported'}"]) == 0
    )
    assert capsys.readouterr().out.count("  same") == len(SIGNATURES)


@pytest.mark.parametrize(
    "name",
    ["variables/variables.data-00000-of-00001", "assets.extra/model.onnx"],
)
@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_one_byte_is_noticed(copy, name, place, capsys):
    content = bytearray((copy / name).read_bytes())
    content[int(place * len(content))] ^= 1
    (copy / name).write_bytes(content)
    assert cli.export(["--verify", str(copy)]) == 1
    assert f"DIFFERENT from what was written: {name}" in capsys.readouterr().out


def test_a_missing_file_is_noticed(copy):
    (copy / "variables/variables.index").unlink()
    assert serving.verify_export(copy).changed == ["variables/variables.index"]


def another(model, rng):
    """The same network with other weights."""
    copy = models.clone_network(model)
    copy.set_weights(model.get_weights())
    shake(copy, rng)
    return copy


@pytest.mark.thorough
def test_another_model_is_noticed(copy, small_run, rng, tmp_path, capsys):
    """What the export computes differs from what Keras computed for it."""
    other = export(another(small_run[1], rng), tmp_path, "other")
    shutil.copy(other / EXAMPLES_FILE, copy / EXAMPLES_FILE)
    sign_anew(copy)
    assert cli.export(["--verify", f"--destination={copy.parents[1]}"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("DIFFERENT") == len([*SIGNATURES, XLA, *FILES])
    for size in (1, 8, 32):
        assert f"ms/image at {size}" in shown
    assert "size on disk" in shown


@pytest.mark.thorough
def test_another_file_is_noticed(copy, small_run, rng):
    files = (*FILES, "tflite_int8")
    options = serving.ExportOptions(formats=files)
    network = serving.Inference(another(small_run[1], rng), options)
    images = rng.uniform(0, 255, (3, *SHAPE)).astype(np.float32)
    formats.write(copy, network, images)
    sign_anew(copy, formats=files)
    result = serving.verify_export(copy)
    agreeing = [row.signature for row in result.signatures if row.agrees]
    assert agreeing == [*SIGNATURES, XLA]
    assert len(result.signatures) == len(SIGNATURES) + 1 + len(files)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("task", ["classify", "predict"])
def test_half_precision_agrees_as_far_as_it_can(name, task, tmp_path, rng):
    policy = tf.keras.mixed_precision.Policy(name)
    images = tf.keras.Input((8, 8, 3), name="images")
    x = tf.keras.layers.Conv2D(6, 3, dtype=policy)(images)
    x = tf.keras.layers.BatchNormalization(dtype=policy)(x)
    x = tf.keras.layers.GlobalMaxPooling2D(dtype=policy)(x)
    model = tf.keras.Model(images, tf.keras.layers.Dense(5, dtype=policy)(x))
    shake(model, rng)
    options = {"task": task}
    examples = rng.uniform(0, 255, (4, 8, 8, 3)).astype(np.float32)
    if task == "classify":
        options["classifier_activation"] = "softmax"
        examples = examples, np.arange(4)
    folder = export(model, tmp_path, examples=examples, **options)
    dtype = name.removeprefix("mixed_")
    assert serving.read_metadata(folder)["compute_dtype"] == dtype
    result = serving.verify_export(folder)
    assert result.agrees, str(result)


@pytest.mark.slow
@pytest.mark.skipif(not KERAS_3, reason="Keras 2 has no low-rank updates")
def test_a_classifier_with_low_rank_updates(tmp_path, rng):
    model = models.LambdaResNetSmall(stages=("C",), widths=(8,), strides=(1,))
    head = model.layers[-1]
    head.enable_lora(2)
    head.lora_kernel_b.assign(rng.normal(size=head.lora_kernel_b.shape))
    images = rng.uniform(0, 255, (4, 8, 8, 1)).astype(np.float32)
    inference = serving.Inference(model)
    expected = inference.expected_outputs({"images": images})
    np.testing.assert_allclose(
        expected["probabilities"], model.predict(images, verbose=0), atol=1e-6
    )
    outputs = inference(images=images)
    np.testing.assert_allclose(outputs["logits"], expected["logits"], atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "shape", "arguments"),
    [
        pytest.param(
            "LambdaResNet50", (32, 32, 3), HYBRID, marks=pytest.mark.slow
        ),
        ("LambdaResNetSmall", (None, None, 3), SHARED),
        ("LambdaResNetSmall", (9, 8, 1), GLOBAL),
    ],
    ids=["hybrid", "any size, shared embeddings", "global"],
)
def test_networks(name, shape, arguments, tmp_path, rng):
    model = models.build(name, input_shape=shape, classes=6, **arguments)
    shake(model, rng)
    size = tuple(11 if length is None else length for length in shape[:2])
    formats = tuple(FILES)
    folder = export(model, tmp_path, image_size=size, formats=formats)
    result = serving.verify_export(folder)
    assert result.agrees, str(result)
    names = [row.signature for row in result.signatures]
    assert names == SIGNATURES + FILES
