"""Exports: version folders, what stands in them, and that it is verified."""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import cli
from lambdanet_tf import serving
from lambdanet_tf.files import read_arrays
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.serving import standalone
from lambdanet_tf.serving import verify
from lambdanet_tf.serving import versions
from tests.support import checks
from tests.support.serving_run import CLASSES
from tests.support.serving_run import RUN
from tests.support.serving_run import card_of
from tests.support.serving_run import shake

Keras = tf.keras.layers
SIGNATURES = ["serving_default", "serving_bytes", "features", "tflite", "onnx"]


def write_version(base, version=None, name="m"):
    def write(folder):
        pathlib.Path(folder, "saved_model.pb").write_text("model")
        versions.write_file(folder, versions.METADATA_FILE, b"{}")

    return versions.write_version(base, name, version, write)


def fill_the_disk(folder):
    pathlib.Path(folder, "half").touch()
    raise tf.errors.ResourceExhaustedError(None, None, "disk full")


@pytest.mark.once
def test_versions_count_up_and_are_never_overwritten(tmp_path):
    first = write_version(tmp_path)
    before = {f: f.stat().st_mtime_ns for f in first.rglob("*")}
    second, third = write_version(tmp_path, 7), write_version(tmp_path)
    assert [final.name for final in (first, second, third)] == ["1", "7", "8"]
    with pytest.raises(ValueError, match=r"=7. .*m already has \[1, 7, 8\]"):
        write_version(tmp_path, 7)
    assert serving.newest_export(tmp_path) == third
    assert {f: f.stat().st_mtime_ns for f in first.rglob("*")} == before
    assert sorted(os.listdir(tmp_path / "m")) == ["1", "7", "8"]
    assert first.stat().st_mode & 0o777 == 0o755
    (tmp_path / "file").write_text("a file where a folder is wanted")
    with pytest.raises(OSError, match="Cannot write .*file"):
        write_version(tmp_path / "file")
    with pytest.raises(OSError, match="disk full"):
        versions.write_version(tmp_path / "full", "m", None, fill_the_disk)
    assert os.listdir(tmp_path / "full") == []
    write_version(tmp_path, 2**63 - 1, "last")  # No server reads the next one.
    for wrong, message in (
        ({"name": "../up"}, "`name` must consist of"),
        ({"version": 0}, "must be new, and from 1 to"),
        ({"name": "last"}, "must be new, and from 1 to"),
    ):
        with pytest.raises(ValueError, match=message):
            write_version(tmp_path, **wrong)
    for read, message in (
        (serving.read_metadata, "Cannot read .*export.json"),
        (serving.newest_export, "file' is not an export"),
    ):
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "file")


@pytest.mark.slow
@pytest.mark.once
def test_the_next_export_removes_what_a_killed_one_left(tmp_path, capsys):
    program = f"""import time
from lambdanet_tf.serving import versions
write = lambda folder: (print(folder, flush=True), time.sleep(600))
versions.write_version({str(tmp_path)!r}, "m", None, write)"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        scratch = pathlib.Path(process.stdout.readline().strip())
        with pytest.raises(ValueError, match="Another process writes to .*m"):
            write_version(tmp_path)
        assert scratch.exists()  # It is being written.
        process.kill()
    assert write_version(tmp_path).name == "1"
    assert os.listdir(tmp_path / "m") == ["1"]
    assert f"Removed {scratch}, left by an export" in capsys.readouterr().out


def test_foreign_runs_are_rejected(small_run, tmp_path):
    folder = shutil.copytree(small_run[0], tmp_path / "run")
    (folder / "examples.npz").write_bytes(b"PK")
    for changes, message in (
        ({"model": "LambdaResNetSmal"}, "Did you mean 'LambdaResNetSmall'"),
        ({"status": "stopped"}, "`--unfinished`"),
        ({}, "examples.npz must be an .npz file"),
        (None, "contains no run.json"),
    ):
        (folder / "run.json").unlink()
        if changes is not None:
            RunFolder(folder).write(dataclasses.replace(RUN, **changes))
        with pytest.raises(ValueError, match=message):
            serving.export_run(folder, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


@pytest.mark.slow
@pytest.mark.once
def test_a_stopped_run_of_the_other_keras_is_exported_to_a_store(tmp_path):
    run, store = str(tmp_path / "run"), f"file://{tmp_path}/models"
    program = "from tests.support.serving_run import write_run\n"
    program += f"write_run({run!r}, status='stopped')"
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    for version in (1, 2):
        folder = serving.export_run(run, store, unfinished=True)
        assert folder == f"{store}/LambdaResNetSmall/{version}"
    assert serving.newest_export(store) == folder
    assert serving.verify_export(folder).agrees
    recorded = serving.read_metadata(folder)["metadata"]
    assert "metrics" not in recorded  # They are of former weights.
    assert recorded["run"] == "run"


def test_the_card_says_what_a_stranger_must_know(small_run, small_export):
    card = card_of(small_export)
    for fact in (
        f"| parameters | {small_run[1].count_params():,} |",
        "| accuracy | 0.5 |",
        "| probabilities | softmax |",
        "| classes | zero, one, two, three, four |",
        "float32 (8, 7, 1), values in [0, 255]",
        "| recipe | digits |",
    ):
        assert fact in card
    labels = (small_export / "assets/labels.txt").read_text()
    assert labels.split() == [*CLASSES]


@pytest.mark.slow
@pytest.mark.once
def test_an_export_agrees_with_keras_without_keras_or_its_faults_are_said(
    small_export, tmp_path, capsys
):
    result = serving.verify_export(small_export)
    assert result.agrees, str(result)
    assert result.images == 4
    assert [row.signature for row in result.signatures] == SIGNATURES
    for row in result.signatures:
        assert row.difference < 1e-5

    copy = shutil.copytree(small_export, tmp_path / "m" / "1")
    examples = copy / verify.EXAMPLES_FILE

    def verified():
        return cli.main(["verify", str(copy)]), "".join(capsys.readouterr())

    # It computes something else than Keras: what it did for another image.
    arrays = read_arrays(examples)
    others = {k: np.roll(x, 1, 0) for k, x in arrays.items() if "/" in k}
    np.savez(examples, **{**arrays, **others})
    status, said = verified()
    assert (status, said.count("DIFFERENT")) == (1, len(SIGNATURES))
    weights = copy / "variables/variables.data-00000-of-00001"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    status, said = verified()
    assert (status, "does not run" in said) == (2, True)
    for file, message in (
        (examples, "examples.npz': No such file"),
        (copy / "assets.extra/export.json", "has no assets.extra/export.json"),
    ):
        file.unlink()
        status, said = verified()
        assert (status, message in said) == (2, True)


@pytest.mark.once
def test_outputs_are_compared_by_name_and_nan_is_noticed():
    found = {
        "scores": np.array([[0.75, 0.25]]),
        "labels": np.array([[b"x", b"y"]], "O"),
        "classes": np.array([0]),
    }
    wanted = {f"a/{name}": array for name, array in found.items()}
    wanted["a/labels"] = found["labels"].astype("S")
    for change, agrees in (
        ({"scores": found["scores"] + 1e-5}, True),
        ({"scores": found["scores"] * np.nan}, False),
        ({"scores": found["scores"] + 1e-3}, False),
        ({"scores": found["scores"][:, :1]}, False),
        ({"labels": found["labels"][:, ::-1]}, False),
        ({"classes": np.array([1])}, False),
    ):
        result = verify._compared("a", "a", found | change, wanted, 1e-4)
        assert result.agrees == agrees, change


@pytest.mark.once
def test_classes_that_rounding_decides_are_open(small_run):
    network = serving.Inference(small_run[1])
    scores = np.array([[0.5, 0.2, 0.2 + 1e-5, 0.06, 0.04]])
    outputs = verify._classes(network, {"probabilities": scores})
    assert outputs["top_labels"].tolist() == [[b"0", b"", b"", b"3", b"4"]]
    assert outputs["classes"].tolist() == [0]


@pytest.mark.slow
def test_a_text_and_a_series_are_exported_by_keras(tmp_path, rng):
    tokens = tf.keras.Input((None,), dtype="int32", name="tokens")
    x = Keras.Embedding(256, 12)(tokens)
    x += LambdaLayer(12, num_heads=3, key_dim=4, scope=9, causal=True)(x)
    series = tf.keras.Input((None, 2), name="series")
    y = Keras.BatchNormalization()(Keras.Dense(12)(series))
    y = LambdaLayer(12, num_heads=3, key_dim=4, scope=7)(y)
    y = Keras.GlobalAveragePooling1D()(y)
    outputs = {"bytes": Keras.Dense(256)(x), "values": Keras.Dense(3)(y)}
    model = tf.keras.Model({"tokens": tokens, "series": series}, outputs)
    shake(model, rng)
    model.export(str(tmp_path / "1"))
    session = standalone.Session(tf, tmp_path / "1")
    for count in (1, 5):  # of other lengths
        inputs = {
            "tokens": rng.integers(0, 256, (count, 9 + 4 * count)),
            "series": checks.normal(rng, count, 10 + 4 * count, 2),
        }
        found = session.run("serving_default", inputs)
        wanted = model.predict(inputs, verbose=0)
        checks.assert_all_close(found, wanted, 1e-5)
