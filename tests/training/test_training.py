"""Whole runs of a tiny network, and what they leave behind."""

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


def test_all_files_are_there_and_say_what_was_run(finished_run):
    names = "best.weights.npz checkpoints confusion.png curves.png"
    names += " examples.npz metrics.csv"
    names += " predictions.png report.md run.json tensorboard wrong_images.csv"
    assert sorted(os.listdir(finished_run.path)) == names.split()
    assert "2 epochs of 20 steps" in "\n".join(finished_run.printed)
    rows = smoke_run.metrics_rows(finished_run)
    assert [row["step"] for row in rows] == ["20", "40"]
    assert float(rows[1]["loss"]) < float(rows[0]["loss"])
    text = pathlib.Path(finished_run.file("report.md")).read_text("utf-8")
    accuracy = finished_run.read().metrics["accuracy"]
    assert f"Test accuracy **{accuracy:.2%}** of 359 images" in text
    assert "![predictions](predictions.png)" in text


def test_the_reported_accuracy_is_that_of_the_written_weights(finished_run):
    def as_it_is(image, label, _):
        return image.decode(), label

    run, test = finished_run.read(), data.load_digits().test
    examples = test.examples(test.scan(), as_it_is).batch(359)
    images, labels = next(examples.as_numpy_iterator())
    logits = run.load_model()(images)
    right = np.argmax(logits, axis=-1) == labels
    assert len(right) == run.metrics["test_images"] == 359
    assert run.metrics["accuracy"] == pytest.approx(np.mean(right), abs=1e-6)
    # Without the smoothing of the training.
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    assert run.metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-4)


def test_a_network_begins_with_the_weights_of_a_run(finished_run):
    changes = {"seed": 3, "initial_weights": finished_run.path}
    recipe, said = training.resolve("smoke", changes), []
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


RIGHT = [([0.0, 2.0, 1.0], 1), ([0.0, 1.0, 2.0], 2)]
WRONG = [([0.0, 1.0, 2.0], 1), ([1.0, 1.0, 1.0], 2), ([np.nan, 1.0, 0.0], 1)]


@pytest.mark.parametrize(("logits", "k"), RIGHT + WRONG)
def test_ties_and_nan_count_as_wrong(logits, k):
    """The label is 1."""
    labels = tf.constant([[0.2, 0.7, 0.1]])
    accuracy = steps.top_k_accuracy(labels, tf.constant([logits]), k)
    assert accuracy == float((logits, k) in RIGHT)


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


def test_the_kept_examples_are_spread_over_the_test_images(finished_run):
    """Of a folder the first ones would all be of one class."""
    images, labels = finished_run.read().read_examples()
    source = data.load_digits().test
    rows = [source.decode(item) for _, item in source.scan()]
    assert len(labels) == 16
    pixels = [row[0].decode().numpy() for row in rows]
    found = [
        int(np.argmin([np.abs(p - image).max() for p in pixels]))
        for image in images
    ]
    assert min(np.diff(found)) > 10
    assert found[-1] > 300
    assert_same(labels, [int(rows[i][1]) for i in found])
