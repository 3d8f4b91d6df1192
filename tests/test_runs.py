"""The run folder: nothing half-written, nothing lost."""

import os
import time

import pytest
import tensorflow as tf

from lambdanet_tf.training import RunFolder
from lambdanet_tf.training import checkpoints
from lambdanet_tf.training import runs
from lambdanet_tf.training.optimizer import RecipeOptimizer
from lambdanet_tf.training.stopping import NotFinite


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.prove_writable()
    return folder


def test_folders_are_named_by_time_and_never_shared(tmp_path):
    now = time.struct_time((2031, 2, 3, 4, 5, 6, 0, 0, 0))
    names = []
    for _ in range(3):
        folder = RunFolder.make(str(tmp_path), now)
        folder.prove_writable()
        names.append(os.path.basename(folder.path))
    assert names == [
        "20310203-040506",
        "20310203-040506-2",
        "20310203-040506-3",
    ]


def test_nothing_is_left_of_the_proof(folder):
    assert os.listdir(folder.path) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="Cannot write to the run folder .*file"):
        RunFolder(tmp_path / "file" / "run").prove_writable()


def test_a_failed_write_keeps_the_former_file(folder, monkeypatch):
    folder.write_text("report.md", "old")

    def full_disk(*arguments, **options):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left")

    monkeypatch.setattr(tf.io.gfile, "rename", full_disk)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        folder.write_text("report.md", "new")
    assert os.listdir(folder.path) == ["report.md"]
    with open(folder.file("report.md"), encoding="utf-8") as stream:
        assert stream.read() == "old"


def test_metrics_have_all_columns(folder):
    folder.write_metrics([{"epoch": 1, "loss": 2.5}, {"epoch": 2, "top5": 1.0}])
    with open(folder.file("metrics.csv"), encoding="utf-8") as stream:
        assert stream.read() == "epoch,loss,top5\n1,2.5,\n2,,1.0\n"


def test_events_for_tensorboard(folder):
    folder.write_events({"step": 7, "loss": 2.5, "epoch": 1})
    (file,) = os.listdir(folder.file("tensorboard"))
    events = tf.data.TFRecordDataset(
        os.path.join(folder.file("tensorboard"), file)
    )
    text = b"".join(event.numpy() for event in events)
    assert b"loss" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not the folder of a run: it has no run.json"),
        ("{", "run.json is not a JSON file"),
        ('{"format": 99}', "has format 99; this version"),
    ],
)
def test_foreign_folders(folder, text, message):
    if text is not None:
        folder.write_text("run.json", text)
    with pytest.raises(ValueError, match=message):
        folder.read_record()


def test_versions_name_the_keras():
    name = "keras 3" if hasattr(tf.keras, "ops") else "tf_keras 2"
    assert runs.versions()["keras"].startswith(name)


# Checkpoints.


@pytest.fixture
def network():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((3,)),
            tf.keras.layers.Dense(5),
            tf.keras.layers.BatchNormalization(),
        ]
    )
    optimizer = RecipeOptimizer(0.1, average_decay=0.9).attach(model)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def step(model, optimizer):
    grads = [tf.ones(w.shape) for w in model.trainable_variables]
    optimizer.apply_gradients(
        zip(grads, model.trainable_variables, strict=True)
    )


def state(model, optimizer):
    optimizer.swap_averages()
    averages = model.get_weights()
    optimizer.swap_averages()
    return [*model.get_weights(), *averages, int(optimizer.iterations)]


def test_a_checkpoint_brings_everything_back(network, tmp_path):
    saved = checkpoints.Checkpoints(*network, str(tmp_path))
    step(*network)
    before = state(*network)
    saved.save(7, {"rows": [1.5]})
    step(*network)
    assert saved.restore() == {"rows": [1.5]}
    for now, then in zip(state(*network), before, strict=True):
        assert (now == then) if isinstance(now, int) else (now == then).all()
    # The next step is the same as well: the momentum is back.
    step(*network)
    after = state(*network)
    saved.restore()
    step(*network)
    for now, then in zip(state(*network), after, strict=True):
        assert (now == then) if isinstance(now, int) else (now == then).all()


def test_no_checkpoint_is_no_error(network, tmp_path):
    assert checkpoints.Checkpoints(*network, str(tmp_path)).restore() is None


def test_old_checkpoints_are_removed(network, tmp_path):
    saved = checkpoints.Checkpoints(*network, str(tmp_path))
    for number in range(5):
        saved.save(number, number)
    kept = [f for f in os.listdir(tmp_path) if f.endswith(".index")]
    assert sorted(kept) == ["ckpt-3.index", "ckpt-4.index"]


def test_a_write_that_was_cut_off_leaves_the_former_checkpoint(
    network, tmp_path
):
    saved = checkpoints.Checkpoints(*network, str(tmp_path))
    saved.save(1, "good")
    (tmp_path / "ckpt-2.data-00000-of-00001").write_bytes(b"half")
    assert saved.restore() == "good"


def test_a_checkpoint_of_another_network_is_refused(network, tmp_path):
    checkpoints.Checkpoints(*network, str(tmp_path)).save(1, "good")
    model = tf.keras.Sequential(
        [tf.keras.layers.Input((3,)), tf.keras.layers.Dense(4)]
    )
    optimizer = RecipeOptimizer(0.1)
    optimizer.build(model.trainable_variables)
    other = checkpoints.Checkpoints(model, optimizer, str(tmp_path))
    with pytest.raises(ValueError, match="does not fit this network"):
        other.restore()


def test_weights_that_are_no_numbers_are_never_saved(network, tmp_path):
    saved = checkpoints.Checkpoints(*network, str(tmp_path))
    saved.save(1, "good")
    network[0].layers[0].kernel.assign(tf.fill([3, 5], float("nan")))
    with pytest.raises(NotFinite, match="step 2"):
        saved.save(2, "bad")
    assert saved.restore() == "good"


def test_too_little_room_is_an_error(network, tmp_path, monkeypatch):
    checkpoints.check_room(str(tmp_path), *network)
    usage = checkpoints.shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match="needs 0 MiB .*; 0 MiB are free"):
        checkpoints.check_room(str(tmp_path), *network)
