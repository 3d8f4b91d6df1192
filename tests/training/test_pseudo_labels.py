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
from tests.support.serving_run import ARGUMENTS
from tests.support.serving_run import CLASSES
from tests.support.serving_run import write_run
from tests.support.smoke_run import run_recipe

RECIPE = {"name": "digits", "image_size": 8, "evaluation_crop": 1.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run for images of 8x8, five classes."""
    folder = tmp_path_factory.mktemp("teacher") / "run"
    logits = {"input_shape": [8, 8, 1], "classifier_activation": None}
    write_run(folder, arguments=ARGUMENTS | logits, recipe=RECIPE)
    return RunFolder(folder).read()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder with 23 gray pictures, one of them damaged, in two folders."""
    folder = tmp_path_factory.mktemp("pictures")
    generator = np.random.default_rng(2)
    for number in range(23):
        below = folder / "ab"[number % 2]
        below.mkdir(exist_ok=True)
        pixels = generator.integers(0, 256, (8, 8, 1)).astype(np.uint8)
        path = below / f"{number:02d}.png"
        path.write_bytes(tf.io.encode_png(pixels).numpy())
    (folder / "a" / "00.png").write_bytes(b"\x89PNG damaged")
    (folder / "notes.txt").write_text("not an image")
    return folder


def records(folder):
    """Images and probabilities of a folder, in the order of its files."""
    source = data.read_pseudo_labels(str(folder), CLASSES, channels=1)
    pairs = [source.decode(item) for _, item in source.scan()]
    images = np.stack([image.decode().numpy() for image, _ in pairs])
    return images, np.stack([row.numpy() for _, row in pairs])


@pytest.fixture(scope="module")
def label(run, pictures):
    """Labels the pictures in a folder; returns the report."""

    def label_in(folder, print_fn=print, **options):
        options = training.LabelOptions(**{"threshold": 0.0, **options})
        return training.label_images(
            run, str(pictures), str(folder), options, print_fn
        )

    return label_in


@pytest.fixture(scope="module")
def everything(label, tmp_path_factory):
    """A folder with the labels of all pictures, and the report."""
    folder = tmp_path_factory.mktemp("labels") / "all"
    return folder, label(folder, batch_size=4)


@pytest.mark.slow
def test_labels_are_the_predictions_of_the_run(run, everything):
    folder, report = everything
    images, probabilities = records(folder)
    assert report["images_read"] == 23
    assert report["bad_images"] == 1
    assert report["kept"] == len(images) == 22
    logits = run.load_model()(images.astype(np.float32), training=False)
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-4, atol=1e-6)
    written = json.loads((folder / "pseudo_labels.json").read_text())
    assert written == report
    assert written["kept_of_each_class"] == counts_of(probabilities)


@pytest.mark.thorough
def test_all_replicas_label(everything, label, tmp_path, two_replicas):
    """Batches of 4 of 22 images: the last one is smaller."""
    with two_replicas.scope():
        label(tmp_path / "two", batch_size=4)
    one, two = records(everything[0]), records(tmp_path / "two")
    np.testing.assert_array_equal(two[0], one[0])
    np.testing.assert_allclose(two[1], one[1], rtol=1e-5, atol=1e-7)


def counts_of(probabilities):
    """How many rows are of each class."""
    labels = probabilities.argmax(-1)
    return {name: int((labels == i).sum()) for i, name in enumerate(CLASSES)}


@pytest.mark.slow
@pytest.mark.once
def test_threshold_keeps_the_certain_images(everything, label, tmp_path):
    _, probabilities = records(everything[0])
    certainties = np.sort(probabilities.max(-1))
    middle = float((certainties[10] + certainties[11]) / 2)
    label(tmp_path / "half", threshold=middle)
    _, kept = records(tmp_path / "half")
    kept = np.sort(kept.max(-1))
    np.testing.assert_allclose(kept, certainties[11:], rtol=1e-5)
    with pytest.raises(ValueError, match="`threshold` must keep some"):
        label(tmp_path / "none", threshold=1.0)


@pytest.mark.once
@pytest.mark.thorough
def test_each_class_gives_as_many_as_asked_for(everything, label, tmp_path):
    _, probabilities = records(everything[0])
    report = label(tmp_path / "balanced", images_per_class=7)
    counts = counts_of(probabilities)
    assert report["kept_of_each_class"] == {
        name: 7 if number else 0 for name, number in counts.items()
    }
    _, balanced = records(tmp_path / "balanced")
    for number in range(len(CLASSES)):
        there = probabilities[probabilities.argmax(-1) == number]
        kept = balanced[balanced.argmax(-1) == number].max(-1)
        best = np.sort(there.max(-1))[::-1][:7]
        expected = np.resize(best, 7) if len(best) else best
        np.testing.assert_allclose(np.sort(kept), np.sort(expected), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.once
def test_goes_on_where_it_was_stopped(label, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher, "_IMAGES_PER_FILE", 8)
    label(tmp_path / "a")

    def stop(text):
        if text.startswith("16 of"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        label(tmp_path / "b", stop)
    with pytest.raises(ValueError, match="was begun with another run"):
        label(tmp_path / "b", threshold=0.1)
    said = []
    label(tmp_path / "b", said.append)
    assert len(said) == 1
    assert_same(records(tmp_path / "b"), records(tmp_path / "a"))
    names = sorted(path.name for path in (tmp_path / "b").iterdir())
    assert names == [
        "bad_images.txt",
        "classes.txt",
        "pseudo-00000-of-00003.tfrecord",
        "pseudo-00001-of-00003.tfrecord",
        "pseudo-00002-of-00003.tfrecord",
        "pseudo_labels.json",
    ]
    with pytest.raises(ValueError, match="must be a new or an empty one"):
        label(tmp_path / "b")


def write_labelled(folder, count=16):
    """An .npz file of labelled images."""
    generator = np.random.default_rng(3)
    images = generator.integers(0, 256, (count, 8, 8, 1)).astype(np.uint8)
    labels = np.arange(count) % len(CLASSES)
    path = folder / "labelled.npz"
    parts = {"x_train": images, "y_train": labels}
    parts |= {"x_test": images, "y_test": labels}
    np.savez(path, **parts, classes=np.array(CLASSES))
    return path


def write_pseudo(folder, count=10):
    """Pseudo-labels with random probabilities; returns those."""
    generator = np.random.default_rng(4)
    rows = generator.dirichlet(np.ones(len(CLASSES)), count)
    folder.mkdir()
    (folder / "classes.txt").write_text("\n".join(CLASSES))
    name = pseudo_labels.FILE_NAME.format(number=0, count=1)
    with tf.io.TFRecordWriter(str(folder / name)) as writer:
        for number, row in enumerate(rows):
            pixels = np.full((8, 8, 1), number, np.uint8)
            encoded = tf.io.encode_png(pixels).numpy()
            writer.write(pseudo_labels.write_example(encoded, row))
    return rows.astype(np.float32)


def student(tmp_path, **changes):
    fields = {
        "data": f"arrays:{write_labelled(tmp_path)}",
        "pseudo_labels": str(tmp_path / "pseudo"),
        "validation_split": 0.0,
        "image_size": 8,
        "evaluation_crop": 1.0,
        "batch_size": 8,
        "augmentation": "none",
        "flip": False,
        "epochs": 2,
        **changes,
    }
    recipe = training.resolve("digits", fields)
    images = data.load_images(recipe.data, recipe.validation_split)
    return training.InputPipeline(recipe, images)


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize(("ratio", "labelled"), [(1.0, 4), (3.0, 2), (0.3, 6)])
def test_batches_hold_both_kinds_at_the_ratio(tmp_path, ratio, labelled):
    rows = write_pseudo(tmp_path / "pseudo")
    pipeline = student(tmp_path, pseudo_label_ratio=ratio)
    assert pipeline.steps_per_epoch == 16 // labelled
    assert "10 pseudo-labelled images" in pipeline.images.description
    seen = []
    for images, labels in pipeline.dataset().take(5 * pipeline.steps_per_epoch):
        assert images.shape == (8, 8, 8, 1)
        assert np.isin(labels[:labelled], (0.0, 1.0)).all()
        # A pseudo-labelled image is filled with its number.
        numbers = images[labelled:, 0, 0, 0].numpy().astype(int)
        np.testing.assert_allclose(labels[labelled:], rows[numbers])
        seen += list(numbers)
    assert set(seen) == set(range(10))


@pytest.mark.slow
@pytest.mark.once
def test_batches_are_the_same_from_any_step(tmp_path):
    write_pseudo(tmp_path / "pseudo")
    pipeline = student(tmp_path, mixup=0.3, flip=True, augmentation="pad_crop")
    whole = list(pipeline.dataset().take(9))
    rest = list(pipeline.dataset(step=4).take(5))
    for batch, same in zip(whole[4:], rest, strict=True):
        assert_same(batch, same)
    np.testing.assert_allclose(np.sum(whole[0][1], axis=-1), 1.0, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.once
def test_shards_divide_both_kinds(tmp_path):
    write_pseudo(tmp_path / "pseudo")
    pipeline = student(tmp_path)
    numbers = []
    for index in range(2):
        shard = data.Shard(index, 2)
        batches = pipeline.dataset(shard, batch_size=10).take(1)
        for images, _ in batches:
            numbers += list(images[5:, 0, 0, 0].numpy())
    assert sorted(numbers) == list(range(10))


@pytest.mark.slow
def test_a_student_trains(tmp_path):
    write_pseudo(tmp_path / "pseudo")
    arguments = {"stages": ["L"], "widths": [8], "strides": [1]}
    recipe = student(tmp_path, model_arguments=arguments).recipe
    said = []
    folder = run_recipe(recipe, tmp_path, say=said.append)
    run = folder.read()
    assert run.status == "finished"
    assert run.recipe["pseudo_labels"] == str(tmp_path / "pseudo")
    assert "10 pseudo-labelled images of" in "\n".join(said)


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


@pytest.mark.slow
@pytest.mark.once
def test_command(run, pictures, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["label", run.folder, str(pictures), str(out), "--threshold", "0"]
    assert cli.main(words) == 0
    captured = capsys.readouterr()
    assert "23 of 23 images" in captured.out
    assert f"Wrote {out}" in captured.out
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert "must be a new or an empty one" in captured.err
    assert cli.main(["label", run.folder, str(tmp_path / "no"), "x"]) == 2
    assert "There is no folder" in capsys.readouterr().err
