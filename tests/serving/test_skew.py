"""No training/serving skew: what is served is what was evaluated.

A run is trained on files of many kinds; then the bytes of its test files go
through a signature of its export, in the process without us that
verifications share.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import serving
from lambdanet_tf import training
from lambdanet_tf.environment import require
from lambdanet_tf.serving import verify
from tests.support import checks
from tests.support.smoke_run import run_recipe

pytestmark = pytest.mark.once

# Height and width of the test images of each mode: odd, elongated, smaller
# than the network's, down to a single pixel.
SIZES = [(37, 61), (90, 50), (12, 12), (7, 5), (1, 1), (3, 40)]
MODES = [
    *(("RGB", "jpg"), ("L", "jpg"), ("CMYK", "jpg"), ("RGB", "png")),
    *(("RGBA", "png"), ("LA", "png"), ("P", "png"), ("1", "png")),
    ("12 bits", "png"),
]


def picture(generator, label, height, width):
    """Smooth colors: noise would be another image after any resizing."""
    y, x = np.mgrid[:height, :width] / max(height, width)
    phases = generator.uniform(0, 6, 3)
    waves = np.sin(6 * np.stack([x + y, x - y, x * y], -1) + phases)
    return (110 + 60 * label + 80 * waves).clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def images_folder(tmp_path_factory):
    """A data set, {train,test}/{dark,light}/<image>."""
    folder = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    image_module = require("PIL.Image", extra="plot")
    train = [(("RGB", "png"), (20, 20))] * 12
    test = [(mode, size) for mode in MODES for size in SIZES]
    for label, name in enumerate(("dark", "light")):
        for part, kinds in (("train", train), ("test", test)):
            place = folder / part / name
            place.mkdir(parents=True)
            for number, ((mode, ending), size) in enumerate(kinds):
                pixels = picture(generator, label, *size)
                if mode == "12 bits":  # of 16
                    deep = pixels[..., 0].astype(np.uint16) * 16
                    image = image_module.fromarray(deep)
                else:
                    image = image_module.fromarray(pixels).convert(mode)
                image.save(place / f"{number:03}-{mode}.{ending}")
    return folder


@pytest.fixture(scope="module")
def trained(images_folder, tmp_path_factory):
    """A recipe for these files, and a run of it."""
    recipe = training.resolve(
        "smoke",
        {
            "batch_size": 4,
            "image_size": 12,
            "data": f"folder:{images_folder},bits=12",
            "epochs": 2,
            "evaluation_crop": 0.875,
            "learning_rate": 0.05,
            "model_arguments": {"stages": ["L"], "widths": [8], "strides": [1]},
        },
    )
    folder = run_recipe(recipe, tmp_path_factory.mktemp("run"))
    return recipe, folder.read()


def evaluated(recipe, run):
    """Logits and labels of the test images, through training's pipeline."""
    images = data.load_images(recipe.data)
    pipeline = training.InputPipeline(recipe, images)
    model = run.load_model()
    logits, labels = [], []
    for pixels, truth, weights, _ in pipeline.evaluation(images.test):
        kept = weights > 0
        logits.append(model(tf.cast(pixels, tf.float32))[kept])
        labels.append(truth.numpy().argmax(-1)[kept])
    return np.concatenate(logits), np.concatenate(labels)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_files_are_served_as_they_were_evaluated(
    images_folder, trained, precision, tmp_path
):
    recipe, run = trained
    recipe = dataclasses.replace(recipe, precision=precision)
    run = dataclasses.replace(run, recipe=dataclasses.asdict(recipe))
    files = sorted((images_folder / "test").rglob("*.*"))
    encoded = [file.read_bytes() for file in files]
    logits, labels = evaluated(recipe, run)
    assert len(encoded) == len(labels) == 2 * len(MODES) * len(SIZES)

    folder = serving.export_run(run, tmp_path)
    call = "serving_bytes", {"image_bytes": np.array(encoded, "O")}
    [outputs] = verify.run_standalone(folder, [call])
    checks.assert_close(outputs["logits"], logits, 1e-4)
    np.testing.assert_array_equal(outputs["classes"], logits.argmax(-1))
    if precision == "float32":
        accuracy = np.mean(outputs["classes"] == labels)
        assert accuracy == pytest.approx(run.metrics["accuracy"])
