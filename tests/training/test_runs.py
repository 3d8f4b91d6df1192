"""Run folders and checkpoints: nothing half-written, nothing lost."""

import json
import os
import pathlib
import shutil
import signal
import time
from unittest import mock

import pytest
import tensorflow as tf

from lambdanet_tf.arguments import UserError
from lambdanet_tf.runs import Run
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.runs import newest_run


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "runs" / "run")


def claim(folder):
    """Claims a folder and gives it back."""
    with folder.claim():
        pass


def test_folders_are_named_by_time_and_told_apart(tmp_path):
    for base in (tmp_path, "ram://test_runs"):
        paths = [RunFolder.new(base).path for _ in range(9)]
        assert len({*paths}) == 9
        assert paths == sorted(paths)
        assert paths[0].startswith(f"{base}/{time.strftime('%Y%m%d')}-")
        claim(RunFolder(paths[0]))


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
    assert os.listdir(folder.path) == []


def test_a_folder_that_cannot_be_claimed_is_named_and_left_alone(tmp_path):
    (tmp_path / "cat.jpg").write_bytes(b"a picture")
    with pytest.raises(ValueError, match="no run.json, but cat.jpg. Choose a"):
        claim(RunFolder(tmp_path))
    assert os.listdir(tmp_path) == ["cat.jpg"]
    folder = RunFolder(tmp_path / "cat.jpg" / "run")
    with pytest.raises(OSError, match="Cannot write .*jpg/run: "):
        claim(folder)


def test_a_failed_write_keeps_the_former_file(folder, monkeypatch):
    folder.write_text("report.md", "old")
    full = tf.errors.ResourceExhaustedError(None, None, "No space left")
    monkeypatch.setattr(tf.io.gfile, "rename", mock.Mock(side_effect=full))
    with pytest.raises(OSError, match=r"Cannot write .*report.md: No space"):
        folder.write_text("report.md", "new")
    assert os.listdir(folder.path) == ["report.md"]
    assert pathlib.Path(folder.file("report.md")).read_text() == "old"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (None, "is not the folder of a run: it has no run.json"),
        ("{", "run.json does not describe a run"),
        ("{}", "run.json does not describe a run"),
        ({"metrics": None}, r"run\.json .*`metrics`"),
        ({"arguments": [1]}, r"run\.json .*`arguments`"),
        ({"another": 1}, r"run\.json .*another"),
    ],
)
def test_foreign_folders(folder, written, message):
    """Without run.json, or with another text or other fields in it."""
    if isinstance(written, dict):
        fields = {"model": "LambdaResNetSmall", "arguments": {}, "classes": []}
        written = json.dumps({"status": "running", **fields, **written})
    if written is not None:
        folder.write_text("run.json", written)
    with pytest.raises(UserError, match=message):
        folder.read()


def test_tensorboard_has_each_epoch_once(folder):
    """Also where a killed run was resumed."""
    rows = [{"step": 20 * i, "loss": 1.0 / i} for i in (1, 2, 3)]
    for number in (1, 2, 1, 2, 3):  # From an older checkpoint on.
        folder.write_metrics(rows[:number])
    found = []
    for path in pathlib.Path(folder.file("tensorboard")).iterdir():
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            found += [(event.step, v.tag) for v in event.summary.value]
    assert sorted(found) == sorted((r["step"], t) for r in rows for t in r)


def write_run(path, status="finished"):
    RunFolder(path).write(Run(status, "LambdaResNetSmall", {}))


def test_the_newest_run_began_last_whatever_it_is_called(tmp_path):
    tmp_path = tmp_path / "[runs]"
    with pytest.raises(ValueError, match="holds no run at all"):
        newest_run(tmp_path)
    for name, status in (("1", "finished"), ("2", "running"), ("3", "failed")):
        write_run(tmp_path / name, status)
    assert newest_run(tmp_path, unfinished=True).folder == str(tmp_path / "3")
    assert newest_run(tmp_path).folder == str(tmp_path / "1")
    shutil.rmtree(tmp_path / "1")
    with pytest.raises(ValueError, match="holds 2: running; 3: failed"):
        newest_run(tmp_path)
    for name in ("mine", "20261124-120000", "another"):
        write_run(tmp_path / name)
    assert newest_run(tmp_path).folder == str(tmp_path / "another")
    write_run(tmp_path / "mine")  # One that is resumed keeps its start.
    assert newest_run(tmp_path).folder == str(tmp_path / "another")
