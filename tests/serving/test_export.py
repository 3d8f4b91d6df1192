"""Exports of runs, version folders, and what stands in them."""

import dataclasses
import gc
import hashlib
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import serving
from lambdanet_tf.analysis import trainable_parameters
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.serving import requests
from lambdanet_tf.serving import versions
from tests.support import serve_check
from tests.support.serving_run import CLASSES
from tests.support.serving_run import RUN
from tests.support.serving_run import SHAPE
from tests.support.serving_run import answer
from tests.support.serving_run import card_of
from tests.support.serving_run import classifier
from tests.support.serving_run import export


def write_version(base, version=None, name="m", has_rival=False):
    with versions.new_version(base, name, version) as new:
        (new.folder / "saved_model.pb").write_text("model")
        assert not new.final.exists()  # A reader never sees half of it.
        if has_rival:
            new.final.mkdir()
    return new.final


@pytest.mark.once
def test_versions_count_up_and_are_never_overwritten(tmp_path):
    first = write_version(tmp_path)
    before = {f: f.stat().st_mtime_ns for f in first.rglob("*")}
    second, third = write_version(tmp_path, 7), write_version(tmp_path)
    assert [final.name for final in (first, second, third)] == ["1", "7", "8"]
    with pytest.raises(ValueError, match=r"version=7; .*m holds \[1, 7, 8\]"):
        write_version(tmp_path, 7)
    assert serving.newest_export(tmp_path) == third
    with pytest.raises(OSError, match="written meanwhile"):
        write_version(tmp_path, 9, has_rival=True)
    assert write_version(tmp_path, has_rival=True).name == "11"
    assert {f: f.stat().st_mtime_ns for f in first.rglob("*")} == before
    found = {x.name: os.listdir(x) for x in (tmp_path / "m").iterdir()}
    assert found.keys() == {"1", "7", "8", "9", "10", "11"}
    assert found["9"] == found["10"] == []  # They are the rivals'.
    assert first.stat().st_mode & 0o777 == 0o755


def test_what_cannot_be_a_version_folder_is_named(tmp_path):
    for name in ("", "../up", "-flag"):
        with pytest.raises(ValueError, match="`name` must be made of letters"):
            write_version(tmp_path, name=name)
    for version in (0, True, "2"):
        with pytest.raises(ValueError, match="`version` must be a positive"):
            write_version(tmp_path, version)
    (tmp_path / "file").write_text("a file where a folder is wanted")
    with pytest.raises(OSError, match="Cannot write .*file"):
        write_version(tmp_path / "file")
    with pytest.raises(ValueError, match="holds no assets.extra/export.json"):
        serving.read_metadata(tmp_path)


# On a disk, and in a store, which is taken back after the third file.
@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize("address", ["", "file://"])
def test_a_failure_half_way_leaves_nothing(tmp_path, monkeypatch, address):
    module = tf.io.gfile if address else tf.saved_model
    name = "copy" if address else "save"
    write, written = getattr(module, name), []

    def fail(source, target, **arguments):
        write(source, target, **arguments)
        written.append(target)
        if not address or len(written) == 3:
            raise tf.errors.ResourceExhaustedError(None, None, "disk full")

    monkeypatch.setattr(module, name, fail)
    with pytest.raises(OSError, match="disk full. Nothing was left behind"):
        export(classifier(3, "softmax"), f"{address}{tmp_path}")
    assert os.listdir(tmp_path / "m") == []


@pytest.mark.once
@pytest.mark.thorough
def test_a_store_gets_what_a_disk_gets(small_run, small_export, tmp_path):
    store, run = f"ram://{tmp_path.name}/models", RunFolder(small_run[0]).read()
    options = serving.options_for(run, xla=True, formats=("tflite", "onnx"))
    for version in (1, 2):
        folder = serving.export_run(small_run[0], store, options=options)
        assert folder == f"{store}/LambdaResNetSmall/{version}"
    assert serving.newest_export(store) == folder
    there, here = map(serving.read_metadata, (folder, small_export))
    assert there["checksums"].keys() == here["checksums"].keys()
    assert serving.verify_export(folder).agrees
    assert "probability" in serving.prediction_table(folder)


RUNS = [
    ({"model": "LambdaResNetSmal"}, "Did you mean 'LambdaResNetSmall'"),
    ({"arguments": {"include_preprocessing": False}}, "preprocessing=False"),
    ({"status": "stopped"}, "`--unfinished`"),
    ({"arguments": {"input_shape": 8}}, "`arguments` must be .*_shape': 8}"),
    ({}, "examples.npz is damaged; delete it to export with noise"),
    (None, "has no run.json"),
]


@pytest.mark.representatives(len(RUNS), everywhere=True)
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


@pytest.mark.thorough
def test_a_run_of_the_other_keras_is_exported(tmp_path, rng):
    run = str(tmp_path / "run")
    program = f"import tests.support.serving_run as r; r.write_run({run!r})"
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "01"[KERAS_3]}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    final = serving.export_run(run, tmp_path / "exported")
    images = rng.uniform(0, 255, (2, *SHAPE)).astype(np.float32)
    wanted = RunFolder(run).read().load_model().predict(images, verbose=0)
    found = answer(final, images=images)["probabilities"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_the_card_says_what_a_stranger_must_know(small_run, small_export):
    card = card_of(small_export)
    for fact in (
        f"| trainable parameters | {trainable_parameters(small_run[1]):,} |",
        "| accuracy | 0.5 |",
        "`assets.extra/model.tflite`, `assets.extra/model.onnx`",
        "into 5 classes: zero, one, two, three, four.",
    ):
        assert fact in card
    sums = dict(re.findall(r"\| (\S+) \| ([0-9a-f]{64}) \|", card))
    files = {f for f in small_export.rglob("*") if f.is_file()}
    names = {f.relative_to(small_export).as_posix() for f in files}
    assert names - {*sums} == {"assets.extra/model_card.md"}
    for name, checksum in sums.items():
        content = (small_export / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == checksum


@pytest.mark.slow
def test_weights_in_half_the_space(small_run, tmp_path, rng):
    run = RunFolder(small_run[0]).read()
    options = serving.options_for(run, weights_dtype="bfloat16")
    final = serving.export_run(run, tmp_path, options=options)
    images = rng.uniform(0, 255, (5, *SHAPE)).astype(np.float32)
    found = answer(final, images=images)["probabilities"]
    difference = np.abs(found - small_run[1].predict(images, verbose=0))
    assert 0 < difference.max() < 2e-2
    for weight in tf.saved_model.load(str(final)).weights:
        is_large = weight.shape.rank > 1 and weight.shape.num_elements() >= 256
        assert weight.dtype == (tf.bfloat16 if is_large else tf.float32)
    gc.collect()  # What was loaded: see `answer`.


@pytest.mark.slow
@pytest.mark.once
def test_the_metadata_name_the_run_and_no_place(small_run, tmp_path):
    run = dataclasses.replace(
        RunFolder(small_run[0]).read(),
        status="stopped",
        recipe={"data": "folder:/home/me/my pictures"},
        command="python /opt/a/train.py --data='/home/me/my pictures' -o ./a/b",
    )
    folder = serving.export_run(run, tmp_path, unfinished=True)
    recorded = serving.read_metadata(folder)["metadata"]
    assert "metrics" not in recorded  # They are of former weights.
    assert recorded["run"] == small_run[0].name
    command = "python train.py --data='my pictures' -o ./a/b"
    assert recorded["command"] == command
    text = card_of(folder) + (folder / versions.METADATA_FILE).read_text()
    assert "/home" not in text
    assert str(tmp_path.parent) not in text


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
        "serving_default_xla": images | outputs,
        "serving_bytes": {"image_bytes": strings} | outputs,
        "classify": {"inputs": strings, "classes": labels, "scores": scores},
        "features": images | {"features": (tf.float32, [-1, 32])},
    }
    found = {
        name: {
            key: (x.dtype, [axis.size for axis in x.tensor_shape.dim])
            for tensors in (signature.inputs, signature.outputs)
            for key, x in tensors.items()
        }
        for name, signature in session.signatures.items()
        if not name.startswith("__")
    }
    assert found == wanted
    method = session.signatures["classify"].method_name
    assert method == "tensorflow/serving/classify"


@pytest.mark.parametrize("batch", [1, 5])
def test_all_signatures_agree_on_the_same_pixels(
    session, small_run, rng, batch
):
    close = {"rtol": 1e-4, "atol": 1e-7}
    images = rng.integers(0, 256, (batch, *SHAPE)).astype(np.float32)
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
    examples = [*map(requests.encoded_example, encoded)]
    classified = session.run("classify", {"inputs": np.array(examples, "O")})
    labels = np.array(CLASSES, "S")[np.argsort(-wanted, axis=-1)]
    np.testing.assert_array_equal(classified["classes"], labels)
    np.testing.assert_array_equal(default["top_labels"], labels)
    scores = -np.sort(-wanted, axis=-1)
    np.testing.assert_allclose(classified["scores"], scores, **close)
    # What this computes is verified: see test_verify.py.
    with pytest.raises(ValueError, match="needs XLA"):
        session.run("serving_default_xla", {"images": images})


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
    # What a server without XLA cannot run does not keep it from loading.
    assert "run: " in outputs(images, "serving_default_xla")
