"""Runs that are stopped, killed, damaged or extended lose nothing."""

import dataclasses
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
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
from lambdanet_tf.training import steps
from lambdanet_tf.training.state import newest_checkpoint
from tests.support.arrays import assert_same
from tests.support.smoke_run import assert_same_end
from tests.support.smoke_run import metrics_rows
from tests.support.smoke_run import run_smoke
from tests.support.smoke_run import weights

pytestmark = pytest.mark.slow


def stop(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_stopped_run_ends_as_if_it_had_not_been(
    finished_run, tmp_path, monkeypatch
):
    """Stopped by a real signal; resumed with several steps in a call.

    A signal after the result is written stops nothing.
    """
    trained = []

    def interrupt(model, row):
        trained.extend(model.get_weights())
        stop()

    before = signal.getsignal(signal.SIGTERM)
    tmp_path = tmp_path / "my runs"
    message = f"at step 20. To resume .* --run-dir '{tmp_path}"
    with pytest.raises(training.Stopped, match=message):
        run_smoke(tmp_path, on_epoch=interrupt)
    assert signal.getsignal(signal.SIGTERM) == before
    folder = RunFolder(tmp_path / "run")
    assert folder.read().status == "stopped"
    assert np.any(weights(folder)[0] != trained[0])  # averages
    with pytest.raises(ValueError, match="is 'stopped'. Wait for it"):
        folder.read().require_finished()
    write = RunFolder.write

    def write_and_stop(folder, run):
        write(folder, run)
        if run.status == "finished":
            stop()

    monkeypatch.setattr(RunFolder, "write", write_and_stop)
    run_smoke(tmp_path, {"steps_per_execution": 7, "checkpoint_steps": 15})
    assert_same_end(folder, finished_run)


@pytest.mark.once
def test_a_finished_run_is_not_stopped_as_it_is_freed(tmp_path, monkeypatch):
    received = []
    run = type("Run", (loop.ActiveRun,), {"__del__": stop})
    monkeypatch.setattr(loop, "ActiveRun", run)
    former = signal.signal(signal.SIGTERM, lambda *_: received.append(run))
    run_smoke(tmp_path, epochs=1)
    signal.signal(signal.SIGTERM, former)
    assert not received


@pytest.mark.once
def test_a_stop_before_the_first_step_is_obeyed_at_once(tmp_path, monkeypatch):
    """Also in a download, which swallows exceptions."""

    def work(*arguments, **options):
        try:
            stop()
            time.sleep(0.1)
        except Exception as error:
            raise ValueError("Cannot download") from error
        raise AssertionError("the signal was only noted")

    for place, name in ((data, "load_images"), (loop, "training_step")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, work)
            with pytest.raises(training.Stopped):
                run_smoke(tmp_path / name)


@pytest.mark.once
def test_an_end_by_any_error_is_recorded(tmp_path, monkeypatch):
    """Also while a stopped run is saved."""
    save = mock.Mock(side_effect=[None, KeyboardInterrupt("no space")])
    monkeypatch.setattr(loop.TrainState, "save", save)
    with pytest.raises(KeyboardInterrupt, match="no space"):
        run_smoke(tmp_path, on_epoch=stop)
    assert RunFolder(tmp_path / "run").read().status == "stopped"


@pytest.mark.once
def test_only_the_chief_leaves_files(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "is_chief", lambda: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(loop, "write_report", None)  # It is not called.
    run_smoke(tmp_path, epochs=1)
    # TensorFlow itself writes what it converts, until the process ends.
    assert set(tmp_path.iterdir()) == set(tmp_path.glob("__autograph*"))


LOST = {0: "Aborted Unavailable"}
LOST[2] = "Aborted Cancelled Internal FailedPrecondition DeadlineExceeded"
OTHER = {0: "Cancelled Internal", 2: "InvalidArgument ResourceExhausted"}


@pytest.mark.parametrize("workers", LOST)
def test_which_errors_say_that_a_worker_is_lost(monkeypatch, workers):
    """Also as the cause of what is said of a file or a TPU."""
    monkeypatch.setattr(devices, "number_of_workers", lambda: workers)
    for kind in f"{LOST[workers]} {OTHER[workers]}".split():
        error = getattr(tf.errors, f"{kind}Error")(None, None, "gone")
        for raised, cause in ((error, None), (UserError("gone"), error)):
            is_lost = kind in LOST[workers]
            seen = training.Stopped if is_lost else type(raised)
            with pytest.raises(seen, match="gone"), devices.lost_device_stops():
                raise raised from cause


def test_a_finished_run_that_goes_on_keeps_what_it_has(
    finished_run, tmp_path, monkeypatch
):
    """Stopped in its test, given more epochs, and without its checkpoint."""
    folder, calls, said = RunFolder(tmp_path / "run"), [], []
    shutil.copytree(finished_run.path, folder.path)

    def evaluate(batch):
        calls.append(batch)
        stop()
        return tf.zeros([4]), tf.zeros([64, 10])

    with monkeypatch.context() as patch:
        patch.setattr(steps, "evaluation_step", lambda model: evaluate)
        with pytest.raises(training.Stopped, match=r"at step 40\. To resume"):
            run_smoke(tmp_path)
    assert len(calls) == 1
    assert folder.read().status == "stopped"
    assert folder.read().metrics == finished_run.read().metrics
    os.remove(folder.file("best.weights.npz"))  # The checkpoint has them.
    assert_same_end(run_smoke(tmp_path), finished_run)

    # From its last step on it is a run of so many epochs.
    rows = metrics_rows(run_smoke(tmp_path, say=said.append, epochs=3))
    assert "Resuming at step 40." in said
    assert rows[:2] == metrics_rows(finished_run)
    assert rows[2]["step"] == "60"
    recipe = training.resolve("smoke", {"epochs": 3})
    schedule = training.recipe_schedule(recipe, 20)
    assert float(rows[2]["learning_rate"]) == float(schedule(59))
    with pytest.raises(ValueError, match=r"epochs is 3, not 2.*only add"):
        run_smoke(tmp_path)

    best = weights(folder)
    shutil.rmtree(folder.file("checkpoints"))
    with pytest.raises(UserError, match="weights, but has no checkpoint"):
        run_smoke(tmp_path, epochs=4)
    assert_same(weights(folder), best)


def test_a_run_goes_on_with_its_own_images_and_keras(finished_run, tmp_path):
    """Else it trains on what it was tested on; but a set may be moved."""
    images, run = data.load_digits(), finished_run.read()
    folder = RunFolder(tmp_path)
    options = training.RunOptions(run_dir=folder.path)
    recipe = training.resolve("smoke", {"data": "folder:a"})
    goes_on = functools.partial(record.run_record, recipe, options, images)
    assert goes_on(run).metrics == run.metrics
    for was in ({"splits": {"train": 3}}, {"classes": (*"1023456789",)}):
        with pytest.raises(ValueError, match="began with other images"):
            goes_on(dataclasses.replace(run, **was))
    run = dataclasses.replace(run, recipe=recipe.to_dict())
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


# What `train.py` does, without pictures, which would take as long as a run.
PROGRAM = """import sys
sys.modules["matplotlib"] = None
from lambdanet_tf.cli import start
sys.exit(start("train"))"""


@pytest.fixture
def start():
    """Starts runs in a folder, which do not outlive the test."""
    processes = []

    def start_one(run, flags, **environment):
        words = [sys.executable, "-c", PROGRAM, "--recipe=smoke"]
        words.append(f"--run-dir={run}")
        environment = {**os.environ, **environment}
        words += flags.split()
        processes.append(subprocess.Popen(words, env=environment))
        return processes[-1]

    yield start_one
    for process in processes:
        process.kill()
        process.wait()


def step_of(folder):
    """The step of the newest checkpoint, or -1."""
    path = newest_checkpoint(str(folder / "checkpoints"))
    if not path:
        return -1
    reader = tf.train.load_checkpoint(path)
    text = reader.get_tensor("progress/.ATTRIBUTES/VARIABLE_VALUE")
    return json.loads(text)["step"]


def wait_for(process, run, step):
    """Waits until a running process has saved a step."""
    for _ in range(8_000):
        if step_of(run) >= step:
            return
        assert process.poll() is None
        time.sleep(0.05)
    pytest.fail(f"no step {step}")


def figures(folder):
    """The lines of metrics.csv without what depends on the clock."""
    rows = metrics_rows(RunFolder(folder))
    for row in rows:
        del row["seconds"], row["images_per_second"]
    return rows


def test_stopped_and_killed_runs_end_with_the_same_bits(start, tmp_path, rng):
    """One in peace; one gets SIGTERM, SIGKILL as it saves, and one later.

    SIGTERM comes before or while TensorFlow is imported, and in the run.
    """
    flags = "--epochs 3 --checkpoint-steps 7 --deterministic --dropout-rate 0.3"
    peace, war = tmp_path / "peace", tmp_path / "war"
    peaceful = start(peace, flags)
    for moment in (rng.uniform(0.3, 4), None):
        process = start(war, flags)
        if moment:
            time.sleep(moment)
        else:
            wait_for(process, war, 7)
        process.terminate()
        assert process.wait(900) == 75
    for pause in (0.0, 0.2):
        process = start(war, flags)
        wait_for(process, war, step_of(war) + 1)
        time.sleep(pause)
        process.kill()
        assert process.wait(900) == -signal.SIGKILL
        assert RunFolder(war).read().status == "running"
    assert start(war, flags).wait(900) == peaceful.wait(900) == 0
    assert figures(war) == figures(peace)
    assert_same(weights(RunFolder(war)), weights(RunFolder(peace)))


@pytest.mark.once
def test_workers_stop_together_and_come_back_to_the_result(
    start, tmp_path, rng, capfd
):
    """A signal to one stops all; when one is killed, the others end with 75."""
    run = tmp_path / "run"
    often = "--checkpoint-steps 1"

    def start_workers(more=""):
        flags = f"--epochs 6 --batch-size 48 --learning-rate 2 {more}"
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        hosts = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
        for each in sockets:
            each.close()
        tasks = [{"type": "worker", "index": i} for i in range(3)]
        cluster = {"worker": hosts}
        texts = [json.dumps({"cluster": cluster, "task": x}) for x in tasks]
        return [start(run, flags, TF_CONFIG=text) for text in texts]

    workers = start_workers(often)
    wait_for(workers[0], run, 1)
    workers[1].terminate()
    assert [worker.wait(900) for worker in workers] == [75] * 3
    assert "Another worker, the chief, prints" in capfd.readouterr().out
    assert RunFolder(run).read().status == "stopped"

    workers = start_workers(often)
    wait_for(workers[0], run, step_of(run) + 8)
    time.sleep(rng.uniform(0, 1))  # A checkpoint is written at every step.
    workers[-1].kill()
    assert [worker.wait(900) for worker in workers[:-1]] == [75] * 2
    lost = "a machine or device was lost: "
    assert capfd.readouterr().err.count(lost) == 2
    assert RunFolder(run).read().status == "stopped"

    workers = start_workers()
    assert [worker.wait(900) for worker in workers] == [0] * 3
    metrics = RunFolder(run).read().metrics
    assert metrics["test_images"] == 359
    assert metrics["device"] == "3 CPUs on 3 machines"
    assert metrics["accuracy"] > 0.9
    wrong = (run / "wrong_images.csv").read_text().count("\n") - 1
    assert wrong == round(359 * (1 - metrics["accuracy"]))  # Of all workers.
    assert [row["epoch"] for row in figures(run)] == [*"123456"]
