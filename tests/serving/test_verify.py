"""The verification of an export: it agrees with Keras, and can fail."""

import shutil

import numpy as np
import pytest

from lambdanet_tf import cli
from lambdanet_tf import serving
from lambdanet_tf.files import read_arrays
from lambdanet_tf.serving import standalone
from lambdanet_tf.serving import verify

pytestmark = pytest.mark.once

SIGNATURES = ["serving_default", "serving_bytes", "features", "tflite", "onnx"]


@pytest.mark.slow
def test_an_export_agrees_with_keras_without_keras_or_its_faults_are_said(
    small_export, tmp_path, monkeypatch, capsys
):
    own = standalone.run_standalone
    monkeypatch.setattr(verify, "run_standalone", own)
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
        (examples, "examples.npz must be a whole .npz"),
        (copy / "assets.extra/export.json", "has no assets.extra/export.json"),
    ):
        file.unlink()
        status, said = verified()
        assert (status, message in said) == (2, True)


def test_outputs_are_compared_by_name_and_nan_is_noticed():
    scores, labels = np.array([[0.75, 0.25]]), np.array([[b"x", b"y"]])
    classes = np.array([0])
    names = ("a/scores", "a/labels", "a/classes")
    wanted = dict(zip(names, (scores, labels, classes), strict=True))
    found = {"scores": scores + 1e-5, "labels": labels.astype("O")}
    found["classes"] = classes
    for change, agrees in (
        ({}, True),
        ({"scores": scores * np.nan}, False),
        ({"scores": scores + 1e-3}, False),
        ({"scores": scores[:, :1]}, False),
        ({"labels": labels[:, ::-1].astype("O")}, False),
        ({"classes": classes + 1}, False),
    ):
        result = verify._compared("a", "a", found | change, wanted, 1e-4)
        assert result.agrees == agrees, change


def test_classes_that_rounding_decides_are_open(small_run):
    network = serving.Inference(small_run[1])
    scores = np.array([[0.5, 0.2, 0.2 + 1e-5, 0.06, 0.04]])
    outputs = verify._classes(network, {"probabilities": scores})
    assert outputs["top_labels"].tolist() == [[b"0", b"", b"", b"3", b"4"]]
    assert outputs["classes"].tolist() == [0]
