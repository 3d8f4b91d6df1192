"""Run folders, version folders and the first export."""

import json
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import export
from lambdanet_tf import serving
from lambdanet_tf.serving import run_folder
from lambdanet_tf.serving import version_folders
from tests.serving_run import write_run


def write_json(file, fields):
    file.write_text(json.dumps(fields))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run and its Keras model."""
    folder = tmp_path_factory.mktemp("runs") / "20250101-000000"
    return write_run(folder)


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    """The export of that run."""
    return serving.export_run(run[0], tmp_path_factory.mktemp("exported"))


def test_versions_count_up_and_are_never_overwritten(run, tmp_path):
    first = serving.export_run(run[0], tmp_path, name="digits")
    before = {f: f.stat().st_mtime_ns for f in first.rglob("*")}
    second = serving.export_run(run[0], tmp_path, name="digits", version=7)
    third = serving.export_run(run[0], tmp_path, name="digits")
    assert [place.name for place in (first, second, third)] == ["1", "7", "8"]
    with pytest.raises(ValueError, match=r"`version`.*Received 7.*\[1, 7, 8\]"):
        serving.export_run(run[0], tmp_path, name="digits", version=7)
    assert {f: f.stat().st_mtime_ns for f in first.rglob("*")} == before
    assert sorted(os.listdir(tmp_path / "digits")) == ["1", "7", "8"]
    assert serving.newest_export(tmp_path) == third
    assert stat.S_IMODE(first.stat().st_mode) == 0o755


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), 0])
def test_a_failure_half_way_leaves_nothing(run, tmp_path, monkeypatch, error):
    error = error or tf.errors.ResourceExhaustedError(None, None, "disk full")
    save = tf.saved_model.save

    def fail(module, folder, signatures):
        save(module, folder, signatures=signatures)
        raise error

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="Nothing was left behind"):
        serving.export_run(run[0], tmp_path, name="digits")
    assert os.listdir(tmp_path / "digits") == []


def test_a_reader_never_sees_half_a_version(tmp_path):
    with version_folders.new_version(tmp_path, "m") as (folder, place):
        (folder / "saved_model.pb").write_text("half")
        assert version_folders.versions(tmp_path / "m") == []
        assert not place.exists()
    assert version_folders.versions(tmp_path / "m") == [1]


def test_the_first_of_two_writers_of_a_version_wins(tmp_path):
    def second_writer():
        with version_folders.new_version(tmp_path, "m") as (folder, place):
            (folder / "who").write_text("second")
            place.mkdir()
            (place / "who").write_text("first")

    with pytest.raises(OSError, match="written meanwhile"):
        second_writer()
    assert (tmp_path / "m" / "1" / "who").read_text() == "first"
    assert os.listdir(tmp_path / "m") == ["1"]


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "../up", "-flag"])
def test_names_that_are_no_folder_are_refused(tmp_path, name):
    with (
        pytest.raises(ValueError, match="`name` must be made of letters"),
        version_folders.new_version(tmp_path, name),
    ):
        pass


@pytest.mark.parametrize("version", [0, -1, True, 1.5, "2"])
def test_versions_that_are_no_positive_integer_are_refused(tmp_path, version):
    with (
        pytest.raises(ValueError, match="`version` must be a positive integer"),
        version_folders.new_version(tmp_path, "m", version),
    ):
        pass


def test_a_folder_that_cannot_be_written_is_named(run, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder is wanted")
    with pytest.raises(OSError, match="Could not write below .*file"):
        serving.export_run(run[0], blocked)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 1. Received .* with format 2"),
        ({"status": "asleep"}, "`status` must be one of .*'asleep'"),
        ({"model": {}}, "'builder' is missing"),
        ({"classes": None}, "missing or malformed"),
        (
            {"model": {"builder": "LambdaResNetSmal", "arguments": {}}},
            "Received: 'LambdaResNetSmal'.*Near: .*LambdaResNetSmall",
        ),
        (
            {
                "model": {
                    "builder": "LambdaResNetSmall",
                    "arguments": {"include_preprocessing": False},
                }
            },
            "Received: include_preprocessing=False",
        ),
        ({"status": "running"}, "finished run. Received .* 'running'"),
        ({"status": "stopped"}, "`--unfinished`"),
    ],
)
def test_foreign_and_unfinished_runs_are_refused(
    run, tmp_path, change, message
):
    folder = tmp_path / "run"
    folder.mkdir()
    record = run_folder.read_json(run[0] / run_folder.RUN_FILE)
    write_json(folder / run_folder.RUN_FILE, {**record, **change})
    with pytest.raises(ValueError, match=message):
        serving.export_run(folder, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_missing_runs_are_refused(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        serving.export_run(tmp_path / "none")
    with pytest.raises(ValueError, match="holds no run.json"):
        serving.export_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match="readable run.json"):
        serving.export_run(tmp_path)


@pytest.mark.filterwarnings("ignore:Skipping nested container:UserWarning")
def test_weights_of_another_architecture_are_refused(run, tmp_path):
    record = run_folder.read_json(run[0] / run_folder.RUN_FILE)
    arguments = {**record["model"]["arguments"], "widths": [16]}
    model = {**record["model"], "arguments": arguments}
    folder, _ = write_run(tmp_path / "other", model=model)
    os.replace(
        folder / run_folder.WEIGHTS_FILE, tmp_path / run_folder.WEIGHTS_FILE
    )
    write_json(tmp_path / run_folder.RUN_FILE, record)
    with pytest.raises(ValueError, match="`weights` must fit"):
        serving.export_run(tmp_path, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_the_newest_finished_run_is_found(tmp_path):
    with pytest.raises(ValueError, match="holds no run at all"):
        serving.newest_finished_run(tmp_path)
    for name, status in (("1", "finished"), ("2", "finished"), ("3", "failed")):
        (tmp_path / name).mkdir()
        record = {
            "format": 1,
            "status": status,
            "model": {"builder": "LambdaResNetSmall", "arguments": {}},
            "classes": [],
            "image": {},
        }
        write_json(tmp_path / name / run_folder.RUN_FILE, record)
    assert serving.newest_finished_run(tmp_path).path.name == "2"
    for name in "12":
        (tmp_path / name / run_folder.RUN_FILE).unlink()
    with pytest.raises(ValueError, match="which holds 3: failed"):
        serving.newest_finished_run(tmp_path)


def test_the_command_exports_checks_and_predicts(run, tmp_path, capsys):
    to = str(tmp_path / "exported")
    assert export.main(["--runs", str(run[0].parent), "--to", to]) == 0
    shown = capsys.readouterr().out
    assert "max difference" in shown
    assert shown.count("same") >= 3
    assert export.main(["--predict", "--to", to]) == 0
    shown = capsys.readouterr().out
    assert "probability" in shown
    assert "zero" in shown
    assert export.main(["--run", str(tmp_path), "--to", to]) == 2
    assert "run.json" in capsys.readouterr().err


def test_a_difference_fails_the_command(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(serving.checking.TOLERANCES, "float32", -1.0)
    arguments = ["--run", str(run[0]), "--to", str(tmp_path)]
    assert export.main(arguments) == 1
    assert "DIFFERENT" in capsys.readouterr().out


def test_a_run_of_the_other_keras_is_exported(tmp_path, rng):
    legacy = "0" if not hasattr(tf.keras, "ops") else "1"
    subprocess.run(
        [sys.executable, "-m", "tests.serving_run", str(tmp_path / "run")],
        env={**os.environ, "TF_USE_LEGACY_KERAS": legacy},
        check=True,
    )
    ours = tmp_path / "ours"
    _, model = write_run(ours)
    theirs = serving.export_run(tmp_path / "run", tmp_path / "exported")
    images = rng.uniform(0, 255, (2, 8, 7, 1)).astype(np.float32)
    model.load_weights(tmp_path / "run" / run_folder.WEIGHTS_FILE)
    answer = tf.saved_model.load(str(theirs)).signatures["serving_default"](
        images=tf.constant(images)
    )
    np.testing.assert_allclose(
        answer["probabilities"], model.predict(images, verbose=0), rtol=1e-5
    )
