"""The report of a run: an evaluation, by class and by image."""

import csv
import pathlib

import numpy as np
import pytest

from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.runs import Run
from lambdanet_tf.training import report
from lambdanet_tf.training.steps import Predictions
from tests.support.image_sets import png
from tests.support.image_sets import write_files
from tests.support.smoke_run import run_recipe

pytestmark = pytest.mark.once

LABELS, PREDICTED = np.array([0, 0, 0, 1, 2]), np.array([0, 1, 1, 1, 0])
MATRIX = report.confusion_matrix(
    Predictions(LABELS, PREDICTED, np.ones(5), np.arange(5), {}), 3
)


def test_a_confusion_matrix_counts_each_image():
    assert MATRIX.tolist() == [[1, 2, 0], [0, 1, 0], [1, 0, 0]]


def test_a_report_shows_classes_and_names_from_outside():
    """Names are shown, never obeyed; the least accurate class comes first."""
    metrics = {
        "accuracy": 0.5, "test_images": 5, "best_epoch": 1, "loss": 1.0,
        "seconds": 1.0, "images_per_second": 5.0, "device": "1 CPU",
        "bad_images": 0, "parameters": 3,
    }  # fmt: skip
    recipe = training.resolve("smoke", {"data": "folder:a|b_<i>"}).to_dict()
    classes = ("cat", "<d>", "eel")
    run = Run("finished", "M", {}, classes, recipe=recipe, metrics=metrics)
    text = report.report(run, MATRIX, "no `image`\nof <b>|![x](y)", [])
    assert r"# M on folder:a\|b\_\<i\>" in text
    assert r"no \`image\` of \<b\>\|\!\[x\](y)" in text
    assert r"| `data` | `folder:a\|b_<i>` |" in text
    rows = [
        "| eel | 1 | 0.00% | cat (1) |",
        r"| cat | 3 | 33.33% | \<d\> (2) |",
        r"| \<d\> | 1 | 100.00% | - |",
    ]
    assert "\n".join(rows) in text
    rows = ["| cat | 1 | 2 | 0 |", r"| \<d\> | 0 | 1 | 0 |"]
    assert "\n".join(rows) in text


def test_wrong_images_are_named_by_their_files(tmp_path):
    """Also behind a file that cannot be read."""
    pixels = np.random.default_rng(0).integers(0, 256, 40).tolist()
    files = {
        f"{'ab'[i % 2]}/{i:02}.png": png([p]) for i, p in enumerate(pixels)
    }
    write_files(tmp_path / "train", files)
    write_files(tmp_path / "test", {**files, "a/03.png": b"a text"})
    name = f"folder:{tmp_path},channels=1"
    changes = {"data": name, "epochs": 1, "batch_size": 8, "image_size": 8}
    run = run_recipe(training.resolve("smoke", changes), tmp_path / "x").read()
    model, test = run.load_model(), data.load_images(name).test
    with pathlib.Path(run.folder, "wrong_images.csv").open() as file:
        rows = {row.pop("name"): row for row in csv.DictReader(file)}
    assert run.metrics["bad_images"] == 1
    probabilities = [float(row["probability"]) for row in rows.values()]
    assert probabilities == sorted(probabilities, reverse=True)
    seen = 0
    for _, item in test.scan():
        if item["name"] != str(tmp_path / "test/a/03.png"):
            image, label = test.decode(item)
            logits = model(image.decode()[None])[0]
            seen += 1
            row = rows.get(item["name"].numpy().decode())
            assert (row is None) == (np.argmax(logits) == label)
            if row:
                pair = "ab"[label], "ab"[np.argmax(logits)]
                assert (row["label"], row["prediction"]) == pair
    assert seen == 40
