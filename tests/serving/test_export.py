"""Exports of runs, version folders, and what stands in them."""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import serving
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.serving import standalone
from lambdanet_tf.serving import versions
from tests.support import checks
from tests.support import serve_check
from tests.support.serving_run import CLASSES
from tests.support.serving_run import RUN
from tests.support.serving_run import SHAPE
from tests.support.serving_run import answer
from tests.support.serving_run import card_of
from tests.support.serving_run import classifier
from tests.support.serving_run import export
from tests.support.serving_run import shake

Keras = tf.keras.layers


def write_version(base, version=None, name="m", rival=None):
    def write(folder):
        pathlib.Path(folder, "saved_model.pb").write_text("model")
        versions.write_file(folder, versions.METADATA_FILE, b"{}")
        if rival is not None:
            (base / name / rival).mkdir()

    return versions.write_version(base, name, version, write)


@pytest.mark.once
def test_versions_count_up_and_are_never_overwritten(tmp_path):
    first = write_version(tmp_path)
    before = {f: f.stat().st_mtime_ns for f in first.rglob("*")}
    second, third = write_version(tmp_path, 7), write_version(tmp_path)
    assert [final.name for final in (first, second, third)] == ["1", "7", "8"]
    with pytest.raises(ValueError, match=r"version=7; .*m holds \[1, 7, 8\]"):
        write_version(tmp_path, 7)
    assert serving.newest_export(tmp_path) == third
    with pytest.raises(ValueError, match=r"holds \[1, 7, 8, 9\]"):
        write_version(tmp_path, 9, rival="9")
    assert write_version(tmp_path, rival="10").name == "11"
    assert {f: f.stat().st_mtime_ns for f in first.rglob("*")} == before
    found = {x.name: os.listdir(x) for x in (tmp_path / "m").iterdir()}
    assert found.keys() == {"1", "7", "8", "9", "10", "11"}
    assert found["9"] == found["10"] == []  # They are the rivals'.
    assert first.stat().st_mode & 0o777 == 0o755
    (tmp_path / "file").write_text("a file where a folder is wanted")
    with pytest.raises(OSError, match="Cannot write .*file"):
        write_version(tmp_path / "file")
    for wrong, message in (
        *(({"name": x}, "`name` must be made of") for x in ("", "../up", "-f")),
        *(({"version": x}, "must be new, and from 1 to") for x in (0, 2**63)),
    ):
        with pytest.raises(ValueError, match=message):
            write_version(tmp_path, **wrong)
    for read, message in (
        (serving.read_metadata, "Cannot read .*export.json"),
        (serving.newest_export, "`folder` must be an export, or"),
    ):
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "file")


@pytest.mark.once
def test_a_failure_half_way_leaves_nothing(tmp_path, monkeypatch):
    save = tf.saved_model.save

    def fail(*arguments, **options):
        save(*arguments, **options)
        raise tf.errors.ResourceExhaustedError(None, None, "disk full")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        export(classifier(3, "softmax"), tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
@pytest.mark.once
def test_the_next_export_removes_what_a_killed_one_left(tmp_path, capsys):
    program = f"""
import time
from lambdanet_tf.serving import versions
def write(folder):
    print(folder, flush=True)
    time.sleep(600)
versions.write_version({str(tmp_path)!r}, "m", None, write)
"""
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
    assert f"Removed {scratch}, which a killed" in capsys.readouterr().out


@pytest.mark.once
def test_another_file_system_is_written_by_tensorflow(small_run, tmp_path):
    store = f"file://{tmp_path}/models"
    for version in (1, 2):
        folder = serving.export_run(small_run[0], store)
        assert folder == f"{store}/LambdaResNetSmall/{version}"
    assert serving.newest_export(store) == folder
    assert serving.verify_export(folder).agrees
    [found] = serving.predict_files(
        folder, [f"{folder}/{serving.EXAMPLE_IMAGE}"]
    )
    assert found.classes


RUNS = [
    ({"model": "LambdaResNetSmal"}, "Did you mean 'LambdaResNetSmall'"),
    ({"status": "stopped"}, "`--unfinished`"),
    ({}, "examples.npz must be a whole .npz file"),
    (None, "has no run.json"),
]


@pytest.mark.parametrize(("changes", "message"), RUNS)
def test_foreign_runs_are_rejected(small_run, tmp_path, changes, message):
    folder = tmp_path / "run"
    if changes is not None:
        shutil.copytree(small_run[0], folder)
        (folder / "examples.npz").write_bytes(b"PK")
        RunFolder(folder).write(dataclasses.replace(RUN, **changes))
    with pytest.raises(ValueError, match=message):
        serving.export_run(folder, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


@pytest.mark.slow
def test_a_stopped_run_of_the_other_keras_is_exported(tmp_path, rng):
    run = str(tmp_path / "run")
    program = "from tests.support.serving_run import write_run\n"
    program += f"write_run({run!r}, status='stopped')"
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "01"[KERAS_3]}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    final = serving.export_run(run, tmp_path / "exported", unfinished=True)
    images = rng.uniform(0, 255, (2, *SHAPE)).astype(np.float32)
    wanted = RunFolder(run).read().load_model().predict(images, verbose=0)
    found = answer(final, images=images)["probabilities"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    recorded = serving.read_metadata(final)["metadata"]
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


def test_names_dtypes_and_shapes_are_the_contract(session):
    scores, strings = (tf.float32, [-1, 5]), (tf.string, [-1])
    images = {"images": (tf.float32, [-1, *SHAPE])}
    labels = tf.string, [-1, len(CLASSES)]
    outputs = {
        "logits": scores,
        "probabilities": scores,
        "classes": (tf.int64, [-1]),
        "top_labels": labels,
        "top_probabilities": scores,
    }
    wanted = {
        "serving_default": images | outputs,
        "serving_bytes": {"image_bytes": strings} | outputs,
        "features": images | {"features": (tf.float32, [-1, 32])},
    }
    found = {
        name: {
            key: (x.dtype, [axis.size for axis in x.tensor_shape.dim])
            for tensors in (signature.inputs, signature.outputs)
            for key, x in tensors.items()
        }
        for name, signature in session.signatures.items()
    }
    assert found == wanted


def test_all_signatures_agree_on_the_same_pixels(session, small_run, rng):
    close = {"rtol": 1e-4, "atol": 1e-7}
    images = rng.integers(0, 256, (5, *SHAPE)).astype(np.float32)
    encoded = [tf.io.encode_png(x.astype(np.uint8)).numpy() for x in images]
    wanted = small_run[1].predict(images, verbose=0)
    default = session.run("serving_default", {"images": images})
    strings = {"image_bytes": np.array(encoded, "O")}
    for outputs in (default, session.run("serving_bytes", strings)):
        np.testing.assert_allclose(outputs["probabilities"], wanted, **close)
        np.testing.assert_array_equal(outputs["classes"], wanted.argmax(-1))
    features = session.run("features", {"images": images})["features"]
    kernel, bias = small_run[1].layers[-1].get_weights()
    logits = features @ kernel + bias
    np.testing.assert_allclose(logits, default["logits"], rtol=1e-4, atol=1e-6)
    labels = np.array(CLASSES, "S")[np.argsort(-wanted, axis=-1)]
    np.testing.assert_array_equal(default["top_labels"], labels)
    scores = -np.sort(-wanted, axis=-1)
    np.testing.assert_allclose(default["top_probabilities"], scores, **close)


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_an_export_runs_in_cc_with_xla_off(
    small_run, small_export, pytestconfig, tmp_path, rng
):
    program = serve_check.build(pytestconfig.cache.mkdir("serve_check"))
    images = rng.uniform(0, 255, (3, *SHAPE)).astype(np.float32)

    def outputs(images, signature="serving_default", output="probabilities"):
        return serve_check.run(
            program, small_export, images, tmp_path, signature, "images", output
        )

    wanted = small_run[1].predict(images, verbose=0)
    np.testing.assert_allclose(outputs(images), wanted, rtol=1e-4, atol=1e-7)
    assert outputs(images, "features", "features").shape == (3, 32)
    assert "not finite" in outputs(images * np.nan)


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
