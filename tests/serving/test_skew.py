"""No training/serving skew: what is served is what was evaluated."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import serving
from lambdanet_tf import training
from lambdanet_tf.environment import require
from lambdanet_tf.serving import standalone
from tests.support import checks
from tests.support.smoke_run import run_recipe

# Height and width of the test images of each mode: odd, elongated, smaller
# than the network's, down to a single pixel.
SIZES = [(37, 61), (90, 50), (12, 12), (7, 5), (1, 1), (3, 40)]
MODES = [
    *(("RGB", "jpg"), ("L", "jpg"), ("CMYK", "jpg"), ("RGB", "png")),
    *(("RGBA", "png"), ("LA", "png"), ("P", "png"), ("1", "png")),
    ("12 bits", "png"),
]


def write_images(folder, kinds):
    """Writes images of each kind in two classes; returns their files.

    Of smooth colors: noise would be another image after any resizing.
    """
    pillow = require("PIL.Image", extra="plot")
    generator, kinds = np.random.default_rng(0), [*kinds]
    for label, name in enumerate(("dark", "light")):
        (folder / name).mkdir(parents=True)
        for number, ((mode, ending), (height, width)) in enumerate(kinds):
            small = generator.integers(0, 200, (3, 3, 3)) + 55 * label
            image = pillow.fromarray(small.astype(np.uint8))
            image = image.resize((width, height), pillow.Resampling.BICUBIC)
            if mode == "12 bits":  # of 16
                gray = np.asarray(image.convert("L"), np.uint16)
                image = pillow.fromarray(gray * 16)
            else:
                image = image.convert(mode)
            image.save(folder / name / f"{number:03}-{mode}.{ending}")
    return sorted(folder.rglob("*.*"))


@pytest.mark.slow
@pytest.mark.once
def test_files_are_served_as_they_were_evaluated(tmp_path):
    images = tmp_path / "images"
    write_images(images / "train", [(("RGB", "png"), (20, 20))] * 12)
    files = write_images(images / "test", itertools.product(MODES, SIZES))
    changes = {
        "batch_size": 4,
        "image_size": 12,
        "data": f"folder:{images},bits=12",
        "epochs": 2,
        "evaluation_crop": 0.875,
        "learning_rate": 0.05,
        "model_arguments": {"stages": ["L"], "widths": [8], "strides": [1]},
    }
    recipe = training.resolve("smoke", changes)
    run = run_recipe(recipe, tmp_path).read()
    encoded = np.array([file.read_bytes() for file in files], "O")
    for precision in ("float32", "mixed_bfloat16"):
        recipe = dataclasses.replace(recipe, precision=precision)
        run = dataclasses.replace(run, recipe=dataclasses.asdict(recipe))
        model, logits, labels = run.load_model(), [], []
        pipeline = training.InputPipeline(recipe, data.load_images(recipe.data))
        batches = pipeline.evaluation(pipeline.images.test)
        for pixels, truth, weights, _ in batches:
            kept = weights > 0
            logits.append(model(tf.cast(pixels, tf.float32))[kept])
            labels.append(truth.numpy().argmax(-1)[kept])
        logits, labels = np.concatenate(logits), np.concatenate(labels)
        assert len(encoded) == len(labels) == 2 * len(MODES) * len(SIZES)

        session = standalone.Session(tf, serving.export_run(run, tmp_path))
        outputs = session.run("serving_bytes", {"image_bytes": encoded})
        checks.assert_close(outputs["logits"], logits, 1e-4)
        np.testing.assert_array_equal(outputs["classes"], logits.argmax(-1))
        if precision == "float32":
            accuracy = np.mean(outputs["classes"] == labels)
            assert accuracy == pytest.approx(run.metrics["accuracy"])
