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
from tests.support.arrays import assert_same
from tests.support.image_sets import png
from tests.support.image_sets import write_file
from tests.support.image_sets import write_files
from tests.support.serving_run import ARGUMENTS
from tests.support.serving_run import CLASSES
from tests.support.serving_run import write_run
from tests.support.smoke_run import run_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run for images of 8x8, five classes."""
    folder = tmp_path_factory.mktemp("teacher") / "run"
    logits = {"input_shape": [8, 8, 1], "classifier_activation": None}
    recipe = {"name": "digits", "image_size": 8, "evaluation_crop": 1.0}
    write_run(folder, arguments=ARGUMENTS | logits, recipe=recipe)
    return RunFolder(folder).read()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder with 23 gray pictures, one of them damaged, in two folders."""
    folder = tmp_path_factory.mktemp("pictures")
    pixels = np.random.default_rng(2).integers(0, 256, (23, 8, 8, 1), np.uint8)
    contents = [tf.io.encode_png(each).numpy() for each in pixels]
    contents[0] = b"\x89PNG damaged"
    for i, content in enumerate(contents):
        write_files(folder, {f"{'ab'[i % 2]}/{i:02d}.png": content})
    return folder


def records(folder):
    """Images and probabilities of a folder, in the order of its files."""
    source = data.read_pseudo_labels(str(folder), CLASSES, channels=1)
    pairs = [source.decode(item) for _, item in source.scan()]
    images = np.stack([image.decode().numpy() for image, _ in pairs])
    return images, np.stack([row.numpy() for _, row in pairs])


@pytest.fixture(scope="module")
def label(run, pictures):
    """A function that labels the pictures in a folder."""

    def label_in(folder, print_fn=print, threshold=0.0, **options):
        options = training.LabelOptions(threshold, **options)
        paths = str(pictures), str(folder)
        training.label_images(run, *paths, options, print_fn)

    return label_in


@pytest.mark.slow
def test_labels_are_the_predictions_of_the_run(run, pictures, tmp_path):
    words = ["label", run.folder, str(pictures), str(tmp_path)]
    assert cli.main([*words, "--threshold=0", "--batch-size=4"]) == 0
    images, probabilities = records(tmp_path)
    report = json.loads((tmp_path / "pseudo_labels.json").read_text())
    assert report["images_read"] == 23
    assert report["kept"] == len(images) == 22
    counts = np.bincount(probabilities.argmax(-1), minlength=len(CLASSES))
    assert list(report["kept_of_each_class"].values()) == counts.tolist()
    logits = run.load_model()(images.astype(np.float32), training=False)
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.once
def test_certain_images_are_kept_at_most_so_many_of_each_class(label, tmp_path):
    label(tmp_path / "all")
    _, probabilities = records(tmp_path / "all")
    certainties = np.sort(probabilities.max(-1))
    middle = float((certainties[10] + certainties[11]) / 2)
    label(tmp_path / "some", threshold=middle, images_per_class=3)
    _, kept = records(tmp_path / "some")
    certain = probabilities[probabilities.max(-1) >= middle]
    for number in range(len(CLASSES)):
        there = certain[certain.argmax(-1) == number][:3]
        found = kept[kept.argmax(-1) == number]
        np.testing.assert_allclose(found, there, rtol=1e-5)
    with pytest.raises(ValueError, match="`threshold` must keep some"):
        label(tmp_path / "none", threshold=1.0)
    label(tmp_path / "none")  # begins again


@pytest.mark.slow
@pytest.mark.once
def test_goes_on_where_it_stopped(label, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher, "_PIECE", 8)
    label(tmp_path / "a", images_per_class=5)

    def stop(text):
        if text.startswith("16 of"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        label(tmp_path / "b", stop, images_per_class=5)
    written = (tmp_path / "b" / "pseudo-00001-of-00003.tfrecord").stat()
    with pytest.raises(ValueError, match="must be a new one, or one that"):
        label(tmp_path / "b", threshold=0.1)
    label(tmp_path / "b", images_per_class=5)
    assert_same(records(tmp_path / "b"), records(tmp_path / "a"))
    found = (tmp_path / "b" / "pseudo-00001-of-00003.tfrecord").stat()
    assert found.st_mtime_ns == written.st_mtime_ns
    with pytest.raises(ValueError, match="must be a new one, or one that"):
        label(tmp_path / "b", images_per_class=5)


def write_pseudo(folder, seed=4, bad=0):
    """Ten images filled with their numbers; returns their probabilities."""
    rows = np.random.default_rng(seed).dirichlet(np.ones(10), 10)
    write = pseudo_labels.write_example
    images = [b"\x89PNG damaged"] * bad + [png([i]) for i in range(bad, 10)]
    contents = list(map(write, images, rows))
    name = pseudo_labels.FILE_NAME.format(number=0, count=1)
    write_files(folder, {"classes.txt": "\n".join("0123456789").encode()})
    write_file(folder / name, contents)
    return rows.astype(np.float32)


def student(tmp_path, **changes):
    """The batches of a recipe for black images and those pseudo-labels."""
    changes |= {"validation_split": 0.0, "batch_size": 8}
    pixels, labels = np.zeros((16, 8, 8, 1)), np.arange(16) % 10
    file = str(tmp_path / "labelled.npz")
    arrays = {"x_train": pixels, "y_train": labels, "classes": [*"0123456789"]}
    np.savez(file, **arrays, x_test=pixels, y_test=labels)
    changes["data"] = f"arrays:{file}"
    changes["pseudo_labels"] = str(tmp_path / "pseudo")
    recipe = training.resolve("smoke", changes)
    return training.InputPipeline(recipe, data.load_images(recipe.data, 0.0))


@pytest.mark.slow
def test_a_student_trains_with_both_kinds_at_the_ratio(tmp_path):
    rows = write_pseudo(tmp_path / "pseudo")
    pipeline = student(tmp_path, pseudo_label_ratio=0.3)
    assert pipeline.steps_per_epoch == 16 // 6
    assert "10 pseudo-labelled images" in pipeline.images.description
    batches = list(pipeline.training_batches().take(12))
    seen = set()
    for images, labels in batches:
        assert np.isin(labels[:6], (0.0, 1.0)).all()
        # A pseudo-labelled image is filled with its number.
        numbers = images[6:, 0, 0, 0].numpy().astype(int)
        np.testing.assert_allclose(labels[6:], rows[numbers])
        seen |= set(numbers)
    assert seen == set(range(10))
    # They are the same from any step.
    later = pipeline.training_batches(step=4)
    for batch, same in zip(batches[4:], later, strict=False):
        assert_same(batch, same)
    write_pseudo(tmp_path / "pseudo", bad=6)
    run = run_recipe(pipeline.recipe, tmp_path).read()
    assert run.status == "finished"
    assert run.recipe["pseudo_labels"] == str(tmp_path / "pseudo")


@pytest.mark.once
def test_wrong_pseudo_labels_are_refused(tmp_path):
    with pytest.raises(ValueError, match="`pseudo_labels` must be a folder"):
        student(tmp_path)
    write_pseudo(tmp_path / "pseudo")
    with pytest.raises(ValueError, match="`pseudo_label_ratio` must leave"):
        student(tmp_path, pseudo_label_ratio=100.0)
    (tmp_path / "pseudo" / "classes.txt").write_text("one\ntwo")
    with pytest.raises(ValueError, match="must be of the same classes"):
        student(tmp_path)
