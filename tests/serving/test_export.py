"""Exports of runs, version folders, and what stands in them."""

import dataclasses
import gc
import hashlib
import os
import re
import secrets
import shutil
import stat
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import serving
from lambdanet_tf.analysis import trainable_parameters
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.runs import WEIGHTS_FILE
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.serving import versions
from tests.support.serving_run import ARGUMENTS
from tests.support.serving_run import CLASSES
from tests.support.serving_run import RUN
from tests.support.serving_run import SHAPE
from tests.support.serving_run import answer
from tests.support.serving_run import card_of
from tests.support.serving_run import classifier
from tests.support.serving_run import export


@pytest.fixture
def load():
    """Loads exports, which are freed after the test: see `answer`."""
    yield lambda folder: tf.saved_model.load(str(folder))
    gc.collect()


def write_version(base, version=None, name="m"):
    with versions.new_version(base, name, version) as (folder, final):
        (folder / "saved_model.pb").write_text("model")
    return final


# Version folders.


@pytest.mark.once
def test_versions_count_up_and_are_never_overwritten(tmp_path):
    first = write_version(tmp_path)
    before = {f: f.stat().st_mtime_ns for f in first.rglob("*")}
    second, third = write_version(tmp_path, 7), write_version(tmp_path)
    assert [final.name for final in (first, second, third)] == ["1", "7", "8"]
    with pytest.raises(ValueError, match=r"version=7; .*m holds \[1, 7, 8\]"):
        write_version(tmp_path, 7)
    assert {f: f.stat().st_mtime_ns for f in first.rglob("*")} == before
    assert sorted(os.listdir(tmp_path / "m")) == ["1", "7", "8"]
    assert serving.newest_export(tmp_path) == third
    assert stat.S_IMODE(first.stat().st_mode) == 0o755


def test_a_reader_never_sees_half_a_version(tmp_path):
    with versions.new_version(tmp_path, "m") as (folder, final):
        (folder / "saved_model.pb").write_text("half")
        assert versions.list_versions(tmp_path / "m") == []
        assert not final.exists()
    assert versions.list_versions(tmp_path / "m") == [1]


def test_the_first_of_two_writers_of_a_version_wins(tmp_path):
    def second_writer():
        with versions.new_version(tmp_path, "m") as (folder, final):
            (folder / "who").write_text("second")
            final.mkdir()
            (final / "who").write_text("first")

    with pytest.raises(OSError, match="written meanwhile"):
        second_writer()
    assert (tmp_path / "m" / "1" / "who").read_text() == "first"
    assert os.listdir(tmp_path / "m") == ["1"]


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "../up", "-flag"])
def test_names_that_are_no_folder_are_rejected(tmp_path, name):
    with pytest.raises(ValueError, match="`name` must be made of letters"):
        write_version(tmp_path, name=name)


@pytest.mark.parametrize("version", [0, -1, True, 1.5, "2"])
def test_versions_that_are_no_positive_integer_are_rejected(tmp_path, version):
    with pytest.raises(ValueError, match="`version` must be a positive int"):
        write_version(tmp_path, version)


def test_a_destination_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("a file where a folder is wanted")
    with pytest.raises(OSError, match="Cannot write .*file"):
        write_version(tmp_path / "file")


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), 0])
def test_a_failure_half_way_leaves_nothing(tmp_path, monkeypatch, error):
    error = error or tf.errors.ResourceExhaustedError(None, None, "disk full")
    save = tf.saved_model.save

    def fail(module, folder, **arguments):
        save(module, folder, **arguments)
        raise error

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="Nothing was left behind"):
        export(classifier(3, "softmax"), tmp_path)
    assert os.listdir(tmp_path / "m") == []


@pytest.fixture
def store():
    """A folder of a file system that is not the disk."""
    return f"ram://{secrets.token_hex(8)}/models"


@pytest.mark.once
@pytest.mark.thorough
def test_a_store_gets_what_a_disk_gets(small_run, small_export, store):
    options = serving.options_for(
        RunFolder(small_run[0]).read(), xla=True, formats=("tflite", "onnx")
    )
    for version, changes in ((1, {"xla": False, "formats": ()}), (2, {})):
        folder = serving.export_run(
            small_run[0], store, options=dataclasses.replace(options, **changes)
        )
        assert folder == f"{store}/LambdaResNetSmall/{version}"
    assert serving.newest_export(store) == folder
    assert versions.list_versions(f"{store}/LambdaResNetSmall") == [1, 2]
    fields = serving.read_metadata(folder)
    known = serving.read_metadata(small_export)
    assert set(fields["checksums"]) == set(known["checksums"])
    assert serving.verify_export(folder).agrees
    assert "probability" in serving.prediction_table(folder)
    assert "logits" in answer(folder, images=tf.zeros((1, *SHAPE)))
    with pytest.raises(ValueError, match=r"version=2; .*holds \[1, 2\]"):
        serving.export_run(small_run[0], store, version=2)


@pytest.mark.slow
@pytest.mark.once
def test_half_an_upload_is_taken_back(tmp_path, monkeypatch):
    store = f"file://{tmp_path}"  # as a store, though it is the disk
    copied, copy = [], tf.io.gfile.copy

    def fail_at_last(source, target):
        copied.append(target)
        if target.endswith("saved_model.pb"):
            raise tf.errors.UnavailableError(None, None, "gone")
        copy(source, target)

    monkeypatch.setattr(tf.io.gfile, "copy", fail_at_last)
    with pytest.raises(OSError, match="gone. Nothing was left behind"):
        export(classifier(3, "softmax"), store)
    assert len(copied) > 5
    assert os.listdir(tmp_path / "m") == []
    monkeypatch.undo()
    assert export(classifier(3, "softmax"), store) == f"{store}/m/1"


# Runs.


@pytest.mark.representatives(7, everywhere=True)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"status": "asleep"}, "`status` must be one of .*'asleep'"),
        ({"model": "LambdaResNetSmal"}, "Did you mean 'LambdaResNetSmall'"),
        (
            {"arguments": {"include_preprocessing": False}},
            "Received: include_preprocessing=False",
        ),
        (
            {"arguments": {**ARGUMENTS, "widths": [16]}},
            "`weights` must fit the model",
        ),
        ({"status": "running"}, "finished run. Received .* 'running'"),
        ({"status": "stopped"}, "`--unfinished`"),
        (None, "has no run.json"),
    ],
)
def test_foreign_and_unfinished_runs_are_rejected(
    small_run, tmp_path, changes, message
):
    folder = tmp_path / "run"
    if changes is not None:
        shutil.copytree(small_run[0], folder)
        RunFolder(folder).write(dataclasses.replace(RUN, **changes))
    with pytest.raises(ValueError, match=message):
        serving.export_run(folder, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


@pytest.mark.thorough
def test_a_run_of_the_other_keras_is_exported(tmp_path, rng):
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "01"[KERAS_3]}
    run = str(tmp_path / "run")
    program = [sys.executable, "-m", "tests.support.serving_run", run]
    subprocess.run(program, env=environment, check=True)
    final = serving.export_run(run, tmp_path / "exported")
    images = rng.uniform(0, 255, (2, *SHAPE)).astype(np.float32)
    wanted = RunFolder(run).read().load_model().predict(images, verbose=0)
    found = answer(final, images=images)["probabilities"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


# What stands in a version folder.


@pytest.mark.slow
def test_only_what_inference_reads_is_saved(small_run, small_export, load):
    loaded = load(small_export)
    saved = sum(w.shape.num_elements() for w in loaded.weights)
    # Of four numbers per channel of a folded norm, a bias remains.
    assert saved < small_run[1].count_params()
    training_only = {"AssignVariableOp", "RandomUniform", "AssignAddVariableOp"}
    for name in ("serving_default", "serving_bytes"):
        graph = loaded.signatures[name].graph.as_graph_def()
        for body in (graph, *graph.library.function):
            nodes = getattr(body, "node", None) or body.node_def
            assert not {node.op for node in nodes} & training_only


def test_the_card_says_what_a_stranger_must_know(small_run, small_export):
    card = card_of(small_export)
    for fact in (
        f"| trainable parameters | {trainable_parameters(small_run[1]):,} |",
        "LambdaResNetSmall",
        "[0, 255]",
        "| accuracy | 0.5 |",
        "python train.py",
        tf.__version__,
        "8x7",
        "million, 2 per multiply-add",
        "`assets.extra/model.tflite`, `assets.extra/model.onnx`",
        "## Intended use and limits",
        "into 5 classes: zero, one, two, three, four.",
        "test images of the same origin: 50.00%",
        "an image that shows none of them",
    ):
        assert fact in card
    sums = dict(re.findall(r"\| (\S+) \| ([0-9a-f]{64}) \|", card))
    files = {f for f in small_export.rglob("*") if f.is_file()}
    names = {f.relative_to(small_export).as_posix() for f in files}
    assert names - {*sums} == {"assets.extra/model_card.md"}
    for name, checksum in sums.items():
        content = (small_export / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == checksum


def test_the_example_image_is_the_first_test_image(small_export):
    file = small_export / "assets.extra/example.png"
    images = np.load(small_export / "assets.extra/examples.npz")["images"]
    pixels = tf.io.decode_png(file.read_bytes()).numpy()
    np.testing.assert_array_equal(pixels, np.rint(images[0]))


@pytest.mark.slow
def test_weights_in_half_the_space(small_run, tmp_path, rng, load):
    run = RunFolder(small_run[0]).read()
    options = serving.options_for(run, weights_dtype="bfloat16")
    final = serving.export_run(run, tmp_path, options=options)
    loaded = load(final)
    for weight in loaded.weights:
        is_large = weight.shape.rank > 1 and weight.shape.num_elements() >= 256
        assert weight.dtype == (tf.bfloat16 if is_large else tf.float32)
    images = rng.uniform(0, 255, (5, *SHAPE)).astype(np.float32)
    outputs = loaded.signatures["serving_default"](images=tf.constant(images))
    wanted = small_run[1].predict(images, verbose=0)
    difference = np.abs(outputs["probabilities"] - wanted).max()
    assert 0 < difference < 2e-2


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize("activation", [None, "softmax"])
def test_any_keras_classifier_can_be_exported(tmp_path, rng, activation):
    model = classifier(3, activation, use_bias=activation is None)
    final = export(model, tmp_path, classifier_activation="softmax")
    images = rng.uniform(0, 255, (2, 8, 8, 3)).astype(np.float32)
    outputs = answer(final, images=images)
    np.testing.assert_allclose(
        outputs["probabilities" if activation else "logits"],
        model.predict(images, verbose=0),
        rtol=1e-4,
    )
    assert set(outputs["top_labels"].flat) == {b"0", b"1", b"2"}
    assert "Its accuracy is not recorded." in card_of(final)


def test_metadata_of_a_foreign_folder(tmp_path):
    with pytest.raises(ValueError, match="holds no assets.extra/export.json"):
        serving.read_metadata(tmp_path)


@pytest.mark.slow
@pytest.mark.once
def test_the_metadata_name_the_run_and_no_place(
    small_run, small_export, tmp_path
):
    fields = serving.read_metadata(small_export)
    assert fields["labels"] == [*CLASSES]
    assert fields["metadata"]["metrics"] == RUN.metrics
    assert fields["metadata"]["run"] == small_run[0].name
    assert fields["metadata"]["weights"] == WEIGHTS_FILE
    run = dataclasses.replace(
        RunFolder(small_run[0]).read(),
        recipe={"data": "folder:/home/me/my pictures", "source": "gs://b/x"},
        command="python /opt/a/train.py --data='/home/me/my pictures' -o ./a/b",
    )
    folder = serving.export_run(run, tmp_path)
    recorded = serving.read_metadata(folder)["metadata"]
    assert recorded["recipe"] == {
        "data": "folder:my pictures",
        "source": "gs://b/x",
    }
    assert (
        recorded["command"] == "python train.py --data='my pictures' -o ./a/b"
    )
    for file in ("export.json", "model_card.md"):
        text = (folder / "assets.extra" / file).read_text(encoding="utf-8")
        assert "/home" not in text
        assert str(tmp_path.parent) not in text
