"""The verification of an export: it agrees with Keras, and can fail."""

import shutil

import numpy as np
import pytest

from lambdanet_tf import models
from lambdanet_tf import serving
from lambdanet_tf.serving import formats
from tests.serving_run import CLASSES
from tests.serving_run import SHAPE
from tests.serving_run import shake

pytestmark = pytest.mark.once

SIGNATURES = ["serving_default", "serving_bytes", "classify", "features"]
FILES = ["tflite", "onnx"]
SMALL = {"stages": ("CL", "LL"), "widths": (8, 8), "strides": (1, 2)}


@pytest.fixture
def other(small_run, rng):
    """Another model of the same shape."""
    model = models.clone_network(small_run[1])
    model.set_weights(small_run[1].get_weights())
    shake(model, rng)
    return model


def test_an_export_agrees_with_keras_without_keras(
    small_run, small_export, rng
):
    images = rng.integers(0, 256, (5, *SHAPE)).astype(np.float32)
    result = serving.verify_export(
        small_export, small_run[1], images, None, (1, 2), 1
    )
    assert result.agrees, str(result)
    assert result.warmup_requests == 12
    assert [row.signature for row in result.signatures] == SIGNATURES + FILES
    for row in result.signatures:
        assert row.difference < 1e-5
        assert set(row.milliseconds) == {1, 2}
    assert result.signatures[0].shapes["probabilities"] == (5, len(CLASSES))
    assert result.bytes_on_disk["tflite"] > 10_000
    assert "ms/image at 2" in str(result)
    assert "warm-up requests answered: 12" in str(result)


def test_another_model_is_noticed(small_export, other, rng):
    images = rng.integers(0, 256, (3, *SHAPE)).astype(np.float32)
    result = serving.verify_export(small_export, other, images)
    assert not any(row.agrees for row in result.signatures)
    assert "DIFFERENT" in str(result)


def test_another_file_is_noticed(small_run, small_export, other, tmp_path, rng):
    folder = tmp_path / "1"
    shutil.copytree(small_export, folder)
    images = rng.uniform(0, 255, (3, *SHAPE)).astype(np.float32)
    files = [*FILES, "tflite_int8"]
    network = serving.Inference(other)
    formats.write(folder, files, network, SHAPE, images)
    result = serving.verify_export(folder, small_run[1], images)
    agreeing = [row.signature for row in result.signatures if row.agrees]
    assert agreeing == SIGNATURES
    assert len(result.signatures) == len(SIGNATURES) + len(files)


@pytest.mark.parametrize(
    ("name", "shape", "arguments"),
    [
        pytest.param("LambdaResNet50", (64, 64, 3), {}, marks=pytest.mark.slow),
        (
            "LambdaResNetSmall",
            (None, None, 3),
            {**SMALL, "scope": 5, "share_embeddings": True},
        ),
        pytest.param(
            "LambdaResNetSmall",
            (9, 8, 1),
            {**SMALL, "scope": None},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["hybrid", "any size, shared embeddings", "global"],
)
def test_networks(name, shape, arguments, tmp_path, rng):
    model = models.build(name, input_shape=shape, classes=6, **arguments)
    shake(model, rng)
    size = tuple(11 if length is None else length for length in shape[:2])
    options = serving.ExportOptions(image_size=size, formats=tuple(FILES))
    folder = serving.export_model(model, tmp_path, "m", options=options)
    images = rng.uniform(0, 255, (3, *size, shape[-1])).astype(np.float32)
    result = serving.verify_export(folder, model, images)
    assert result.agrees, str(result)
    names = [row.signature for row in result.signatures]
    assert names == SIGNATURES + FILES
