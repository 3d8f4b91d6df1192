"""Whole runs of a tiny network, and what they leave behind."""

import csv
import os
import pathlib
import random

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.training import loop
from lambdanet_tf.training import steps
from tests.support import smoke_run
from tests.support.arrays import assert_same
from tests.support.image_sets import png
from tests.support.image_sets import write_files


def test_a_run_leaves_its_files_and_the_accuracy_of_its_weights(finished_run):
    """And test images, spread over all: the first may be of one class."""
    names = "best.weights.npz checkpoints confusion.png curves.png"
    names += " examples.npz metrics.csv"
    names += " predictions.png report.md run.json tensorboard wrong_images.csv"
    assert sorted(os.listdir(finished_run.path)) == names.split()
    assert "2 epochs of 20 steps" in "\n".join(finished_run.printed)
    rows = smoke_run.metrics_rows(finished_run)
    assert [row["step"] for row in rows] == ["20", "40"]
    assert float(rows[1]["loss"]) < float(rows[0]["loss"])
    run, test = finished_run.read(), data.load_digits().test
    text = pathlib.Path(finished_run.file("report.md")).read_text("utf-8")
    accuracy = f"Test accuracy **{run.metrics['accuracy']:.2%}** on 359 images"
    assert accuracy in text
    assert "![predictions](predictions.png)" in text

    decoded = [test.decode(item) for _, item in test.scan()]
    images = np.stack([image.decode().numpy() for image, _ in decoded])
    labels = np.array([label for _, label in decoded])
    logits = run.load_model()(images)
    right = np.argmax(logits, axis=-1) == labels
    assert len(right) == run.metrics["test_images"] == 359
    assert run.metrics["accuracy"] == pytest.approx(np.mean(right), abs=1e-6)
    # Without the smoothing of the training.
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    assert run.metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    kept, kept_labels = run.read_examples()
    found = [int(np.argmin(abs(images - x).max((1, 2, 3)))) for x in kept]
    assert len(found) == 16
    assert min(np.diff(found)) > 10
    assert found[-1] > 300
    assert_same(kept_labels, labels[found])

    changes, said = {"seed": 3, "initial_weights": finished_run.path}, []
    recipe = training.resolve("smoke", changes)
    model = training.recipe_network(recipe, data.load_digits(), said.append)
    assert said == [f"Initial weights: {finished_run.path}."]
    assert_same(model.get_weights(), smoke_run.weights(finished_run))


def take_steps(strategy=None, jit_compile=False):
    """Takes some steps; returns weights and averages."""
    recipe = training.resolve("smoke", {"weight_decay": 0.01})
    strategy = strategy or tf.distribute.get_strategy()
    options = training.RunOptions(jit_compile=jit_compile)
    tf.keras.utils.set_random_seed(recipe.seed)
    pipeline, state = loop.set_up(recipe, options, strategy)
    with strategy.scope():
        take = steps.training_step(state, recipe, jit_compile)
    batches = iter(pipeline.training())
    take(batches, tf.constant(0, tf.int64), tf.constant(8))
    trained = state.model.get_weights()
    with state.averages.applied():
        return [*trained, *state.model.get_weights()]


@pytest.mark.slow
def test_two_replicas_and_xla_take_the_steps_of_one_device(two_replicas):
    """Synchronized statistics, weight decay and averages."""
    recipe = training.resolve("smoke", {"batch_size": 33})
    with pytest.raises(ValueError, match="divisible by the number of replicas"):
        training.InputPipeline(recipe, data.load_digits(), two_replicas)
    expected = take_steps()
    for found in (take_steps(two_replicas), take_steps(jit_compile=True)):
        assert_same(found, expected, rtol=2e-3, atol=3e-4)


def test_ties_and_nan_count_as_wrong():
    """The label is 1."""
    nan, labels = np.nan, tf.constant([[0.2, 0.7, 0.1]])
    for logits, k, right in (
        ([0.0, 2.0, 1.0], 1, 1.0),
        ([0.0, 1.0, 2.0], 2, 1.0),
        ([0.0, 1.0, 2.0], 1, 0.0),
        ([1.0, 1.0, 1.0], 2, 0.0),
        ([nan, 1.0, 0.0], 1, 0.0),
    ):
        logits = tf.constant([logits])
        assert steps.top_k_accuracy(labels, logits, k) == right


def test_every_step_and_every_replica_has_a_seed_of_its_own(two_replicas):
    @tf.function
    def seeds(step):
        return two_replicas.run(lambda: steps._replica_seed(3, step))

    found = [
        tuple(seed.numpy())
        for step in tf.range(3, dtype=tf.int64)
        for seed in two_replicas.experimental_local_results(seeds(step))
    ]
    assert len(set(found)) == 6


def test_a_training_seeds_nothing_and_leaves_the_policy(tmp_path):
    """Else each trial of a random search would be the same."""
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    options, drawn = training.RunOptions(run_dir=str(tmp_path)), []
    changes = {"batch_size": 1300}  # which is more images than there are
    for seed in (1, 2):
        tf.keras.utils.set_random_seed(seed)
        with pytest.raises(ValueError, match="1300"):
            training.train(training.resolve("smoke", changes), options, str)
        training.recipe_network(training.resolve("smoke"), data.load_digits())
        numbers = random.random(), np.random.uniform()  # noqa: NPY002
        drawn.append([*numbers, float(tf.random.uniform([]))])
    assert all(a != b for a, b in zip(*drawn, strict=True))
    assert tf.keras.mixed_precision.global_policy().name == "mixed_bfloat16"


@pytest.mark.once
def test_a_report_names_classes_and_wrong_images(tmp_path):
    """Also behind a file that cannot be read; names are shown, never obeyed."""
    pixels = np.random.default_rng(0).integers(0, 256, 40).tolist()
    names = ("<b>|", "a")
    files = {
        f"{names[i % 2]}/{i:02}.png": png([p]) for i, p in enumerate(pixels)
    }
    write_files(tmp_path / "train", files)
    write_files(tmp_path / "test", {**files, "a/02.png": b"a text"})
    name = f"folder:{tmp_path},channels=1"
    changes = {"data": name, "epochs": 1, "batch_size": 8, "image_size": 8}
    recipe = training.resolve("smoke", changes)
    run = smoke_run.run_recipe(recipe, tmp_path / "x").read()
    model, test = run.load_model(), data.load_images(name).test
    with pathlib.Path(run.folder, "wrong_images.csv").open() as file:
        rows = {row.pop("name"): row for row in csv.DictReader(file)}
    assert run.metrics["bad_images"] == 1
    probabilities = [float(row["probability"]) for row in rows.values()]
    assert probabilities == sorted(probabilities, reverse=True)
    matrix = np.zeros((2, 2), int)
    for _, item in test.scan():
        if item["name"] != str(tmp_path / "test/a/02.png"):
            image, label = test.decode(item)
            predicted = np.argmax(model(image.decode()[None])[0])
            matrix[label, predicted] += 1
            row = rows.get(item["name"].numpy().decode())
            assert (row is None) == (predicted == label)
            if row:
                pair = names[label], names[predicted]
                assert (row["label"], row["prediction"]) == pair
    assert matrix.sum() == 40
    text = pathlib.Path(run.folder, "report.md").read_text("utf-8")
    shown, classes = (r"\<b\>\|", "a"), []
    for i in (0, 1):
        (right, wrong), other = matrix[i, [i, 1 - i]], shown[1 - i]
        others = f"{other} ({wrong})" if wrong else "-"
        share, total = right / (right + wrong), right + wrong
        row = f"| {shown[i]} | {total} | {share:.2%} | {others} |"
        classes.append((share, row))
        assert f"| {shown[i]} | {matrix[i, 0]} | {matrix[i, 1]} |" in text
    assert "\n".join(row for _, row in sorted(classes)) in text
