"""Whole runs of a tiny network, and what they leave behind."""

import dataclasses
import json
import os
import pathlib
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import models
from lambdanet_tf import training
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.training import RunFolder
from lambdanet_tf.training import RunOptions
from lambdanet_tf.training import Stopped
from lambdanet_tf.training import devices
from lambdanet_tf.training import loop
from lambdanet_tf.training import network
from lambdanet_tf.training import resolve
from lambdanet_tf.training import steps
from tests.support.arrays import assert_same
from tests.support.smoke_run import assert_same_end
from tests.support.smoke_run import metrics_rows
from tests.support.smoke_run import run_smoke
from tests.support.smoke_run import weights

# What a run leaves.


def test_all_files_are_there_and_named(finished_run):
    assert set(os.listdir(finished_run.path)) == {
        "best.weights.npz",
        "checkpoints",
        "curves.png",
        "examples.npz",
        "metrics.csv",
        "predictions.png",
        "report.md",
        "run.json",
        "tensorboard",
    }
    text = "\n".join(finished_run.printed)
    assert "2 epochs of 20 steps, 64 images each" in text
    assert "test accuracy: " in text
    assert f"written to {finished_run.path}/: best.weights.npz" in text
    assert "held" not in text


def test_the_record_can_build_the_network_again(finished_run):
    run = finished_run.read()
    run.require_finished()
    assert run.classes == tuple(str(i) for i in range(10))
    assert run.command == "lambdanet_tf.training.train"
    images, labels = run.read_examples()
    assert images.shape == (16, 8, 8, 1)
    assert images.max() > 200
    assert labels.dtype == np.int64
    assert run.load_model()(images).shape == (16, 10)
    text = pathlib.Path(finished_run.file("run.json")).read_text("utf-8")
    assert training.read_recipe("run.json", text) == resolve("smoke")


def test_the_reported_accuracy_is_that_of_the_written_weights(finished_run):
    def as_it_is(image, label, _):
        return image.decode(), label

    run, test = finished_run.read(), data.load_digits().test
    batches = test.batches(test.scan(), as_it_is, 359)
    (images, labels), _ = next(batches.as_numpy_iterator())
    logits = run.load_model()(images)
    right = np.argmax(logits, axis=-1) == labels
    assert len(right) == run.metrics["test_images"] == 359
    assert run.metrics["accuracy"] == pytest.approx(np.mean(right), abs=1e-6)
    # Without the smoothing of the training.
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    assert run.metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-4)


def test_metrics_have_a_line_for_each_epoch(finished_run):
    rows = metrics_rows(finished_run)
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert [row["step"] for row in rows] == ["20", "40"]
    assert float(rows[1]["loss"]) < float(rows[0]["loss"])
    assert float(rows[0]["learning_rate"]) > float(rows[1]["learning_rate"])


def test_the_report_says_what_was_run(finished_run):
    text = pathlib.Path(finished_run.file("report.md")).read_text("utf-8")
    metrics = finished_run.read().metrics
    for part in (
        f"Test accuracy **{metrics['accuracy']:.2%}** (top 5: ",
        "of 359 images",
        "`learning_rate` | `1.0`",
        "| seed | 0 |",
        tf.__version__,
        "![Predictions](predictions.png)",
    ):
        assert part in text


# Resuming.


@pytest.mark.once
def test_a_stopped_run_ends_as_if_it_had_not_been(finished_run, tmp_path):
    """Stopped by a real signal; resumed with several steps in a call."""

    trained = []

    def interrupt(model, row):
        trained.extend(model.get_weights())
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped, match="at step 20. Resume with: python train"):
        run_smoke(tmp_path, on_epoch=interrupt)
    assert signal.getsignal(signal.SIGTERM) == before
    folder = RunFolder(tmp_path / "run")
    assert folder.read().status == "stopped"
    assert len(metrics_rows(folder)) == 1
    pairs = zip(weights(folder), trained, strict=True)
    assert any(np.any(one != other) for one, other in pairs)  # averages
    with pytest.raises(ValueError, match="is 'stopped'. Let it finish"):
        folder.read().require_finished()
    options = {"steps_per_execution": 7, "checkpoint_steps": 15}
    run_smoke(tmp_path, options)
    assert folder.read().status == "finished"
    assert_same_end(folder, finished_run)
    kept = sorted(os.listdir(folder.file("checkpoints")))
    assert [f for f in kept if f.endswith("index")] == [
        "ckpt-40-1.index",
        "ckpt-40-2.index",
    ]


FAILED = {"status": "failed", "metrics": {"reason": "It was so."}}
OTHER_KERAS = {"keras": "tf_keras 2.0" if KERAS_3 else "keras 3.0"}


@pytest.mark.parametrize(
    ("was", "changes", "message"),
    [
        ({}, {"seed": 3}, "seed is 0, not 3"),
        (FAILED, {}, "has failed and would fail again. It was so."),
        ({"versions": OTHER_KERAS}, {}, "TF_USE_LEGACY_KERAS=[01]"),
    ],
)
def test_what_cannot_be_resumed(finished_run, tmp_path, was, changes, message):
    run = dataclasses.replace(finished_run.read(), **was)
    RunFolder(tmp_path / "run").write(run)
    with pytest.raises(ValueError, match=message):
        run_smoke(tmp_path, **changes)
    assert os.listdir(tmp_path / "run") == ["run.json"]


# A bad end.


def test_a_stop_before_the_first_step_is_obeyed_at_once(tmp_path, monkeypatch):
    def network(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        raise AssertionError("the signal was only noted")

    monkeypatch.setattr(loop, "recipe_network", network)
    with pytest.raises(Stopped):
        run_smoke(tmp_path)


def test_a_loss_that_is_not_finite_names_the_good_weights(tmp_path):
    """The weights are spoiled after the first epoch; its best ones stay."""

    def spoil(model, row):
        weight = model.trainable_weights[0]
        weight.assign(np.nan * np.ones(weight.shape))

    message = r"of epoch 1, are in .*best\.weights"
    with pytest.raises(training.NotFinite, match=message):
        run_smoke(tmp_path, on_epoch=spoil)
    folder = RunFolder(tmp_path / "run")
    run = folder.read()
    assert run.status == "failed"
    assert "by step" in run.metrics["reason"]
    assert all(np.all(np.isfinite(w)) for w in weights(folder))


# Other ways of computing the same.


class Steps:
    """Training steps of a recipe."""

    def __init__(self, strategy=None, options=None, **changes):
        recipe = resolve("smoke", {"weight_decay": 0.01, **changes})
        options = RunOptions(**(options or {}))
        strategy = strategy or tf.distribute.get_strategy()
        pipeline, self._state = loop.set_up(recipe, options, strategy)
        self._batches = iter(pipeline.training(0, True))
        self._taken = 0
        with strategy.scope():
            self._take_steps = steps.training_step(
                self._state, recipe, options.jit_compile
            )

    def take(self, number=8):
        """Takes some steps; returns their sums, weights and averages."""
        first = tf.constant(self._taken, tf.int64)
        sums = self._take_steps(self._batches, first, tf.constant(number))
        self._taken += number
        trained = self._state.model.get_weights()
        with self._state.averages.applied():
            return sums.numpy(), trained, self._state.model.get_weights()


def assert_near(actual, expected):
    """Of weights and averages; the sums may be others."""
    for one, two in zip(actual[1:], expected[1:], strict=True):
        assert_same(one, two, rtol=2e-3, atol=3e-4)


@pytest.fixture(scope="module")
def plain():
    """What some steps on one device give."""
    return Steps().take()


@pytest.mark.slow
def test_two_replicas_take_the_steps_of_one_device(plain, two_replicas):
    """Synchronized statistics, weight decay and averages."""
    two = Steps(two_replicas).take()
    assert_near(two, plain)
    np.testing.assert_allclose(two[0], plain[0], rtol=1e-4)


@pytest.mark.thorough
def test_xla_takes_the_same_steps(plain):
    assert_near(Steps(options={"jit_compile": True}).take(), plain)


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "mixed_bfloat16"},
        {"precision": "mixed_float16", "global_clipnorm": 10.0},
    ],
    ids=["bfloat16", "float16"],
)
def test_mixed_precision_learns_the_same(plain, changes):
    mixed = Steps(**changes)
    sums, trained, _ = mixed.take()
    assert all(w.dtype == np.float32 for w in trained)
    expected = plain[0][0] / plain[0][2]
    assert sums[0] / sums[2] == pytest.approx(expected, rel=0.02)
    pairs = zip(trained, plain[1], strict=True)
    assert any(np.any(one != other) for one, other in pairs)
    sums, _, _ = mixed.take(16)
    assert sums[0] / sums[2] < np.log(10)


@pytest.mark.slow
def test_evaluation_on_two_replicas_counts_each_image_once(two_replicas):
    recipe = resolve("smoke", {"batch_size": 32})
    pipeline, state = loop.set_up(recipe, RunOptions(), two_replicas)
    with two_replicas.scope():
        evaluation = steps.Evaluation(state.model, pipeline)
    test = pipeline.images.test
    assert evaluation.metrics(test)["images"] == 359
    predictions = evaluation.predictions(test)
    assert [len(column) for column in predictions] == [359] * 3


@pytest.mark.once
def test_a_batch_that_replicas_cannot_share_is_an_error(two_replicas):
    images = data.load_images("digits")
    with pytest.raises(ValueError, match="divisible by the number of replicas"):
        training.InputPipeline(
            resolve("smoke", {"batch_size": 33}), images, two_replicas
        )


# The network of a recipe.


@pytest.mark.slow
def test_a_users_regularizer_takes_the_place_of_weight_decay():
    images = data.load_images("digits")

    def penalty(weight_decay, **arguments):
        arguments |= resolve("smoke").model_arguments
        changes = {"weight_decay": weight_decay, "model_arguments": arguments}
        model = network.recipe_network(resolve("smoke", changes), images)
        return float(sum(model.losses)) if model.losses else 0.0

    # Keras' "l2" is 0.01 |w|^2.
    users = penalty(0.0, kernel_regularizer="l2")
    assert penalty(0.02) == pytest.approx(users, rel=1e-5)
    assert users > 0.01
    assert penalty(0.0) == 0.0


@pytest.mark.slow
def test_a_run_begins_from_the_weights_of_another(finished_run, tmp_path):
    """With another head, which is left out by name, and said."""
    path = tmp_path / "two.npz"
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), np.uint8)
    labels = np.arange(40) % 2
    np.savez(path, x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    said = []
    folder = run_smoke(
        tmp_path,
        say=said.append,
        data=f"arrays:{path}",
        batch_size=16,
        epochs=1,
        learning_rate=0.0,
        norm_momentum=1.0,
        initial_weights=finished_run.path,
    )
    (line,) = [text for text in said if text.startswith("Initial weights")]
    assert "without predictions/kernel, predictions/bias" in line
    ours = models.named_weights(folder.read().load_model())
    theirs = models.named_weights(finished_run.read().load_model())
    same = [
        np.array_equal(ours[key].numpy(), theirs[key].numpy())
        for key in ours
        if not key.startswith("predictions/")
    ]
    assert len(same) > 10
    assert all(same)
    assert "top5_accuracy" not in folder.read().metrics
    report = pathlib.Path(folder.file("report.md")).read_text("utf-8")
    assert "top 5" not in report


def test_every_builder_can_be_described_as_json():
    recipe = resolve("imagenet_350")
    arguments = network.network_arguments(recipe, data.load_images("digits"))
    assert json.loads(json.dumps(arguments)) == arguments
    assert recipe.model in models.names()


# The loss and the accuracies.


def test_cross_entropy_with_label_smoothing(rng):
    logits = rng.normal(size=(7, 5)).astype("float32")
    labels = rng.integers(0, 5, 7)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = -0.9 * logs[np.arange(7), labels] - 0.1 * logs.mean(axis=1)
    one_hot = tf.one_hot(labels, 5)
    actual = steps.cross_entropy(one_hot, tf.constant(logits), 0.1)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("logits", "k", "expected"),
    [
        ([0.0, 2.0, 1.0], 1, 1.0),
        ([0.0, 1.0, 2.0], 1, 0.0),
        ([0.0, 1.0, 2.0], 2, 1.0),
        ([3.0, 1.0, 2.0], 2, 0.0),
        ([1.0, 1.0, 1.0], 1, 0.0),
        ([1.0, 1.0, 1.0], 2, 0.0),
        ([np.nan, np.nan, np.nan], 2, 0.0),
        ([np.nan, 1.0, 0.0], 1, 0.0),
    ],
)
def test_ties_and_nan_count_as_wrong(logits, k, expected):
    """The label is 1."""
    logits = tf.constant([logits])
    for labels in ([[0.0, 1.0, 0.0]], [[0.2, 0.7, 0.1]]):
        accuracy = steps.top_k_accuracy(tf.constant(labels), logits, k)
        assert accuracy == expected


@pytest.mark.once
def test_a_gpu_that_tensorflow_cannot_use_is_said(tmp_path, monkeypatch):
    strategy = tf.distribute.get_strategy()
    monkeypatch.setattr(devices, "_NVIDIA_DEVICE", str(tmp_path / "none"))
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: [])
    assert devices.describe(strategy) == "1 CPU"
    monkeypatch.setattr(devices, "_NVIDIA_DEVICE", str(tmp_path))
    assert "TF_CPP_MIN_LOG_LEVEL=0" in devices.describe(strategy)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["GPU"])
    assert devices.describe(strategy) == "1 GPU"
