"""Run folders and checkpoints: nothing half-written, nothing lost."""

import dataclasses
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import environment
from lambdanet_tf import models
from lambdanet_tf.arguments import UserError
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.runs import Run
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.runs import newest_finished_run
from tests.support.arrays import assert_same

ARGUMENTS = {
    "input_shape": [8, 8, 1],
    "classes": 3,
    "stages": ["L"],
    "widths": [8],
    "strides": [1],
}


NOW = time.struct_time((2031, 2, 3, 4, 5, 6, 0, 0, 0))


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "runs" / "run")


def claim(folder):
    """Claims a folder and gives it back."""
    with folder.claim():
        pass


def test_folders_are_named_by_time(tmp_path):
    paths = [RunFolder.new(tmp_path, NOW).path for _ in range(3)]
    name = f"{tmp_path}/20310203-040506"
    assert paths == [name, f"{name}-2", f"{name}-3"]


@pytest.mark.slow
@pytest.mark.once
def test_processes_that_start_together_get_a_folder_each(tmp_path):
    """Sixteen processes, which wait for each other at the last moment."""
    barrier, (read, write) = multiprocessing.Barrier(16), os.pipe()
    children = []
    for _ in range(16):
        children.append(os.fork())
        if not children[-1]:
            barrier.wait(60)
            folder = RunFolder.new(tmp_path / "runs", NOW)
            with folder.claim():
                folder.write_text("report.md", str(os.getpid()))
            os.write(write, (folder.path + "\n").encode())
            os._exit(0)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    paths = os.read(read, 2**16).decode().split()
    assert len(set(paths)) == 16
    for path in paths:
        assert int(pathlib.Path(path, "report.md").read_text()) in children


def test_on_other_file_systems_a_number_tells_folders_apart():
    paths = {RunFolder.new("ram://test_runs").path for _ in range(9)}
    assert len(paths) == 9
    claim(RunFolder(paths.pop()))


def test_a_claim_leaves_no_new_folder_behind(folder, tmp_path):
    with folder.claim():
        assert os.listdir(folder.path) == [".lock"]
    assert os.listdir(tmp_path) == []
    claim(RunFolder.new(tmp_path / "runs"))
    assert os.listdir(tmp_path) == []
    with folder.claim():
        folder.write_text("run.json", "mine")
    claim(folder)
    assert os.listdir(folder.path) == ["run.json"]


def test_one_process_trains_in_a_folder(folder):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        with folder.claim():
            os.write(write, b"claimed")
            time.sleep(600)
        os._exit(0)
    try:
        assert os.read(read, 100) == b"claimed"
        with pytest.raises(ValueError, match="Another process writes to .*run"):
            claim(folder)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    claim(folder)  # The lock of a dead process holds nobody up.


def test_a_folder_that_cannot_be_claimed_is_named_and_left_alone(tmp_path):
    (tmp_path / "cat.jpg").write_bytes(b"a picture")
    with pytest.raises(ValueError, match="no run.json, but cat.jpg. Choose a"):
        claim(RunFolder(tmp_path))
    assert os.listdir(tmp_path) == ["cat.jpg"]
    folder = RunFolder(tmp_path / "cat.jpg" / "run")
    with pytest.raises(OSError, match="Cannot write to the folder .*jpg/run: "):
        claim(folder)
    with pytest.raises(OSError, match="Cannot make a folder in --runs-dir"):
        RunFolder.new(tmp_path / "cat.jpg")


def test_files_have_the_rights_of_the_umask(folder):
    before = os.umask(0o027)
    try:
        with folder.claim():
            folder.write_text("report.md", "mine")
    finally:
        os.umask(before)
    assert os.stat(folder.path).st_mode & 0o777 == 0o750
    for name in os.listdir(folder.path):
        assert os.stat(folder.file(name)).st_mode & 0o777 == 0o640


def test_a_failed_write_keeps_the_former_file(folder, monkeypatch):
    folder.write_text("report.md", "old")

    def full_disk(*arguments, **options):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left")

    monkeypatch.setattr(tf.io.gfile, "rename", full_disk)
    with pytest.raises(OSError, match=r"Cannot write .*report.md: No space"):
        folder.write_text("report.md", "new")
    assert os.listdir(folder.path) == ["report.md"]
    assert pathlib.Path(folder.file("report.md")).read_text() == "old"


def test_metrics_have_all_columns(folder):
    folder.write_metrics([{"epoch": 1, "loss": 2.5}, {"epoch": 2, "top5": 1.0}])
    text = pathlib.Path(folder.file("metrics.csv")).read_text()
    assert text == "epoch,loss,top5\n1,2.5,\n2,,1.0\n"


# A run.


def test_a_run_comes_back_with_its_network(folder, rng):
    model = models.build("LambdaResNetSmall", **ARGUMENTS)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape))
    run = Run("finished", "LambdaResNetSmall", ARGUMENTS, ("a", "b", "c"))
    folder.write(run)
    folder.write_weights(model)
    images = rng.uniform(0, 255, (2, 8, 8, 1))
    folder.write_examples(images, np.arange(2))
    again = folder.read()
    run = dataclasses.replace(run, started=again.started)
    written = json.loads(json.dumps(run.to_dict()))
    assert json.loads(json.dumps(again.to_dict())) == written
    assert again.classes == ("a", "b", "c")
    assert_same(again.load_model().get_weights(), model.get_weights())
    examples, labels = again.read_examples()
    np.testing.assert_allclose(examples, images, rtol=1e-6)
    assert labels.tolist() == [0, 1]
    assert examples.dtype == np.float32


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (None, "is not the folder of a run: it has no run.json"),
        ("{", "run.json is not a JSON file"),
        ('{"format": 99}', "has format 99; this version"),
        ('{"format": 2}', "must describe a model, its arguments"),
        ({"status": "well"}, "`status` must be one of .*'well'"),
        ({"metrics": None}, r"run\.json .*`metrics`"),
        ({"recipe": None}, r"run\.json .*`recipe`"),
        ({"versions": None}, r"run\.json .*`versions`"),
        ({"parts": [1]}, r"run\.json .*`parts`"),
        ({"arguments": "text"}, r"run\.json .*`arguments`"),
        ({"arguments": [1]}, r"run\.json .*`arguments`"),
        ({"classes": "ab"}, r"run\.json .*`classes`"),
        ({"model": 3}, r"run\.json .*`model`"),
        ({"started": None}, r"run\.json .*`started`"),
    ],
)
def test_foreign_folders(folder, written, message):
    """Without run.json, or with another text or other fields in it."""
    if isinstance(written, dict):
        run = Run("running", "LambdaResNetSmall", {}).to_dict()
        written = json.dumps({**run, **written})
    if written is not None:
        folder.write_text("run.json", written)
    with pytest.raises(UserError, match=message):
        folder.read()


def write_run(path, status="finished"):
    RunFolder(path).write(Run(status, "LambdaResNetSmall", ARGUMENTS))


def test_the_newest_finished_run(tmp_path):
    tmp_path = tmp_path / "[runs]"
    with pytest.raises(ValueError, match="holds no run at all"):
        newest_finished_run(tmp_path)
    for name, status in (("1", "finished"), ("2", "running"), ("3", "failed")):
        write_run(tmp_path / name, status)
    assert newest_finished_run(tmp_path).folder == str(tmp_path / "1")
    shutil.rmtree(tmp_path / "1")
    with pytest.raises(ValueError, match="holds 2: running; 3: failed"):
        newest_finished_run(tmp_path)


def test_the_newest_run_began_last_whatever_it_is_called(tmp_path):
    for name in ("mine", "20261124-120000", "another"):
        write_run(tmp_path / name)
    assert newest_finished_run(tmp_path).folder == str(tmp_path / "another")
    write_run(tmp_path / "mine")  # One that is resumed keeps its start.
    assert newest_finished_run(tmp_path).folder == str(tmp_path / "another")


def test_versions_name_the_keras():
    name = "keras 3" if KERAS_3 else ("tf_keras 2", "keras 2")
    assert environment.versions()["keras"].startswith(name)


# TensorBoard.


def test_tensorboard_reads_the_events(folder):
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    for step in (7, 14):
        folder.write_events({"step": step, "loss": 2.5 / step, "epoch": 1})
    events = reader.EventAccumulator(folder.file("tensorboard")).Reload()
    # TensorFlow 2 writes tensors; the plugin's name makes them scalars.
    assert set(events.PluginTagToContent("scalars")) == {
        "step", "loss", "epoch"}  # fmt: skip
    loss = [
        (event.step, tf.make_ndarray(event.tensor_proto).item())
        for event in events.Tensors("loss")
    ]
    assert loss == [(7, pytest.approx(2.5 / 7)), (14, pytest.approx(2.5 / 14))]


@pytest.mark.thorough
@pytest.mark.once
def test_events_need_no_tensorboard(tmp_path):
    program = f"""
import sys
sys.modules["tensorboard"] = None  # As where it is not installed.
from lambdanet_tf.runs import RunFolder
RunFolder({str(tmp_path)!r}).write_events({{"step": 7, "loss": 2.5}})
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert b"loss" in file.read_bytes()
