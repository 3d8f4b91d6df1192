"""Whole runs of a tiny network, and what they leave behind."""

import csv
import json
import os
import signal

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import models
from lambdanet_tf.serving import run_folder
from lambdanet_tf.training import NotFinite
from lambdanet_tf.training import RunFolder
from lambdanet_tf.training import RunOptions
from lambdanet_tf.training import Stopped
from lambdanet_tf.training import loop
from lambdanet_tf.training import parts
from lambdanet_tf.training import resolve
from lambdanet_tf.training import train
from lambdanet_tf.training.evaluation import Evaluation
from lambdanet_tf.training.losses import correct
from lambdanet_tf.training.losses import cross_entropy

TINY = {"epochs": 2, "batch_size": 64}


def silent(text):
    del text


def run_tiny(tmp_path, options=None, **overrides):
    recipe = resolve("smoke", {**TINY, **overrides})
    options = {"run": str(tmp_path / "run"), **(options or {})}
    return train(recipe, RunOptions(**options), say=silent)


def weights(folder):
    """The best weights of a run, as its model has them."""
    return run_folder.read_run(folder.path).model().get_weights()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One finished run for all tests that only look."""
    return run_tiny(tmp_path_factory.mktemp("finished"))


# What a run leaves.


def test_all_files_are_there(finished):
    assert {
        "best.weights.h5",
        "checkpoints",
        "curves.png",
        "examples.npz",
        "metrics.csv",
        "predictions.png",
        "report.md",
        "run.json",
        "tensorboard",
    } == set(os.listdir(finished.path))


def test_the_record_can_build_the_network_again(finished):
    record = finished.read_record()
    assert record["status"] == "finished"
    assert record["classes"] == [str(i) for i in range(10)]
    run = run_folder.read_run(finished.path)
    model = run.model()
    with np.load(finished.file("examples.npz")) as examples:
        images, labels = examples["images"], examples["labels"]
    assert images.shape == (16, 8, 8, 1)
    assert images.max() > 200
    assert labels.dtype == np.int64
    assert model(images.astype("float32")).shape == (16, 10)


def test_the_reported_accuracy_is_that_of_the_written_weights(finished):
    model = run_folder.read_run(finished.path).model()
    elements = list(data.load_digits().test.scan())
    images = np.stack([e["image"] for e in elements])
    labels = np.array([e["label"] for e in elements])
    answers = np.argmax(model(images.astype("float32")), axis=-1)
    reported = finished.read_record()["metrics"]["accuracy"]
    assert reported == pytest.approx(np.mean(answers == labels), abs=1e-6)


def test_metrics_have_a_line_for_each_epoch(finished):
    with open(finished.file("metrics.csv"), encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert [row["step"] for row in rows] == ["20", "40"]
    assert float(rows[1]["loss"]) < float(rows[0]["loss"])


def test_the_report_says_what_was_run(finished):
    with open(finished.file("report.md"), encoding="utf-8") as stream:
        text = stream.read()
    metrics = finished.read_record()["metrics"]
    for part in (
        f"{metrics['accuracy']:.2%}",
        "359 test images",
        "`learning_rate` | `1.0`",
        "| seed | 0 |",
        tf.__version__,
        "![Predictions](predictions.png)",
    ):
        assert part in text


def test_a_run_can_be_repeated_from_its_record(finished, tmp_path):
    recipe = finished.read_record()["recipe"]
    again = train(
        resolve("smoke", {k: v for k, v in recipe.items() if k != "name"}),
        RunOptions(run=str(tmp_path / "again")),
        say=silent,
    )
    for now, then in zip(weights(again), weights(finished), strict=True):
        np.testing.assert_allclose(now, then, rtol=1e-4, atol=1e-5)


def test_another_seed_gives_another_network(finished, tmp_path):
    other = run_tiny(tmp_path, seed=1)
    assert not np.allclose(weights(other)[0], weights(finished)[0])


# Stopping and going on.


class StopAt:
    """In the place of `StopRequest`: a signal that comes after some steps."""

    def __init__(self, steps):
        self._steps, self._asked = steps, 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    @property
    def received(self):
        # Asked once or twice after each step; never before the first.
        self._asked += 1
        return "SIGTERM" if self._asked >= self._steps else None


@pytest.mark.parametrize("step", [7, 20])
def test_a_stopped_run_ends_as_if_it_had_not_been(
    finished, tmp_path, monkeypatch, step
):
    with monkeypatch.context() as patch:
        patch.setattr(loop, "StopRequest", lambda: StopAt(step))
        with pytest.raises(Stopped, match="Continue with: python train.py"):
            run_tiny(tmp_path)
    folder = RunFolder(tmp_path / "run")
    assert folder.read_record()["status"] == "stopped"
    run_tiny(tmp_path)
    assert folder.read_record()["status"] == "finished"
    for now, then in zip(weights(folder), weights(finished), strict=True):
        np.testing.assert_allclose(now, then, rtol=1e-4, atol=1e-5)
    with open(folder.file("metrics.csv"), encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    with open(finished.file("metrics.csv"), encoding="utf-8") as stream:
        expected = list(csv.DictReader(stream))
    for now, then in zip(rows, expected, strict=True):
        for name in ("loss", "accuracy", "validation_accuracy"):
            assert float(now[name]) == pytest.approx(
                float(then[name]), rel=1e-4
            )


def test_a_signal_is_noted_once_and_then_as_before():
    before = signal.getsignal(signal.SIGTERM)
    with loop.StopRequest() as request:
        assert request.received is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert request.received == "SIGTERM"
        assert signal.getsignal(signal.SIGTERM) == before
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_loss_that_is_no_number_stops_with_the_good_weights_named(tmp_path):
    with pytest.raises(NotFinite, match="by step"):
        run_tiny(tmp_path, learning_rate=1e6, average_decay=0.0)
    record = RunFolder(tmp_path / "run").read_record()
    assert record["status"] == "failed"
    assert "by step" in record["metrics"]["reason"]


def test_good_weights_survive_a_bad_end(tmp_path, monkeypatch):
    """The second epoch's loss is spoiled; the first epoch's weights stay."""
    absorb = loop.Training._absorb

    def spoiled(self):
        if self.book.step > 25:
            self._pending = [tf.constant([np.nan, 0.0, 64.0, 0.0])]
        absorb(self)

    monkeypatch.setattr(loop.Training, "_absorb", spoiled)
    with pytest.raises(NotFinite, match=r"of epoch 1, are in .*best\.weights"):
        run_tiny(tmp_path)
    folder = RunFolder(tmp_path / "run")
    assert all(np.all(np.isfinite(w)) for w in weights(folder))


def test_an_unwritable_folder_is_an_error_before_training(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="Cannot write to the run folder"):
        run_tiny(tmp_path, {"run": str(tmp_path / "file" / "run")})


def test_a_batch_larger_than_the_set_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="1300 for 1295 images"):
        run_tiny(tmp_path, batch_size=1300)


def test_an_unknown_model_suggests_the_nearest(tmp_path):
    with pytest.raises(ValueError, match="Did you mean 'LambdaResNet50'"):
        run_tiny(tmp_path, model="LambdaResnet50")


def test_a_wrong_model_argument_is_named(tmp_path):
    with pytest.raises(ValueError, match="scop"):
        run_tiny(tmp_path, model_arguments={"scop": 7})


# Other ways of computing the same.


@pytest.mark.parametrize(
    ("options", "overrides"),
    [
        ({"steps_per_execution": 7}, {}),
        ({"jit_compile": True}, {}),
        ({}, {"accumulation": 2, "batch_size": 32}),
    ],
    ids=["steps_per_execution", "jit_compile", "accumulation"],
)
def test_other_ways_learn_the_same(finished, tmp_path, options, overrides):
    folder = run_tiny(tmp_path, options, **overrides)
    metrics = folder.read_record()["metrics"]
    expected = finished.read_record()["metrics"]
    assert metrics["loss"] == pytest.approx(expected["loss"], rel=0.25)


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_learns(finished, tmp_path, precision):
    folder = run_tiny(tmp_path, precision=precision)
    metrics = folder.read_record()["metrics"]
    expected = finished.read_record()["metrics"]
    assert metrics["loss"] == pytest.approx(expected["loss"], rel=0.25)
    assert all(w.dtype == np.float32 for w in weights(folder))


def test_two_replicas_take_the_steps_of_one_device(two_replicas):
    """Three steps with synchronised statistics, decay, averages and dropout
    off: the weights agree."""
    recipe = resolve("smoke", {"batch_size": 32})
    images = data.load_images(recipe.data)
    results = []
    for strategy in (tf.distribute.get_strategy(), two_replicas):
        tf.keras.utils.set_random_seed(0)
        inputs = parts.Inputs(recipe, images, strategy)
        arguments = parts.network_arguments(recipe, images)
        with strategy.scope():
            model = parts.build_network(recipe.model, arguments, True)
            optimizer = parts.recipe_optimizer(recipe, 40).attach(model)
        take = loop.training_step(
            model, optimizer, strategy, 32, recipe.label_smoothing
        )
        sums = take(iter(inputs.training()), tf.constant(3), tf.constant(0.0))
        before = model.get_weights()
        optimizer.swap_averages()
        results.append([sums.numpy(), *before, *model.get_weights()])
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-3, atol=2e-4)


def test_evaluation_on_two_replicas_counts_each_image_once(two_replicas):
    recipe = resolve("smoke", {"batch_size": 32})
    images = data.load_images(recipe.data)
    inputs = parts.Inputs(recipe, images, two_replicas)
    arguments = parts.network_arguments(recipe, images)
    with two_replicas.scope():
        model = parts.build_network(recipe.model, arguments, True)
    evaluation = Evaluation(model, inputs, two_replicas)
    assert evaluation.figures(images.test)["images"] == 359
    answers = evaluation.answers(images.test)
    assert [len(column) for column in answers] == [359] * 3


def test_a_batch_that_replicas_cannot_share_is_an_error(two_replicas):
    images = data.load_images("digits")
    with pytest.raises(ValueError, match="divisible by the number of replicas"):
        parts.Inputs(resolve("smoke", {"batch_size": 33}), images, two_replicas)


# The loss and the counts.


def test_cross_entropy_with_smoothing(rng):
    logits = rng.normal(size=(7, 5)).astype("float32")
    labels = rng.integers(0, 5, 7)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = [
        -(0.9 * logs[i, label] + 0.1 * logs[i].mean())
        for i, label in enumerate(labels)
    ]
    labels = tf.constant(labels)
    actual = cross_entropy(labels, tf.constant(logits), smoothing=0.1)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    soft = cross_entropy(tf.one_hot(labels, 5), tf.constant(logits), 0.1)
    np.testing.assert_allclose(soft, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("logits", "top", "expected"),
    [
        ([0.0, 2.0, 1.0], 1, 1.0),
        ([0.0, 1.0, 2.0], 1, 0.0),
        ([0.0, 1.0, 2.0], 2, 1.0),
        ([3.0, 1.0, 2.0], 2, 0.0),
        ([1.0, 1.0, 1.0], 1, 0.0),
        ([np.nan, np.nan, np.nan], 2, 0.0),
        ([np.nan, 1.0, 0.0], 1, 0.0),
    ],
)
def test_right_answers(logits, top, expected):
    """The label is 1."""
    assert correct(tf.constant([1]), tf.constant([logits]), top) == expected
    soft = tf.constant([[0.2, 0.7, 0.1]])
    assert correct(soft, tf.constant([logits]), top) == expected


def test_every_builder_can_be_described_as_json():
    recipe = resolve("imagenet_350")
    images = data.load_images("digits")
    arguments = parts.network_arguments(recipe, images)
    assert json.loads(json.dumps(arguments)) == arguments
    assert recipe.model in models.__all__
