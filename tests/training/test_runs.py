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

ARGUMENTS = {
    "input_shape": [8, 8, 1],
    "classes": 3,
    "stages": ["L"],
    "widths": [8],
    "strides": [1],
}


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "runs" / "run")


def test_folders_are_named_by_time(tmp_path):
    now = time.struct_time((2031, 2, 3, 4, 5, 6, 0, 0, 0))
    names = [
        os.path.basename(RunFolder.new(tmp_path, now).path) for _ in range(3)
    ]
    assert names == [
        "20310203-040506",
        "20310203-040506-2",
        "20310203-040506-3",
    ]


@pytest.mark.slow
@pytest.mark.once
def test_processes_that_start_together_get_a_folder_each(tmp_path):
    """Sixteen processes, which wait for each other at the last moment."""
    now = time.struct_time((2031, 2, 3, 4, 5, 6, 0, 0, 0))
    barrier, (read, write) = multiprocessing.Barrier(16), os.pipe()
    children = []
    for _ in range(16):
        children.append(os.fork())
        if not children[-1]:
            barrier.wait(60)
            folder = RunFolder.new(tmp_path / "runs", now)
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
    with RunFolder(paths.pop()).claim():
        pass


def test_a_claim_leaves_no_new_folder_behind(folder, tmp_path):
    with folder.claim():
        assert os.listdir(folder.path) == [".lock"]
    assert os.listdir(tmp_path) == []
    with RunFolder.new(tmp_path / "runs").claim():
        pass
    assert os.listdir(tmp_path) == []
    with folder.claim():
        folder.write_text("run.json", "mine")
    with folder.claim():
        pass
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
        with (
            pytest.raises(ValueError, match="Another process writes to .*run"),
            folder.claim(),
        ):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with folder.claim():  # The lock of a dead process holds nobody up.
        pass


def test_a_folder_that_is_no_run_is_left_alone(tmp_path):
    (tmp_path / "cat.jpg").write_bytes(b"a picture")
    with (
        pytest.raises(ValueError, match="no run.json, but cat.jpg. Choose a"),
        RunFolder(tmp_path).claim(),
    ):
        pass
    assert os.listdir(tmp_path) == ["cat.jpg"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / "run"
    with (
        pytest.raises(OSError, match="Cannot write to the folder .*file/run: "),
        RunFolder(folder).claim(),
    ):
        pass
    with pytest.raises(OSError, match="Cannot make a folder in --runs-dir"):
        RunFolder.new(tmp_path / "file")


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
    with open(folder.file("report.md"), encoding="utf-8") as stream:
        assert stream.read() == "old"


def test_metrics_have_all_columns(folder):
    folder.write_metrics([{"epoch": 1, "loss": 2.5}, {"epoch": 2, "top5": 1.0}])
    with open(folder.file("metrics.csv"), encoding="utf-8") as stream:
        assert stream.read() == "epoch,loss,top5\n1,2.5,\n2,,1.0\n"


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
    loaded = again.load_model()
    for now, then in zip(
        loaded.get_weights(), model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(now, then)
    examples, labels = again.read_examples()
    np.testing.assert_allclose(examples, images, rtol=1e-6)
    assert labels.tolist() == [0, 1]
    assert examples.dtype == np.float32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not the folder of a run: it has no run.json"),
        ("{", "run.json is not a JSON file"),
        ('{"format": 99}', "has format 99; this version"),
        ('{"format": 2}', "must describe a model, its arguments"),
        (
            '{"format": 2, "model": "m", "arguments": {}, "classes": [], '
            '"status": "well"}',
            "`status` must be one of .*'well'",
        ),
    ],
)
def test_foreign_folders(folder, text, message):
    if text is not None:
        folder.write_text("run.json", text)
    with pytest.raises(UserError, match=message):
        folder.read()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("metrics", None),
        ("recipe", None),
        ("versions", None),
        ("parts", [1]),
        ("arguments", "text"),
        ("arguments", [1]),
        ("classes", "ab"),
        ("model", 3),
        ("started", None),
    ],
)
def test_a_run_file_with_a_field_of_another_kind(folder, field, value):
    fields = Run("running", "LambdaResNetSmall", {}).to_dict()
    folder.write_text("run.json", json.dumps({**fields, field: value}))
    with pytest.raises(UserError, match=rf"run\.json .*`{field}`"):
        folder.read()


def test_the_newest_finished_run(tmp_path):
    tmp_path = tmp_path / "[runs]"
    with pytest.raises(ValueError, match="holds no run at all"):
        newest_finished_run(tmp_path)
    for name, status in (("1", "finished"), ("2", "running"), ("3", "failed")):
        run = Run(status, "LambdaResNetSmall", ARGUMENTS)
        RunFolder(tmp_path / name).write(run)
    assert newest_finished_run(tmp_path).folder == str(tmp_path / "1")
    shutil.rmtree(tmp_path / "1")
    with pytest.raises(ValueError, match="holds 2: running; 3: failed"):
        newest_finished_run(tmp_path)


def test_the_newest_run_began_last_whatever_it_is_called(tmp_path):
    for name in ("mine", "20261124-120000", "another"):
        RunFolder(tmp_path / name).write(
            Run("finished", "LambdaResNetSmall", ARGUMENTS)
        )
    assert newest_finished_run(tmp_path).folder == str(tmp_path / "another")
    # One that is resumed keeps its start.
    RunFolder(tmp_path / "mine").write(
        Run("finished", "LambdaResNetSmall", ARGUMENTS)
    )
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
