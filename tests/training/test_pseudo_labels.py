"""Pseudo-labels: what a teacher writes, and how a student's batches use it."""

import json

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import cli
from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.data import pseudo_labels
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.training import teacher
from tests.support import image_sets
from tests.support import serving_run
from tests.support.arrays import assert_same
from tests.support.smoke_run import run_recipe

pytestmark = [pytest.mark.slow, pytest.mark.once]


def records(folder):
    """Images and probabilities of a folder, in the order of its files."""
    source = data.read_pseudo_labels(
        str(folder), serving_run.CLASSES, channels=1
    )
    pairs = [source.decode(item) for _, item in source.scan()]
    images = np.stack([image.decode().numpy() for image, _ in pairs])
    return images, np.stack([row.numpy() for _, row in pairs])


def test_labels_are_the_predictions_of_the_run(tmp_path, rng, monkeypatch):
    """Of the certain images, so many of each class; resumed by file."""
    logits = {"input_shape": [8, 8, 1], "classifier_activation": None}
    recipe = {"name": "digits", "image_size": 8, "evaluation_crop": 1.0}
    path = str(tmp_path / "run")
    serving_run.write_run(
        path, arguments=serving_run.ARGUMENTS | logits, recipe=recipe
    )
    pixels = rng.integers(0, 256, (23, 8, 8, 1), np.uint8)
    contents = [tf.io.encode_png(each).numpy() for each in pixels]
    contents[0] = b"\x89PNG damaged"
    files = {f"{'ab'[i % 2]}/{i:02d}.png": x for i, x in enumerate(contents)}
    image_sets.write_files(tmp_path / "pictures", files)

    run, pictures = RunFolder(path).read(), str(tmp_path / "pictures")
    words = ["label", path, pictures, str(tmp_path / "all")]
    assert cli.main([*words, "--threshold=0", "--batch-size=4"]) == 0
    images, rows = records(tmp_path / "all")
    report = json.loads((tmp_path / "all/pseudo_labels.json").read_text())
    assert report["images_read"] == 23
    assert report["kept"] == len(images) == 22
    counts = np.bincount(rows.argmax(-1), minlength=len(serving_run.CLASSES))
    assert list(report["kept_of_each_class"].values()) == counts.tolist()
    logits = run.load_model()(images.astype(np.float32), training=False)
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-6)

    def label(name, threshold, say=str, most=3):
        options = training.LabelOptions(threshold, images_per_class=most)
        folder = str(tmp_path / name)
        training.label_images(run, pictures, folder, options, say)

    with pytest.raises(ValueError, match="`threshold` must be low enough"):
        label("some", threshold=1.0)
    monkeypatch.setattr(teacher, "_PIECE", 8)
    middle = float(np.sort(rows.max(-1))[10:12].mean())

    def stop(text):
        if text.startswith("16 of"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        label("some", middle, stop)
    file = tmp_path / "some/pseudo-00001-of-00003.tfrecord"
    written = file.stat().st_mtime_ns
    with pytest.raises(ValueError, match="must be new, or the folder"):
        label("some", threshold=0.1)
    label("some", middle)
    assert file.stat().st_mtime_ns == written
    with pytest.raises(ValueError, match="must be new, or the folder"):
        label("some", middle)
    _, kept = records(tmp_path / "some")
    certain = rows[rows.max(-1) >= middle]
    for number in range(len(serving_run.CLASSES)):
        there = certain[certain.argmax(-1) == number][:3]
        found = kept[kept.argmax(-1) == number]
        # A scan takes turns between files.
        found, there = np.sort(found, axis=0), np.sort(there, axis=0)
        np.testing.assert_allclose(found, there, rtol=1e-5)


def write_pseudo(folder, *first):
    """Ten images filled with their numbers; returns their probabilities."""
    rows = np.random.default_rng(4).dirichlet(np.ones(10), 10)
    images = [*first, *(image_sets.png([i]) for i in range(len(first), 10))]
    contents = list(map(pseudo_labels.write_example, images, rows))
    name = pseudo_labels.FILE_NAME.format(number=0, count=1)
    image_sets.write_files(
        folder, {"classes.txt": "\n".join("0123456789").encode()}
    )
    image_sets.write_file(folder / name, contents)
    return rows.astype(np.float32)


def test_images_that_a_student_would_be_tested_on_are_named(tmp_path, capsys):
    test = data.load_digits().test
    image, _ = test.decode(next(iter(test.scan()))[1])
    for code, first in enumerate([[], [image.encoded().numpy()]]):
        write_pseudo(tmp_path, *first)
        words = ["check", "digits", "--pseudo-labels", str(tmp_path)]
        assert cli.main([*words, "--validation-split=0"]) == code
    wanted = "image 0: the test image is also image 0 in train"
    assert wanted in capsys.readouterr().out


def test_a_student_trains_with_both_kinds_at_the_ratio(tmp_path):
    pseudo = tmp_path / "pseudo"

    def student(ratio=0.3):
        changes = {"pseudo_labels": str(pseudo), "pseudo_label_ratio": ratio}
        recipe = training.resolve("smoke", changes)
        return training.InputPipeline(recipe, data.load_digits())

    with pytest.raises(ValueError, match="`pseudo_labels` must be a folder"):
        student()
    rows = write_pseudo(pseudo)
    with pytest.raises(ValueError, match="`pseudo_label_ratio` must leave"):
        student(ratio=1000.0)
    pipeline = student()
    assert pipeline.steps_per_epoch == 1295 // 49
    assert "10 pseudo-labelled images" in pipeline.images.description
    batches = list(pipeline.training_batches().take(12))
    seen = set()
    for images, labels in batches:
        assert np.isin(labels[:49], (0.0, 1.0)).all()
        # A pseudo-labelled image is filled with its number.
        numbers = images[49:, 0, 0, 0].numpy().astype(int)
        np.testing.assert_allclose(labels[49:], rows[numbers])
        seen |= set(numbers)
    assert seen == set(range(10))
    # They are the same from any step.
    later = pipeline.training_batches(step=4)
    for batch, same in zip(batches[4:], later, strict=False):
        assert_same(batch, same)
    write_pseudo(pseudo, *[b"\x89PNG damaged"] * 6)
    run = run_recipe(pipeline.recipe, tmp_path).read()
    assert run.status == "finished"
    assert run.recipe["pseudo_labels"] == str(pseudo)
    (pseudo / "classes.txt").write_text("one\ntwo")
    with pytest.raises(ValueError, match="same classes as the data"):
        student()
