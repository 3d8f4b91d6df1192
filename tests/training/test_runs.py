"""Run folders and checkpoints: nothing half-written, nothing lost."""

import json
import os
import pathlib
import shutil
import time
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import training
from lambdanet_tf.arguments import UserError
from lambdanet_tf.runs import Run
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.runs import newest_run
from lambdanet_tf.training.optimizer import scale_loss
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.state import newest_checkpoint
from tests.support.arrays import assert_same


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "runs" / "run")


def claim(path):
    """Claims a folder and gives it back."""
    with RunFolder(path).claim():
        pass


def test_folders_are_named_by_time_and_told_apart(tmp_path):
    for base in (tmp_path, "ram://test_runs"):
        paths = [RunFolder.new(base).path for _ in range(9)]
        assert len({*paths}) == 9
        assert paths == sorted(paths)
        assert paths[0].startswith(f"{base}/{time.strftime('%Y%m%d')}-")
        claim(paths[0])


def test_one_process_trains_in_a_folder_that_is_a_run_or_empty(folder):
    writes = pytest.raises(ValueError, match="Another process writes to .*run")
    with folder.claim(), writes:
        claim(folder.path)
    claim(folder.path)
    assert os.listdir(folder.path) == []
    pathlib.Path(folder.file("cat.jpg")).write_bytes(b"a picture")
    with pytest.raises(ValueError, match="cat.jpg, but no run.json. Choose a"):
        claim(folder.path)
    assert os.listdir(folder.path) == ["cat.jpg"]
    with pytest.raises(OSError, match="Cannot write .*jpg/run: "):
        claim(folder.file("cat.jpg/run"))


def test_a_failed_write_keeps_the_former_file(folder, monkeypatch):
    folder.write_text("report.md", "old")
    full = tf.errors.ResourceExhaustedError(None, None, "No space left")
    monkeypatch.setattr(tf.io.gfile, "rename", mock.Mock(side_effect=full))
    with pytest.raises(OSError, match=r"Cannot write .*report.md: No space"):
        folder.write_text("report.md", "new")
    assert os.listdir(folder.path) == ["report.md"]
    assert pathlib.Path(folder.file("report.md")).read_text() == "old"


def test_foreign_folders(folder):
    """Without run.json, or with another text or other fields in it."""
    with pytest.raises(UserError, match="run folder: it contains no run.json"):
        folder.read()
    run = {"status": "running", "model": "M", "arguments": {}, "classes": []}
    for changes in ({"metrics": None}, {"arguments": [1]}, {"another": 1}, {}):
        text = json.dumps({**run, **changes}) if changes else "{"
        folder.write_text("run.json", text)
        message = r"run\.json is not a valid.*" + "".join(changes)
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


def test_the_newest_run_began_last_whatever_it_is_called(tmp_path):
    def write(name, status="finished"):
        RunFolder(base / name).write(Run(status, "LambdaResNetSmall", {}))

    base = tmp_path / "[runs]"
    with pytest.raises(ValueError, match="No finished run"):
        newest_run(base)
    for name, status in (("1", "finished"), ("2", "running"), ("3", "failed")):
        write(name, status)
    assert newest_run(base, unfinished=True).folder == str(base / "3")
    assert newest_run(base).folder == str(base / "1")
    shutil.rmtree(base / "1")
    with pytest.raises(ValueError, match=": 2: running; 3: failed"):
        newest_run(base)
    for name in ("mine", "20261124-120000", "another"):
        write(name)
    write("mine")  # One that is resumed keeps its start.
    assert newest_run(base).folder == str(base / "another")


def make_state(optimizer="sgd", names=("first", "second")):
    """A small network with two kernels of one shape, and its state."""
    rule = tf.keras.optimizers.SGD(0.1, momentum=0.9)
    if optimizer == "mixed":
        rule = tf.keras.mixed_precision.LossScaleOptimizer(rule)
    layers = [tf.keras.layers.Dense(5, name=name) for name in names]
    norm = tf.keras.layers.BatchNormalization(name="norm")
    model = tf.keras.Sequential([tf.keras.Input((5,)), *layers, norm])
    return TrainState(model, rule, training.Averages(model, 0.9))


def take_step(state, size=1.0):
    variables = state.model.trainable_variables
    ones = [tf.fill(w.shape, size + i) for i, w in enumerate(variables)]
    state.optimizer.apply_gradients(zip(ones, variables, strict=True))
    state.add(tf.constant([1.0, 2.0, 3.0]), 1)
    state.averages.update(state.step)


def arrays(state):
    with state.averages.applied():
        averages = state.model.get_weights()
    slots = [np.asarray(variable) for variable in state.optimizer.variables]
    slots.append(scale_loss(state.optimizer, tf.constant(1.0)).numpy())
    return [*state.model.get_weights(), *averages, *slots]


@pytest.mark.parametrize("optimizer", ["sgd", "mixed"])
def test_a_checkpoint_brings_everything_back(tmp_path, optimizer):
    """Also from a folder that was moved, of which old ones were removed."""
    before = make_state(optimizer)
    for size in (1.0, 1.0, np.inf if optimizer == "mixed" else 1.0):
        take_step(before, size)  # An overflow halves the scale of the loss.
        before.save(f"{tmp_path}/a")
    before.end_epoch({"epoch": 1, "loss": 1.5}, b"the best")
    before.save(f"{tmp_path}/a")
    take_step(before)
    before.seconds, before.epoch_seconds = 4.0, 3.0
    before.save(f"{tmp_path}/a")
    kept = sorted(path.name for path in (tmp_path / "a").glob("*.index"))
    assert kept == ["ckpt-4.index", "ckpt-5.index"]
    moved = str((tmp_path / "a").rename(tmp_path / "b"))
    after = make_state(optimizer)
    after.restore(newest_checkpoint(moved))
    assert_same(arrays(after), arrays(before))
    assert (after.step, [*after.sums]) == (4, [1.0, 2.0, 3.0])
    assert after.rows == [after.best] == [{"epoch": 1, "loss": 1.5}]
    assert after.best_weights == b"the best"
    assert (after.seconds, after.epoch_seconds) == (4.0, 3.0)
    for state in (before, after):
        take_step(state)
    assert_same(arrays(after), arrays(before))
    after.save(moved)
    assert newest_checkpoint(moved) == f"{moved}/ckpt-6"
    assert newest_checkpoint(str(tmp_path)) == ""


def test_what_cannot_be_read_is_named_and_what_is_not_finite_not_saved(
    tmp_path,
):
    """Weights are known by their names, and not by their order."""
    state, good = make_state(), str(tmp_path / "good")
    take_step(state)
    state.save(good)
    kernel = state.model.layers[0].kernel
    kernel.assign(tf.fill(kernel.shape, float("nan")))
    state.step = 2
    with pytest.raises(training.NotFinite, match="by step 2. Try a lower"):
        state.save(good)
    make_state().restore(newest_checkpoint(good))
    others = make_state(names=("first", "third"))
    with pytest.raises(UserError, match="ckpt-1 cannot be read"):
        others.restore(newest_checkpoint(good))
    for file in ("data-00000-of-00001", "index"):
        os.truncate(f"{good}/ckpt-1.{file}", 100)
        with pytest.raises(UserError, match="ckpt-1 cannot be read"):
            make_state().restore(newest_checkpoint(good))


def test_of_equally_good_epochs_the_latest_is_the_best():
    state = make_state()
    assert state.is_best({"validation_accuracy": 0.5})
    state.end_epoch({"epoch": 1, "validation_accuracy": 0.5}, b"weights")
    assert state.is_best({"validation_accuracy": 0.5})
    assert not state.is_best({"validation_accuracy": 0.4})
