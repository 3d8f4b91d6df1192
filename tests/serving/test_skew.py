"""No training/serving skew: what is served is what was evaluated.

A run is trained on files of many kinds; then the bytes of its test files go
through the signatures of its export, in the process without us that
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
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.serving import requests
from lambdanet_tf.serving import verify
from tests.support.serving_run import ARGUMENTS
from tests.support.serving_run import card_of
from tests.support.serving_run import write_run
from tests.support.smoke_run import run_recipe

pytestmark = pytest.mark.once

SIZE = 12
SMALL = {"batch_size": 4, "image_size": SIZE}
# Height and width of the test images of each mode: odd, elongated, smaller
# than the network's, down to a single pixel.
SIZES = [(37, 61), (90, 50), (12, 12), (7, 5), (1, 1), (3, 40)]
MODES = [
    *(("RGB", ending) for ending in ("jpg", "png")),
    *(("L", ending) for ending in ("jpg", "png")),
    *(("RGBA", "png"), ("LA", "png"), ("P", "png"), ("1", "png")),
    ("CMYK", "jpg"),
]


def picture(generator, label, height, width):
    """Smooth colors: noise would be another image after any resizing."""
    y, x = np.mgrid[:height, :width] / max(height, width)
    phases = generator.uniform(0, 6, 3)
    waves = np.sin(6 * np.stack([x + y, x - y, x * y], -1) + phases)
    return (110 + 60 * label + 80 * waves).clip(0, 255).astype(np.uint8)


def write_files(folder, generator):
    """Writes {train,test}/{dark,light}/<image> into a folder."""
    image_module = require("PIL.Image", extra="plot")
    for label, name in enumerate(("dark", "light")):
        for part, kinds in (
            ("train", [(("RGB", "png"), (20, 20))] * 12),
            ("test", [(mode, size) for mode in MODES for size in SIZES]),
        ):
            place = folder / part / name
            place.mkdir(parents=True)
            for number, ((mode, ending), size) in enumerate(kinds):
                pixels = picture(generator, label, *size)
                image = image_module.fromarray(pixels).convert(mode)
                image.save(place / f"{number:03}-{mode}.{ending}")


@pytest.fixture(scope="module")
def images_folder(tmp_path_factory):
    """A data set of image files."""
    folder = tmp_path_factory.mktemp("images")
    write_files(folder, np.random.default_rng(0))
    return folder


@pytest.fixture(scope="module")
def trained(images_folder, tmp_path_factory):
    """A recipe for these files, and a run of it."""
    recipe = training.resolve(
        "smoke",
        {
            **SMALL,
            "data": f"folder:{images_folder}",
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


def served(folder, encoded):
    """Outputs of two signatures for these bytes."""
    examples = [*map(requests.encoded_example, encoded)]
    calls = [
        ("serving_bytes", {"image_bytes": np.array(encoded, "O")}, False),
        ("classify", {"inputs": np.array(examples, "O")}, False),
    ]
    return verify.run_standalone(folder, calls)


def assert_no_skew(folder, encoded, logits, classes):
    outputs, classified = served(folder, encoded)
    np.testing.assert_allclose(
        outputs["logits"], logits, atol=1e-4 * np.abs(logits).max()
    )
    np.testing.assert_array_equal(outputs["classes"], logits.argmax(-1))
    best = [classes[index] for index in logits.argmax(-1)]
    assert [row[0].decode() for row in classified["classes"]] == best
    np.testing.assert_allclose(
        classified["scores"],
        -np.sort(-tf.nn.softmax(logits).numpy()),
        atol=1e-4,
    )
    return outputs


@pytest.mark.slow
@pytest.mark.representatives(1)
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
    outputs = assert_no_skew(folder, encoded, logits, run.classes)
    if precision == "float32":
        accuracy = np.mean(outputs["classes"] == labels)
        assert accuracy == pytest.approx(run.metrics["accuracy"])
    options = serving.read_metadata(folder)["options"]
    assert options["evaluation_crop"] == 0.875
    card = card_of(folder)
    assert "the central square of 0.875 of the shorter side" in card
    assert (", in bfloat16" in card) == (precision != "float32")


@pytest.mark.thorough
def test_another_crop_is_skew(images_folder, trained, tmp_path):
    """Without the recipe's crop, the comparison above would fail."""
    recipe, run = trained
    files = sorted((images_folder / "test").rglob("*.*"))
    options = serving.options_for(run, evaluation_crop=1.0)
    folder = serving.export_run(run, tmp_path, options=options)
    outputs, _ = served(folder, [file.read_bytes() for file in files])
    logits, _ = evaluated(recipe, run)
    difference = np.abs(outputs["logits"] - logits).max()
    assert difference > 1e-2 * np.abs(logits).max()


@pytest.mark.thorough
@pytest.mark.parametrize("crop", [0.7, 1.0])
def test_gray_arrays_are_served_as_they_were_evaluated(tmp_path, crop, rng):
    pixels = rng.integers(0, 256, (40, 17, 23, 1)).astype(np.uint8)
    labels = rng.integers(0, 3, 40)
    file = tmp_path / "images.npz"
    np.savez(file, x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    data_set = f"arrays:{file}"
    recipe = training.resolve(
        "smoke", {**SMALL, "data": data_set, "evaluation_crop": crop}
    )
    path, _ = write_run(
        tmp_path / "run",
        arguments={
            **ARGUMENTS,
            "input_shape": [SIZE, SIZE, 1],
            "classes": 3,
            "stages": ["L"],
            "classifier_activation": None,
        },
        classes=("0", "1", "2"),
        image={"height": SIZE, "width": SIZE, "channels": 1},
        recipe=dataclasses.asdict(recipe),
    )
    run = RunFolder(path).read()
    logits, _ = evaluated(recipe, run)
    exported = serving.export_run(run, tmp_path / "exported")
    encoded = [tf.io.encode_png(image).numpy() for image in pixels]
    assert_no_skew(exported, encoded, logits, run.classes)
