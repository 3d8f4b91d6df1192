"""Runs that are stopped, damaged or extended lose nothing."""

import dataclasses
import os
import shutil
import signal
import tempfile
import time
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.arguments import UserError
from lambdanet_tf.environment import KERAS_3
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

pytestmark = [pytest.mark.once, pytest.mark.slow]


def stop(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_stopped_run_ends_as_if_it_had_not_been(finished_run, tmp_path):
    """Stopped by a real signal; resumed with several steps in a call."""
    trained = []

    def interrupt(model, row):
        trained.extend(model.get_weights())
        stop()

    before = signal.getsignal(signal.SIGTERM)
    tmp_path = tmp_path / "my runs"
    message = f"at step 20. The same command .* --run-dir '{tmp_path}"
    with pytest.raises(training.Stopped, match=message):
        run_smoke(tmp_path, on_epoch=interrupt)
    assert signal.getsignal(signal.SIGTERM) == before
    folder = RunFolder(tmp_path / "run")
    assert folder.read().status == "stopped"
    assert np.any(weights(folder)[0] != trained[0])  # averages
    with pytest.raises(ValueError, match="is 'stopped'. Let it finish"):
        folder.read().require_finished()
    run_smoke(tmp_path, {"steps_per_execution": 7, "checkpoint_steps": 15})
    assert_same_end(folder, finished_run)


def test_a_stop_between_steps_waits_for_one_batch(
    finished_run, tmp_path, monkeypatch
):
    """The state of before is saved, and what it had of results is kept."""
    folder, calls = RunFolder(tmp_path / "run"), []
    shutil.copytree(finished_run.path, folder.path)

    def evaluate(batch):
        calls.append(batch)
        stop()
        return tf.zeros([4]), tf.zeros([64, 10])

    with monkeypatch.context() as patch:
        patch.setattr(steps, "evaluation_step", lambda model: evaluate)
        with pytest.raises(training.Stopped, match=r"at step 40\. The same"):
            run_smoke(tmp_path)
    assert len(calls) == 1
    assert folder.read().status == "stopped"
    assert folder.read().metrics == finished_run.read().metrics
    assert_same_end(run_smoke(tmp_path), finished_run)


PLACES = {
    "load_images": data,  # As a download, which swallows exceptions.
    "recipe_network": loop.network,
    "training_step": loop,
}


@pytest.mark.parametrize("name", PLACES)
def test_a_stop_before_the_first_step_is_obeyed_at_once(
    tmp_path, monkeypatch, name
):
    def work(*arguments):
        try:
            stop()
            time.sleep(0.1)
        except Exception as error:
            raise ValueError("Cannot download") from error
        raise AssertionError("the signal was only noted")

    monkeypatch.setattr(PLACES[name], name, work)
    with pytest.raises(training.Stopped):
        run_smoke(tmp_path)


def test_a_stop_after_the_result_is_none(tmp_path, monkeypatch):
    write = RunFolder.write

    def write_and_stop(folder, run):
        write(folder, run)
        if run.status == "finished":
            stop()

    monkeypatch.setattr(RunFolder, "write", write_and_stop)
    assert run_smoke(tmp_path, epochs=1).read().status == "finished"


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_end_by_any_error_is_recorded(tmp_path, monkeypatch, error):
    """Also while a stopped run is saved."""
    save = mock.Mock(side_effect=[None, error("no space")])
    monkeypatch.setattr(loop.TrainState, "save", save)
    with pytest.raises(error, match="no space"):
        run_smoke(tmp_path, on_epoch=stop)
    assert RunFolder(tmp_path / "run").read().status == "stopped"


def test_only_the_chief_leaves_files(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "is_chief", lambda: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(loop, "write_report", None)  # It is not called.
    run_smoke(tmp_path, epochs=1)
    # TensorFlow itself writes what it converts, until the process ends.
    assert set(tmp_path.iterdir()) == set(tmp_path.glob("__autograph*"))


@pytest.mark.parametrize("place", ["InputPipeline", "training_step"])
def test_a_run_that_lost_a_device_can_be_resumed(tmp_path, monkeypatch, place):
    error = tf.errors.UnavailableError(
        None, None, "{{node x}} Socket closed\nDetails"
    )
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


@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.parametrize(("kind", "workers"), LOST + OTHER)
def test_which_errors_say_that_a_worker_is_lost(
    monkeypatch, kind, workers, is_wrapped
):
    """Also as the cause of what is said of a file or a TPU."""
    monkeypatch.setattr(devices, "number_of_workers", lambda: workers)
    error, cause = getattr(tf.errors, f"{kind}Error")(None, None, "gone"), None
    if is_wrapped:
        error, cause = UserError("Cannot write x: gone"), error
    is_lost = (kind, workers) in LOST
    raised = training.Stopped if is_lost else type(error)
    with pytest.raises(raised, match="gone"), devices.lost_device_stops():
        raise error from cause


def test_what_cannot_be_resumed_is_named_and_kept(finished_run, tmp_path):
    """A checkpoint that cannot be read, and one that is not there."""
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(finished_run.path, folder.path)
    newest = state.newest_checkpoint(folder.file("checkpoints"))
    os.truncate(f"{newest}.data-00000-of-00001", 100)
    with pytest.raises(UserError, match=f"{newest} cannot be read"):
        run_smoke(tmp_path, epochs=3)
    shutil.rmtree(folder.file("checkpoints"))
    with pytest.raises(UserError, match="weights, but no checkpoint"):
        run_smoke(tmp_path, epochs=3)
    assert_same(weights(folder), weights(finished_run))


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
    "was", [{"splits": {"train": 3}}, {"classes": tuple("1023456789")}]
)
def test_a_run_goes_on_with_its_own_images_alone(finished_run, was):
    """Else labels are permuted, or it trains on what it was tested on."""
    images, run = data.load_digits(), finished_run.read()
    record.check_same_images(run, images)
    with pytest.raises(ValueError, match="begun with other images"):
        record.check_same_images(dataclasses.replace(run, **was), images)


def test_which_runs_go_on_elsewhere(finished_run, tmp_path):
    """A set may be moved; the other Keras resumes no run."""
    folder = RunFolder(tmp_path)
    options = training.RunOptions(run_dir=folder.path)
    recipe = training.resolve("smoke", {"data": "folder:a"})
    run = dataclasses.replace(finished_run.read(), recipe=recipe.to_dict())
    folder.write(run)
    moved = dataclasses.replace(recipe, data="folder:b/a/")
    assert record.former_run(moved, options) == (folder.read(), "")
    another = dataclasses.replace(recipe, data="records:a")
    with pytest.raises(ValueError, match="another recipe: data is 'folder"):
        record.former_run(another, options)
    versions = {"keras": "tf_keras 2.0" if KERAS_3 else "keras 3.0"}
    folder.write(dataclasses.replace(run, versions=versions))
    with pytest.raises(ValueError, match="TF_USE_LEGACY_KERAS=[01]"):
        record.former_run(recipe, options)


def test_a_loss_that_is_not_finite_names_the_good_weights(tmp_path):
    """The weights are spoiled after the first epoch; its best ones stay."""

    def spoil(model, row):
        model.set_weights([np.nan * weight for weight in model.get_weights()])

    with pytest.raises(training.NotFinite, match="of epoch 1, are in .*best"):
        run_smoke(tmp_path, on_epoch=spoil)
    folder = RunFolder(tmp_path / "run")
    assert folder.read().status == "failed"
    assert all(np.all(np.isfinite(w)) for w in weights(folder))
