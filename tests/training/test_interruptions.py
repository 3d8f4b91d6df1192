"""Runs that are stopped, damaged or extended lose nothing."""

import contextlib
import dataclasses
import os
import random
import shutil
import signal
import tempfile
import time

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.training import RunFolder
from lambdanet_tf.training import Stopped
from lambdanet_tf.training import devices
from lambdanet_tf.training import loop
from lambdanet_tf.training import pictures
from lambdanet_tf.training import record
from lambdanet_tf.training import resolve
from lambdanet_tf.training import steps
from tests.support.arrays import assert_same
from tests.support.image_sets import write_folder
from tests.support.smoke_run import assert_same_end
from tests.support.smoke_run import metrics_rows
from tests.support.smoke_run import run_smoke
from tests.support.smoke_run import weights

pytestmark = pytest.mark.once


@pytest.fixture
def copied_run(finished_run, tmp_path):
    """A copy of the finished run, which may be written to."""
    shutil.copytree(finished_run.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


class Sigterm:
    """Sends SIGTERM at its n-th call."""

    def __init__(self, number):
        self._number, self.calls = number, 0

    def __call__(self):
        self.calls += 1
        if self.calls == self._number:
            os.kill(os.getpid(), signal.SIGTERM)


def preceded(action, function):
    """A function that does something else first."""

    def call(*arguments):
        action()
        return function(*arguments)

    return call


def precede_steps(patch, place, name, action):
    """The same for what a function that makes steps returns."""
    make = getattr(place, name)
    patch.setattr(place, name, lambda *a: preceded(action, make(*a)))


# Signals.


@pytest.mark.slow
@pytest.mark.representatives(2)
@pytest.mark.parametrize("phase", ["validation", "report", "test"])
def test_a_stop_between_steps_waits_for_one_batch(
    finished_run, tmp_path, monkeypatch, phase
):
    """The state of before is saved, and what it had of results is kept."""
    folder, step = RunFolder(tmp_path / "run"), 20
    if phase != "validation":
        shutil.copytree(finished_run.path, folder.path)
        step = 40
    stop = Sigterm(1 if phase == "report" else 2)
    with monkeypatch.context() as patch:
        if phase == "report":
            curves = preceded(stop, pictures.learning_curves)
            patch.setattr(pictures, "learning_curves", curves)
        else:
            precede_steps(patch, steps, "evaluation_step", stop)
        with pytest.raises(Stopped, match=rf"at step {step}\. Resume with"):
            run_smoke(tmp_path, draws=phase == "report")
    assert stop.calls == (1 if phase == "report" else 2)
    assert folder.read().status == "stopped"
    if phase == "validation":
        assert folder.exists("checkpoints/ckpt-20-0.index")
        assert not folder.exists("metrics.csv")
    else:
        assert folder.read().metrics == finished_run.read().metrics
    assert_same_end(run_smoke(tmp_path), finished_run)
    assert folder.read().status == "finished"


@pytest.mark.thorough
def test_rates_are_true_with_checkpoints_and_after_a_stop(
    finished_run, tmp_path, monkeypatch
):
    """Steps of 20 ms, 64 images each: at most 3,200 images a second.

    Stopped where a strategy takes the signals, as one of several workers does.
    """

    def take_signals():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def wait():
        time.sleep(0.02)

    handler = signal.getsignal(signal.SIGTERM)
    precede_steps(monkeypatch, loop, "training_step", wait)
    with monkeypatch.context() as patch:
        create = preceded(take_signals, loop.create_strategy)
        patch.setattr(loop, "create_strategy", create)
        precede_steps(patch, loop, "training_step", Sigterm(10))
        with pytest.raises(Stopped, match="at step 10"):
            run_smoke(tmp_path)
    assert signal.getsignal(signal.SIGTERM) == handler
    folder = run_smoke(tmp_path, {"checkpoint_steps": 4})
    rates = [float(row["images_per_second"]) for row in metrics_rows(folder)]
    assert len(rates) == 2
    assert max(*rates, folder.read().metrics["images_per_second"]) < 3_200
    assert_same_end(folder, finished_run)


@pytest.mark.thorough
def test_rates_leave_out_what_a_callback_takes(tmp_path, monkeypatch):
    """By a clock that jumps a million seconds at the end of each epoch."""
    clock, jumps = time.perf_counter, []
    monkeypatch.setattr("time.perf_counter", lambda: clock() + sum(jumps))
    folder = run_smoke(tmp_path, on_epoch=lambda *_: jumps.append(1e6))
    assert len(jumps) == 2
    rates = [float(row["images_per_second"]) for row in metrics_rows(folder)]
    metrics = folder.read().metrics
    assert min(*rates, metrics["images_per_second"]) > 0.01
    assert metrics["seconds"] > sum(jumps)


class KilledError(Exception):
    pass


@pytest.mark.slow
def test_a_run_killed_before_a_checkpoint_is_due_comes_back(
    finished_run, tmp_path, monkeypatch
):
    """There is a checkpoint before there are weights to lose."""

    def kill(folder, *arguments):
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_metrics", kill)  # after the weights
        with pytest.raises(KilledError):
            run_smoke(tmp_path, {"checkpoint_epochs": 5})
    assert RunFolder(tmp_path / "run").exists("best.weights.npz")
    folder = run_smoke(tmp_path, {"checkpoint_epochs": 5})
    assert_same_end(folder, finished_run)


def test_a_signal_is_noted_once_and_then_as_before():
    before = signal.getsignal(signal.SIGTERM)
    with devices.StopRequest() as request:
        request.at_once = False
        assert request.received is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert request.received == "SIGTERM"
        assert signal.getsignal(signal.SIGTERM) == before
    assert signal.getsignal(signal.SIGTERM) == before


# A lost TPU or worker.


def raising(error):
    """An action: it raises an error."""

    def action():
        raise error

    return action


@pytest.mark.parametrize("place", ["data", "step"])
def test_a_lost_device_ends_a_run_that_can_be_resumed(
    tmp_path, monkeypatch, place
):
    lost = tf.errors.UnavailableError(None, None, "Socket closed\nDetails")
    if place == "step":
        precede_steps(monkeypatch, loop, "training_step", raising(lost))
    else:
        pipeline = preceded(raising(lost), loop.InputPipeline)
        monkeypatch.setattr(loop, "InputPipeline", pipeline)
    with pytest.raises(Stopped, match="lost: Socket closed\nThe same"):
        run_smoke(tmp_path)
    folder = RunFolder(tmp_path / "run")
    assert folder.exists() == (place == "step")
    assert not folder.exists() or folder.read().status == "stopped"
    assert not folder.exists("checkpoints")


@pytest.mark.thorough
def test_a_fault_is_not_taken_for_a_lost_device(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "number_of_workers", lambda: 2)
    fault = tf.errors.InternalError(None, None, "A kernel failed")
    precede_steps(monkeypatch, loop, "training_step", raising(fault))
    with pytest.raises(tf.errors.InternalError):
        run_smoke(tmp_path, {"strategy": "default"})
    assert RunFolder(tmp_path / "run").read().status == "running"


COLLECTIVE = "Graph execution error:\n\nCollective ops is aborted by: gone"


@pytest.mark.parametrize(
    ("kind", "message", "workers", "lost"),
    [
        ("UnavailableError", "Socket closed", 0, True),
        ("UnavailableError", COLLECTIVE, 2, True),
        ("AbortedError", "", 0, True),
        ("CancelledError", "", 0, False),
        ("CancelledError", "", 2, True),
        ("DeadlineExceededError", "", 2, True),
        ("InternalError", "A kernel failed", 2, False),
        ("InternalError", COLLECTIVE, 2, True),
        ("InternalError", COLLECTIVE, 0, False),
        ("UnknownError", "", 2, False),
        ("FailedPreconditionError", "", 2, False),
        ("FailedPreconditionError", "the current incarnation is", 2, True),
        ("InvalidArgumentError", "shapes", 2, False),
        ("NotFoundError", "a file", 2, False),
        ("ResourceExhaustedError", "", 2, False),
    ],
)
def test_which_errors_say_that_a_worker_is_lost(
    monkeypatch, kind, message, workers, lost
):
    monkeypatch.setattr(devices, "number_of_workers", lambda: workers)
    error = getattr(tf.errors, kind)(None, None, message)
    assert devices.is_lost(error) == lost


@pytest.mark.slow
def test_only_the_chief_leaves_files(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "is_chief", lambda: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = run_smoke(tmp_path, epochs=1)
    assert not tf.io.gfile.exists(folder.path)
    # TensorFlow itself writes what it converts, until the process ends.
    assert set(tmp_path.iterdir()) == set(tmp_path.glob("__autograph*"))


# The end of a run.


@pytest.mark.thorough
def test_broken_pictures_cost_the_pictures_alone(
    copied_run, tmp_path, monkeypatch
):
    def broken(*arguments):
        raise ImportError("numpy.core.multiarray failed to import")

    monkeypatch.setattr(pictures, "learning_curves", broken)
    for name in ("report.md", "curves.png", "examples.npz"):
        os.remove(copied_run.file(name))
    said = []
    run_smoke(tmp_path, say=said.append, draws=True)
    assert "The pictures could not be drawn: numpy.core" in "\n".join(said)
    assert copied_run.read().status == "finished"
    assert copied_run.read().read_examples() is not None
    assert copied_run.exists("report.md")
    assert not copied_run.exists("curves.png")


@pytest.mark.slow
def test_a_run_without_its_checkpoints_is_not_begun_again(copied_run, tmp_path):
    shutil.rmtree(copied_run.file("checkpoints"))
    before = weights(copied_run)
    with pytest.raises(ValueError, match="has weights but no checkpoint"):
        run_smoke(tmp_path, epochs=3)
    assert_same(weights(copied_run), before)
    assert copied_run.read().status == "finished"


def seed_generators():
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002


def random_numbers():
    return random.random(), np.random.uniform()  # noqa: NPY002


@contextlib.contextmanager
def settings_left_alone():
    """The settings of the caller are to be as they were."""
    seed_generators()
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    yield
    drawn = random_numbers()
    seed_generators()
    assert drawn == random_numbers()
    policy = tf.keras.mixed_precision.global_policy()
    assert policy.name == "mixed_bfloat16"
    assert not devices.config.is_op_determinism_enabled()


@pytest.mark.slow
def test_the_best_weights_are_those_of_the_checkpoint(copied_run, tmp_path):
    """Whatever a process that was killed wrote after it."""
    before = weights(copied_run)
    os.remove(copied_run.file("best.weights.npz"))
    with settings_left_alone():
        run_smoke(tmp_path, {"deterministic": True})
    assert_same(weights(copied_run), before)


def test_a_failed_start_leaves_the_settings_alone(tmp_path):
    with (
        settings_left_alone(),
        pytest.raises(ValueError, match="1300 for 1295 images"),
    ):
        run_smoke(tmp_path, {"deterministic": True}, batch_size=1300)


# Going on.


@pytest.mark.slow
def test_a_finished_run_can_be_given_more_epochs(finished_run, tmp_path):
    """From its last step on it is a run of so many epochs."""
    shutil.copytree(finished_run.path, tmp_path / "run")
    said = []
    folder = run_smoke(tmp_path, say=said.append, epochs=3)
    text = "\n".join(said)
    assert "with 3 epochs in place of 2: from here on the learning rate" in text
    assert "Resuming at step 40." in text
    rows = metrics_rows(folder)
    assert rows[:2] == metrics_rows(finished_run)
    assert rows[2]["step"] == "60"
    schedule = training.recipe_schedule(resolve("smoke", {"epochs": 3}), 20)
    assert float(rows[2]["learning_rate"]) == float(schedule(59))
    assert folder.read().recipe["epochs"] == 3
    with pytest.raises(ValueError, match=r"epochs is 3, not 2.*can grow"):
        run_smoke(tmp_path)


@pytest.mark.parametrize("changed", [[], ["test"], ["train", "validation"]])
def test_a_run_goes_on_with_its_own_images_alone(
    finished_run, tmp_path, changed
):
    """Else it might train on what it was tested on."""
    folder, run = RunFolder(tmp_path), finished_run.read()
    images = data.load_digits()
    prints = record.fingerprints(images)
    assert list(prints) == ["train", "validation", "test"]
    others = {**run.fingerprints, **dict.fromkeys(changed, "another")}
    folder.write(dataclasses.replace(run, fingerprints=others))
    if changed:
        what = f"images of the parts: {', '.join(changed)}. Resume it with"
        with pytest.raises(ValueError, match=what):
            record.check_same_images(folder, images, prints)
    else:
        record.check_same_images(folder, images, prints)
    # A version that noted none of them could not tell.
    folder.write(dataclasses.replace(run, fingerprints={}))
    record.check_same_images(folder, images, prints)


@pytest.mark.slow
def test_a_run_goes_on_with_its_own_classes_alone(tmp_path):
    """A class that is renamed would permute the labels."""
    images = tmp_path / "images"
    write_folder(images, classes=("apple", "pear"), number=20)

    def interrupt(model, row):
        raise Stopped

    changes = {
        "data": f"folder:{images}",
        "batch_size": 8,
        "model_arguments": {"stages": ["C"], "widths": [4], "strides": [1]},
    }
    with pytest.raises(Stopped):
        run_smoke(tmp_path, on_epoch=interrupt, **changes)
    before = (tmp_path / "run" / "run.json").read_text()
    (images / "apple").rename(images / "zapple")
    with pytest.raises(ValueError, match=r"gone: \['apple'\]; new: \['zap"):
        run_smoke(tmp_path, **changes)
    (images / "zapple").rename(images / "apple")
    (images / "pear" / "0.png").rename(tmp_path / "0.png")
    with pytest.raises(ValueError, match="sizes of the parts: {'train': 2.*},"):
        run_smoke(tmp_path, **changes)
    assert (tmp_path / "run" / "run.json").read_text() == before
    (tmp_path / "0.png").rename(images / "pear" / "0.png")
    folder = run_smoke(tmp_path, **changes)
    assert folder.read().classes == ("apple", "pear")
