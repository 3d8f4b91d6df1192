"""Runs that are stopped, damaged or extended lose nothing."""

import dataclasses
import os
import shutil
import signal
import tempfile
from unittest import mock

import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.arguments import UserError
from lambdanet_tf.training import RunFolder
from lambdanet_tf.training import devices
from lambdanet_tf.training import loop
from lambdanet_tf.training import record
from lambdanet_tf.training import state
from lambdanet_tf.training import steps
from tests.support.arrays import assert_same
from tests.support.smoke_run import assert_same_end
from tests.support.smoke_run import metrics_rows
from tests.support.smoke_run import run_smoke
from tests.support.smoke_run import weights

pytestmark = pytest.mark.once


@pytest.mark.slow
@pytest.mark.parametrize("step", [20, 40])
def test_a_stop_between_steps_waits_for_one_batch(
    finished_run, tmp_path, monkeypatch, step
):
    """The state of before is saved, and what it had of results is kept."""
    folder, calls = RunFolder(tmp_path / "run"), []
    if step == 40:
        shutil.copytree(finished_run.path, folder.path)

    def stop(batch):
        calls.append(batch)
        os.kill(os.getpid(), signal.SIGTERM)
        return tf.zeros([4]), tf.zeros([64, 10])

    with monkeypatch.context() as patch:
        patch.setattr(steps, "evaluation_step", lambda model: stop)
        with pytest.raises(training.Stopped, match=rf"at step {step}\. Resume"):
            run_smoke(tmp_path)
    assert len(calls) == 1
    assert folder.read().status == "stopped"
    assert folder.exists("metrics.csv") == (step == 40)
    kept = finished_run.read().metrics if step == 40 else {}
    assert folder.read().metrics == kept
    assert_same_end(run_smoke(tmp_path), finished_run)


@pytest.mark.slow
def test_a_run_killed_in_its_first_validation_comes_back(
    finished_run, tmp_path, monkeypatch
):
    """There is a checkpoint before there are weights to lose."""
    with monkeypatch.context() as patch:
        kill = mock.Mock(side_effect=RuntimeError("killed"))
        patch.setattr(RunFolder, "write_metrics", kill)  # after the weights
        with pytest.raises(RuntimeError, match="killed"):
            run_smoke(tmp_path)
    assert RunFolder(tmp_path / "run").exists("best.weights.npz")
    assert_same_end(run_smoke(tmp_path), finished_run)


@pytest.mark.slow
def test_only_the_chief_leaves_files(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "is_chief", lambda: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run_smoke(tmp_path, epochs=1)
    # TensorFlow itself writes what it converts, until the process ends.
    assert set(tmp_path.iterdir()) == set(tmp_path.glob("__autograph*"))


@pytest.mark.parametrize("place", ["InputPipeline", "training_step"])
def test_a_run_that_lost_a_device_can_be_resumed(tmp_path, monkeypatch, place):
    error = tf.errors.UnavailableError(None, None, "Socket closed\nDetails")
    monkeypatch.setattr(loop, place, mock.Mock(side_effect=error))
    with pytest.raises(training.Stopped, match="lost: Socket closed\nThe same"):
        run_smoke(tmp_path)
    folder = RunFolder(tmp_path / "run")
    assert folder.exists() == (place == "training_step")
    assert not folder.exists() or folder.read().status == "stopped"
    assert not folder.exists("checkpoints")


LOST = [("Aborted", 0), ("Unavailable", 0), ("Aborted", 2), ("Cancelled", 2)]
LOST += [("Internal", 2), ("FailedPrecondition", 2), ("DeadlineExceeded", 2)]
OTHER = [("Cancelled", 0), ("Internal", 0), ("InvalidArgument", 2)]
OTHER += [("ResourceExhausted", 2)]


@pytest.mark.parametrize(("kind", "workers"), LOST + OTHER)
def test_which_errors_say_that_a_worker_is_lost(monkeypatch, kind, workers):
    monkeypatch.setattr(devices, "number_of_workers", lambda: workers)
    error = getattr(tf.errors, f"{kind}Error")(None, None, "gone")
    is_lost = (kind, workers) in LOST
    raised = training.Stopped if is_lost else type(error)
    with pytest.raises(raised), devices.lost_device_stops():
        raise error


@pytest.mark.slow
def test_a_run_without_checkpoints_is_not_begun_again(finished_run, tmp_path):
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(finished_run.path, folder.path)
    shutil.rmtree(folder.file("checkpoints"))
    with pytest.raises(ValueError, match="has weights, but no checkpoint"):
        run_smoke(tmp_path, epochs=3)
    assert_same(weights(folder), weights(finished_run))
    assert folder.read().status == "finished"


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_read_is_named(finished_run, tmp_path):
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(finished_run.path, folder.path)
    newest = state.newest_checkpoint(folder.file("checkpoints"))
    os.truncate(f"{newest}.data-00000-of-00001", 100)
    with pytest.raises(UserError, match=f"{newest} cannot be read"):
        run_smoke(tmp_path, epochs=3)
    assert_same(weights(folder), weights(finished_run))


@pytest.mark.slow
def test_a_finished_run_can_be_given_more_epochs(finished_run, tmp_path):
    """From its last step on it is a run of so many epochs."""
    shutil.copytree(finished_run.path, tmp_path / "run")
    said = []
    rows = metrics_rows(run_smoke(tmp_path, say=said.append, epochs=3))
    assert "Resuming at step 40." in said
    assert rows[:2] == metrics_rows(finished_run)
    assert rows[2]["step"] == "60"
    recipe = training.resolve("smoke", {"epochs": 3})
    schedule = training.recipe_schedule(recipe, 20)
    assert float(rows[2]["learning_rate"]) == float(schedule(59))
    with pytest.raises(ValueError, match=r"epochs is 3, not 2.*can grow"):
        run_smoke(tmp_path)


@pytest.mark.parametrize(
    ("was", "message"),
    [
        (
            {"splits": {"train": 3}},
            "other numbers of images: {'train': 3}, not",
        ),
        ({"classes": tuple("1023456789")}, "other classes: .'1', '0',"),
    ],
)
def test_a_run_goes_on_with_its_own_images_alone(finished_run, was, message):
    """Else labels are permuted, or it trains on what it was tested on."""
    images, run = data.load_digits(), finished_run.read()
    record.check_same_images(run, images)
    with pytest.raises(ValueError, match=f"{message}.* may be test images"):
        record.check_same_images(dataclasses.replace(run, **was), images)


def test_a_set_may_be_moved(finished_run, tmp_path):
    folder = RunFolder(tmp_path)
    recipe = training.resolve("smoke", {"data": "folder:a"})
    run = dataclasses.replace(finished_run.read(), recipe=recipe.to_dict())
    folder.write(run)
    moved = dataclasses.replace(recipe, data="folder:b/a/")
    assert record.checkpoint_to_resume(folder, moved) == ""
    another = dataclasses.replace(recipe, data="records:a")
    with pytest.raises(ValueError, match="another recipe: data is 'folder"):
        record.checkpoint_to_resume(folder, another)
