"""The check of an export for each kind of network that there is."""

import numpy as np
import pytest

from lambdanet_tf import models
from lambdanet_tf import serving
from tests.serving_run import shake

SMALL = {"stages": ("CL", "LL"), "widths": (8, 8), "strides": (1, 2)}


@pytest.mark.parametrize(
    ("builder", "shape", "arguments"),
    [
        pytest.param(
            *("LambdaResNet50", (64, 64, 3), {}), marks=pytest.mark.slow
        ),
        ("LambdaResNetSmall", (None, None, 3), {**SMALL, "scope": 5}),
        ("LambdaResNetSmall", (9, 8, 1), {**SMALL, "share_embeddings": True}),
        ("LambdaResNetSmall", (9, 8, 1), {**SMALL, "scope": None}),
    ],
    ids=["hybrid", "any size", "shared embeddings", "global"],
)
def test_an_export_agrees_with_keras(builder, shape, arguments, tmp_path, rng):
    model = getattr(models, builder)(input_shape=shape, classes=6, **arguments)
    shake(model, rng)
    size = [11 if length is None else length for length in shape[:2]]
    options = serving.ServingOptions(
        image_size=tuple(size), formats=("tflite", "onnx")
    )
    place = serving.export_model(model, tmp_path, "m", options=options)
    images = rng.uniform(0, 255, (3, *size, shape[-1])).astype(np.float32)
    check = serving.check_export(place, model, options, images)
    assert check.agrees, str(check)
    names = [row.signature for row in check.signatures]
    assert names[4:] == ["tflite", "onnx"]


def test_a_model_of_any_size_needs_one_for_encoded_images(tmp_path):
    model = models.LambdaResNetSmall(
        input_shape=(None, None, 3), scope=5, **SMALL
    )
    with pytest.raises(ValueError, match="`image_size` must be given"):
        serving.export_model(model, tmp_path, "m")
