"""Runs that are stopped, damaged or extended lose nothing."""

import contextlib
import dataclasses
import shutil

import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.training import RunFolder
from lambdanet_tf.training import Stopped
from lambdanet_tf.training import devices
from lambdanet_tf.training import loop
from lambdanet_tf.training import record
from lambdanet_tf.training import resolve
from tests.support.arrays import assert_same
from tests.support.smoke_run import assert_same_end
from tests.support.smoke_run import metrics_rows
from tests.support.smoke_run import run_smoke
from tests.support.smoke_run import weights

pytestmark = pytest.mark.once


def raising(error):
    """A function that raises an error."""

    def action(*arguments):
        raise error

    return action


@pytest.mark.slow
def test_a_run_killed_before_a_checkpoint_is_due_comes_back(
    finished_run, tmp_path, monkeypatch
):
    """There is a checkpoint before there are weights to lose."""
    with monkeypatch.context() as patch:
        kill = raising(RuntimeError("killed"))
        patch.setattr(RunFolder, "write_metrics", kill)  # after the weights
        with pytest.raises(RuntimeError, match="killed"):
            run_smoke(tmp_path, {"checkpoint_epochs": 5})
    assert RunFolder(tmp_path / "run").exists("best.weights.npz")
    folder = run_smoke(tmp_path, {"checkpoint_epochs": 5})
    assert_same_end(folder, finished_run)


# A lost TPU or worker.


@pytest.mark.parametrize("place", ["data", "step"])
def test_a_lost_device_ends_a_run_that_can_be_resumed(
    tmp_path, monkeypatch, place
):
    lost = tf.errors.UnavailableError(None, None, "Socket closed\nDetails")
    fail = raising(lost)
    if place == "step":
        monkeypatch.setattr(loop, "training_step", lambda *_: fail)
    else:
        monkeypatch.setattr(loop, "InputPipeline", fail)
    with pytest.raises(Stopped, match="lost: Socket closed\nThe same"):
        run_smoke(tmp_path)
    folder = RunFolder(tmp_path / "run")
    assert folder.exists() == (place == "step")
    assert not folder.exists() or folder.read().status == "stopped"
    assert not folder.exists("checkpoints")


COLLECTIVE = "Graph execution error:\n\nCollective ops is aborted by: gone"


@pytest.mark.parametrize(
    ("kind", "message", "workers", "lost"),
    [
        ("UnavailableError", "Socket closed", 0, True),
        ("AbortedError", "", 0, True),
        ("CancelledError", "", 0, False),
        ("CancelledError", "", 2, True),
        ("InternalError", "A kernel failed", 2, False),
        ("InternalError", COLLECTIVE, 2, True),
        ("InternalError", COLLECTIVE, 0, False),
        ("FailedPreconditionError", "the current incarnation is", 2, True),
    ],
)
def test_which_errors_say_that_a_worker_is_lost(
    monkeypatch, kind, message, workers, lost
):
    monkeypatch.setattr(devices, "number_of_workers", lambda: workers)
    error = getattr(tf.errors, kind)(None, None, message)
    assert devices.is_lost(error) == lost


# The end of a run.


@pytest.mark.slow
def test_a_run_without_its_checkpoints_is_not_begun_again(
    finished_run, tmp_path
):
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(finished_run.path, folder.path)
    shutil.rmtree(folder.file("checkpoints"))
    with pytest.raises(ValueError, match="has weights but no checkpoint"):
        run_smoke(tmp_path, epochs=3)
    assert_same(weights(folder), weights(finished_run))
    assert folder.read().status == "finished"


def test_a_failed_start_leaves_the_settings_alone(tmp_path):
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    with pytest.raises(ValueError, match="1300 for 1295 images"):
        run_smoke(tmp_path, {"deterministic": True}, batch_size=1300)
    policy = tf.keras.mixed_precision.global_policy()
    assert policy.name == "mixed_bfloat16"
    assert not devices.config.is_op_determinism_enabled()


# Going on.


@pytest.mark.slow
def test_a_finished_run_can_be_given_more_epochs(finished_run, tmp_path):
    """From its last step on it is a run of so many epochs."""
    shutil.copytree(finished_run.path, tmp_path / "run")
    said = []
    rows = metrics_rows(run_smoke(tmp_path, say=said.append, epochs=3))
    assert "Resuming at step 40." in said
    assert rows[:2] == metrics_rows(finished_run)
    assert rows[2]["step"] == "60"
    schedule = training.recipe_schedule(resolve("smoke", {"epochs": 3}), 20)
    assert float(rows[2]["learning_rate"]) == float(schedule(59))
    with pytest.raises(ValueError, match=r"epochs is 3, not 2.*can grow"):
        run_smoke(tmp_path)


@pytest.mark.parametrize(
    ("was", "message"),
    [
        ({"fingerprints": {}}, None),  # A version that noted none of them.
        ({"fingerprints": {"test": "another"}}, "images of the parts: train"),
        ({"parts": {"train": 3}}, "sizes of the parts: {'train': 3}, not"),
        ({"classes": tuple("123456789a")}, r"gone: \['a'\]; new: \['0'\]"),
        ({"classes": tuple("1023456789")}, "classes .their order."),
    ],
)
def test_a_run_goes_on_with_its_own_images_alone(
    finished_run, tmp_path, was, message
):
    """Else labels are permuted, or it trains on what it was tested on."""
    folder, images = RunFolder(tmp_path), data.load_digits()
    prints = record.fingerprints(images)
    folder.write(dataclasses.replace(finished_run.read(), **was))
    refused = contextlib.nullcontext()
    if message:
        refused = pytest.raises(ValueError, match=message)
    with refused:
        record.check_same_images(folder, images, prints)
