"""What is served is what was measured: training's evaluation, over bytes.

A run is trained for real on files of many kinds; then the bytes of its test
files go through the signatures of its export, in a process without us.
"""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import serving
from lambdanet_tf.environment import require
from lambdanet_tf.serving import warmup
from lambdanet_tf.training import RunOptions
from lambdanet_tf.training import inputs
from lambdanet_tf.training import resolve
from lambdanet_tf.training import train

SIZE = 12
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
    """Writes folder/{train,test}/{dark,light}/<image>."""
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


def train_briefly(folder, **overrides):
    recipe = resolve(
        "smoke",
        {
            "epochs": 4,
            "batch_size": 4,
            "image_size": SIZE,
            "evaluation_crop": 0.875,
            "learning_rate": 0.05,
            **overrides,
        },
    )
    run = train(
        recipe, RunOptions(run=str(folder / "run")), say=lambda text: None
    )
    return recipe, run.path


def evaluated(recipe, run, images):
    """Logits and labels of the test split, through training's own pipeline."""
    model = serving.read_run(run).model()
    pipeline = inputs.Inputs(recipe, images, tf.distribute.get_strategy())
    logits, labels = [], []
    for pixels, truth, weights in pipeline.evaluation(images.test):
        kept = weights > 0
        logits.append(model(tf.cast(pixels, tf.float32))[kept])
        labels.append(truth[kept])
    return np.concatenate(logits), np.concatenate(labels)


def served(place, encoded):
    """What two signatures say to these bytes, in a process of their own."""
    examples = [*map(warmup.example_of, encoded)]
    calls = [
        ("serving_bytes", {"image_bytes": np.array(encoded, "O")}),
        ("classify", {"inputs": np.array(examples, "O")}),
    ]
    (_, answer), (_, classified) = serving.answer_in_fresh_process(place, calls)
    return answer, classified


def assert_no_skew(place, encoded, logits, classes):
    answer, classified = served(place, encoded)
    np.testing.assert_allclose(
        answer["logits"], logits, atol=1e-4 * np.abs(logits).max()
    )
    np.testing.assert_array_equal(answer["classes"], logits.argmax(-1))
    best = [classes[index] for index in logits.argmax(-1)]
    assert [row[0].decode() for row in classified["classes"]] == best
    np.testing.assert_allclose(
        classified["scores"],
        -np.sort(-tf.nn.softmax(logits).numpy()),
        atol=1e-4,
    )
    return answer


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_files_are_served_as_they_were_evaluated(tmp_path, precision, rng):
    write_files(tmp_path / "images", rng)
    recipe, path = train_briefly(
        tmp_path, data=f"folder:{tmp_path / 'images'}", precision=precision
    )
    tf.keras.mixed_precision.set_global_policy("float32")
    files = sorted((tmp_path / "images/test").rglob("*.*"))
    encoded = [file.read_bytes() for file in files]
    run = serving.read_run(path)
    logits, labels = evaluated(recipe, path, data.load_images(recipe.data))
    assert len(encoded) == len(labels) == 2 * len(MODES) * len(SIZES)

    place = serving.export_run(run, tmp_path / "exported")
    answer = assert_no_skew(place, encoded, logits, run.classes)
    if precision == "float32":
        accuracy = np.mean(answer["classes"] == labels)
        assert accuracy == pytest.approx(run.metrics["accuracy"])
    recorded = json.loads((place / "assets.extra/export.json").read_text())
    assert recorded["options"]["evaluation_crop"] == 0.875
    card = (place / "assets.extra/model_card.md").read_text()
    assert "the central square of 0.875 of the shorter side" in card
    assert (", in bfloat16" in card) == (precision != "float32")

    # Without the crop, the comparison above would fail.
    whole = serving.export_run(
        run,
        tmp_path / "exported",
        options=serving.options_of(run, evaluation_crop=1.0),
    )
    difference = np.abs(served(whole, encoded)[0]["logits"] - logits).max()
    assert difference > 1e-2 * np.abs(logits).max()


@pytest.mark.parametrize("share", [0.7, 1.0])
def test_grey_arrays_are_served_as_they_were_evaluated(tmp_path, share, rng):
    pixels = rng.integers(0, 256, (40, 17, 23, 1)).astype(np.uint8)
    labels = rng.integers(0, 3, 40)
    file = pathlib.Path(tmp_path, "images.npz")
    np.savez(file, x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    recipe, path = train_briefly(
        tmp_path, data=f"arrays:{file}", evaluation_crop=share
    )
    run = serving.read_run(path)
    logits, _ = evaluated(recipe, path, data.load_images(recipe.data))
    place = serving.export_run(run, tmp_path / "exported")
    encoded = [tf.io.encode_png(image).numpy() for image in pixels]
    assert_no_skew(place, encoded, logits, run.classes)


def test_a_crop_for_images_that_are_not_square_is_refused(tmp_path):
    images = tf.keras.Input((8, 7, 3))
    pooled = tf.keras.layers.GlobalAveragePooling2D()(images)
    model = tf.keras.Model(images, tf.keras.layers.Dense(3)(pooled))
    options = serving.ServingOptions(evaluation_crop=0.875)
    with pytest.raises(ValueError, match=r"must be 1 .* 0.875 for 8x7"):
        serving.export_model(model, tmp_path, "m", options=options)
    for share in (0, 1.01, "all"):
        with pytest.raises(ValueError, match="`evaluation_crop` must be above"):
            serving.ServingOptions(evaluation_crop=share)
