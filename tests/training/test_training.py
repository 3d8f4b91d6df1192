"""Whole runs of a tiny network, and what they leave behind."""

import dataclasses
import os
import pathlib
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.training import RunFolder
from lambdanet_tf.training import RunOptions
from lambdanet_tf.training import Stopped
from lambdanet_tf.training import devices
from lambdanet_tf.training import loop
from lambdanet_tf.training import resolve
from lambdanet_tf.training import steps
from tests.support.arrays import assert_same
from tests.support.smoke_run import assert_same_end
from tests.support.smoke_run import metrics_rows
from tests.support.smoke_run import run_smoke
from tests.support.smoke_run import weights

# What a run leaves.


def test_all_files_are_there_and_say_what_was_run(finished_run):
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
    assert "2 epochs of 20 steps" in "\n".join(finished_run.printed)
    rows = metrics_rows(finished_run)
    assert [row["step"] for row in rows] == ["20", "40"]
    assert float(rows[1]["loss"]) < float(rows[0]["loss"])
    text = pathlib.Path(finished_run.file("report.md")).read_text("utf-8")
    accuracy = finished_run.read().metrics["accuracy"]
    assert f"Test accuracy **{accuracy:.2%}** (top 5: " in text
    assert "![Predictions](predictions.png)" in text


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
    pairs = zip(weights(folder), trained, strict=True)
    assert any(np.any(one != other) for one, other in pairs)  # averages
    with pytest.raises(ValueError, match="is 'stopped'. Let it finish"):
        folder.read().require_finished()
    options = {"steps_per_execution": 7, "checkpoint_steps": 15}
    run_smoke(tmp_path, options)
    assert folder.read().status == "finished"
    assert_same_end(folder, finished_run)


FAILED = {"status": "failed", "metrics": {"reason": "It was so."}}
OTHER_KERAS = {"keras": "tf_keras 2.0" if KERAS_3 else "keras 3.0"}


@pytest.mark.parametrize(
    ("was", "message"),
    [
        (FAILED, "has failed and would fail again. It was so."),
        ({"versions": OTHER_KERAS}, "TF_USE_LEGACY_KERAS=[01]"),
    ],
)
def test_what_cannot_be_resumed(finished_run, tmp_path, was, message):
    run = dataclasses.replace(finished_run.read(), **was)
    RunFolder(tmp_path / "run").write(run)
    with pytest.raises(ValueError, match=message):
        run_smoke(tmp_path)
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
    assert folder.read().status == "failed"
    assert all(np.all(np.isfinite(w)) for w in weights(folder))


# Other ways of computing the same.


def take_steps(strategy=None, jit_compile=False):
    """Takes some steps; returns weights and averages."""
    recipe = resolve("smoke", {"weight_decay": 0.01})
    strategy = strategy or tf.distribute.get_strategy()
    options = RunOptions(jit_compile=jit_compile)
    pipeline, state = loop.set_up(recipe, options, strategy)
    with strategy.scope():
        take = steps.training_step(state, recipe, jit_compile)
    batches = iter(pipeline.training(0, True))
    take(batches, tf.constant(0, tf.int64), tf.constant(8))
    trained = state.model.get_weights()
    with state.averages.applied():
        return [*trained, *state.model.get_weights()]


@pytest.mark.slow
def test_two_replicas_and_xla_take_the_steps_of_one_device(two_replicas):
    """Synchronized statistics, weight decay and averages."""
    expected = take_steps()
    for found in (take_steps(two_replicas), take_steps(jit_compile=True)):
        assert_same(found, expected, rtol=2e-3, atol=3e-4)


@pytest.mark.once
def test_a_batch_that_replicas_cannot_share_is_an_error(two_replicas):
    recipe, images = resolve("smoke", {"batch_size": 33}), data.load_digits()
    with pytest.raises(ValueError, match="divisible by the number of replicas"):
        training.InputPipeline(recipe, images, two_replicas)


@pytest.mark.parametrize(
    ("logits", "k", "expected"),
    [
        ([0.0, 2.0, 1.0], 1, 1.0),
        ([0.0, 1.0, 2.0], 1, 0.0),
        ([0.0, 1.0, 2.0], 2, 1.0),
        ([1.0, 1.0, 1.0], 2, 0.0),
        ([np.nan, 1.0, 0.0], 1, 0.0),
    ],
)
def test_ties_and_nan_count_as_wrong(logits, k, expected):
    """The label is 1."""
    labels = tf.constant([[0.2, 0.7, 0.1]])
    accuracy = steps.top_k_accuracy(labels, tf.constant([logits]), k)
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
