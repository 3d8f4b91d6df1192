"""The verification of an export: it agrees with Keras, and can fail."""

import json
import shutil

import numpy as np
import pytest

from lambdanet_tf import cli
from lambdanet_tf import models
from lambdanet_tf import serving
from lambdanet_tf.serving import standalone
from lambdanet_tf.serving import verify
from lambdanet_tf.serving import versions
from lambdanet_tf.serving.requests import EXAMPLES_FILE
from tests.support.serving_run import CLASSES
from tests.support.serving_run import export
from tests.support.serving_run import shake

pytestmark = pytest.mark.once

SIGNATURES = ["serving_default", "serving_bytes", "classify", "features"]
SIGNATURES += ["serving_default_xla", "tflite", "onnx"]
FILES = ["variables/variables.data-00000-of-00001", "assets.extra/model.onnx"]


@pytest.fixture
def copy(small_export, tmp_path):
    """A copy of an export, to change."""
    return shutil.copytree(small_export, tmp_path / "copy" / "m" / "1")


@pytest.mark.slow
def test_an_export_agrees_with_keras_without_keras(small_export, monkeypatch):
    own = standalone.run_standalone  # Not the one that the tests share.
    monkeypatch.setattr(verify, "run_standalone", own)
    result = serving.verify_export(small_export, (1, 2))
    assert result.agrees, str(result)
    assert result.examples == 4
    assert result.warmup_requests == 12
    assert [row.signature for row in result.signatures] == SIGNATURES
    for row in result.signatures:
        assert row.difference < 1e-5
        assert set(row.milliseconds) == {1, 2}
    assert result.signatures[0].shapes["probabilities"] == (4, len(CLASSES))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_one_byte_is_noticed(copy, name, place, capsys):
    content = bytearray((copy / name).read_bytes())
    content[int(place * len(content))] ^= 1
    (copy / name).write_bytes(content)
    assert cli.export(["--verify", str(copy)]) == 1
    assert f"DIFFERENT from what was written: {name}" in capsys.readouterr().out


JSON, CARD = "assets.extra/export.json", "assets.extra/model_card.md"
DAMAGES = [
    (CARD, "# mine", f"written: {JSON} or {CARD}"),
    (JSON, {"checksums": {}}, "written: saved_model.pb"),
    (JSON, {"checksums": []}, "export.json is damaged: its `checksums`"),
    (JSON, "[1]", "export.json is damaged: its `checksums`"),
    (JSON, {"labels": ["a"]}, "is damaged: of 5 `labels` it has 1"),
    (EXAMPLES_FILE, "PK", "examples.npz must be a whole .npz"),
]


def test_a_letter_of_the_card_is_noticed(copy):
    sums, card = serving.read_metadata(copy)["checksums"], copy / CARD
    text = card.read_text()
    for changed in (text, text.replace("## ", "##  ", 1), text + "more"):
        card.write_text(changed)
        found = versions.changed_files(copy, sums)
        assert found == ([f"{JSON} or {CARD}"] if changed != text else [])


@pytest.mark.parametrize(("name", "content", "message"), DAMAGES)
def test_what_is_damaged_is_named(copy, name, content, message, capsys):
    if isinstance(content, dict):
        content = json.dumps({**serving.read_metadata(copy), **content})
    (copy / name).write_text(content)
    assert cli.export(["--verify", str(copy)]) == 1 + ("its `" in message)
    cli.export(["--predict", str(copy)])
    assert message in "".join(capsys.readouterr())


@pytest.mark.thorough
def test_another_model_is_noticed(copy, small_run, rng, capsys, monkeypatch):
    """What the export computes differs from what Keras computed for it."""
    model = models.clone_network(small_run[1])
    model.set_weights(small_run[1].get_weights())
    shake(model, rng)
    other = export(model, copy.parents[2], "other")
    shutil.copy(other / EXAMPLES_FILE, copy / EXAMPLES_FILE)
    monkeypatch.setattr(verify, "changed_files", lambda *_: [])
    assert cli.export(["--verify", f"--destination={copy.parents[1]}"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("DIFFERENT") == len(SIGNATURES)
    assert "ms/image at 32" in shown


def test_nan_is_noticed_unless_keras_computes_it():
    nan, zeros = np.array([np.nan, 0.0]), np.zeros(2)
    arrays = {"of_tensors/a": zeros, "of_tensors/b": zeros, "of_tensors/c": nan}
    keras = verify._Keras(arrays, None, "float32", "float32")
    for b, c, agrees in ((zeros, nan, True), (nan, nan, False)):
        outputs = {"a": zeros, "b": b, "c": c}
        assert keras.result("features", outputs, {}).agrees == agrees
