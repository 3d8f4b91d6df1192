"""The verification of an export: it agrees with Keras, and can fail."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import cli
from lambdanet_tf import environment
from lambdanet_tf import models
from lambdanet_tf import serving
from lambdanet_tf.serving import standalone
from lambdanet_tf.serving import verify
from tests.support.serving_run import export
from tests.support.serving_run import shake

pytestmark = pytest.mark.once

SIGNATURES = ["serving_default", "serving_bytes", "features", "tflite", "onnx"]
WEIGHTS = "variables/variables.data-00000-of-00001"


@pytest.fixture
def copy(small_export, tmp_path):
    """A copy of an export, to change."""
    return shutil.copytree(small_export, tmp_path / "copy" / "m" / "1")


@pytest.mark.slow
def test_an_export_agrees_with_keras_without_keras(small_export, monkeypatch):
    own = standalone.run_standalone
    monkeypatch.setattr(verify, "run_standalone", own)
    result = serving.verify_export(small_export)
    assert result.agrees, str(result)
    assert result.images == 4
    assert [row.signature for row in result.signatures] == SIGNATURES
    for row in result.signatures:
        assert row.difference < 1e-5


def test_damaged_weights_do_not_load(copy, capsys, monkeypatch):
    own = standalone.run_standalone
    monkeypatch.setattr(verify, "run_standalone", own)
    content = bytearray((copy / WEIGHTS).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / WEIGHTS).write_bytes(content)
    assert cli.main(["verify", str(copy)]) == 2
    assert "does not run" in capsys.readouterr().err


def test_a_missing_file_is_named(copy, capsys):
    for name, message in (
        (verify.EXAMPLES_FILE, "examples.npz must be a whole .npz"),
        ("assets.extra/export.json", "has no assets.extra/export.json"),
    ):
        (copy / name).unlink()
        assert cli.main(["verify", str(copy)]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_another_model_is_noticed(copy, small_run, rng, capsys):
    """What the export computes differs from what Keras computed for it."""
    model = models.clone_network(small_run[1])
    model.set_weights(small_run[1].get_weights())
    shake(model, rng)
    other = export(model, copy.parents[2], "other")
    file = verify.EXAMPLES_FILE
    shutil.copy(other / file, copy / file)
    assert cli.main(["verify", str(copy)]) == 1
    assert capsys.readouterr().out.count("DIFFERENT") == len(SIGNATURES)


def test_outputs_are_compared_by_name_and_nan_is_noticed():
    def agrees(outputs):
        return verify._compared("a", "a", outputs, wanted, 1e-4).agrees

    scores, labels = np.array([[0.75, 0.25]]), np.array([[b"x", b"y"]])
    wanted = {
        "a/scores": scores,
        "a/labels": labels,
        "a/classes": np.array([0]),
    }
    found = {
        "scores": scores + 1e-5,
        "labels": labels.astype("O"),
        "classes": np.array([0]),
    }
    assert agrees(found)
    for change in (
        {"scores": scores * np.nan},
        {"scores": scores + 1e-3},
        {"scores": scores[:, :1]},
        {"labels": labels[:, ::-1].astype("O")},
        {"classes": np.array([1])},
    ):
        assert not agrees(found | change)


def test_classes_that_rounding_decides_are_open(small_run):
    network = serving.Inference(small_run[1])
    scores = np.array([[0.5, 0.2, 0.2 + 1e-5, 0.06, 0.04]])
    outputs = verify._classes(network, {"probabilities": scores})
    assert outputs["top_labels"].tolist() == [[b"0", b"", b"", b"3", b"4"]]
    assert outputs["classes"].tolist() == [0]


@pytest.mark.skipif(
    not environment.is_there("tensorflow_serving"), reason="needs the extra"
)
def test_the_export_answers_its_warm_up_requests(session, small_export):
    logs = environment.require(
        "tensorflow_serving.apis.prediction_log_pb2", extra="serving"
    )
    file = str(small_export / verify.WARMUP_FILE)
    answered = []
    for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
        request = logs.PredictionLog.FromString(record).predict_log.request
        inputs = {k: tf.make_ndarray(x) for k, x in request.inputs.items()}
        outputs = session.run(request.model_spec.signature_name, inputs)
        answered.append({len(x) for x in outputs.values()})
    assert answered == [{size} for size in (1, 8, 32) for _ in range(3)]
