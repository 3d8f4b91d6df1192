"""The signatures of an export: names, shapes, values, labels, warm-up."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import fingerprint_pb2
from tensorflow.python.saved_model.pywrap_saved_model import fingerprinting

from lambdanet_tf.serving import requests
from tests.support.serving_run import CLASSES
from tests.support.serving_run import SHAPE
from tests.support.serving_run import classifier
from tests.support.serving_run import export


@pytest.fixture
def images(rng):
    """Five images of whole pixels."""
    return rng.integers(0, 256, (5, *SHAPE)).astype(np.float32)


def strings(values):
    return np.array(list(values), "O")


def pngs(images):
    return [tf.io.encode_png(i.astype(np.uint8)).numpy() for i in images]


def test_names_dtypes_and_shapes_are_the_contract(session):
    string, size = tf.string.as_datatype_enum, len(CLASSES)
    number, whole = tf.float32.as_datatype_enum, tf.int64.as_datatype_enum
    outputs = {
        "logits": (number, [-1, size]),
        "probabilities": (number, [-1, size]),
        "classes": (whole, [-1]),
        "top_labels": (string, [-1, 5]),
        "top_probabilities": (number, [-1, 5]),
    }
    images = {"images": (number, [-1, *SHAPE])}
    wanted = {
        "serving_default": (images, outputs),
        "serving_default_xla": (images, outputs),
        "serving_bytes": ({"image_bytes": (string, [-1])}, outputs),
        "classify": (
            {"inputs": (string, [-1])},
            {"classes": (string, [-1, 5]), "scores": (number, [-1, 5])},
        ),
        "features": (images, {"features": (number, [-1, 32])}),
    }
    found = {
        name: tuple(
            {
                key: (info.dtype, [dim.size for dim in info.tensor_shape.dim])
                for key, info in tensors.items()
            }
            for tensors in (signature.inputs, signature.outputs)
        )
        for name, signature in session.signatures.items()
        if not name.startswith("__")
    }
    assert found == wanted
    methods = {k: v.method_name for k, v in session.signatures.items()}
    assert methods["classify"] == "tensorflow/serving/classify"
    for name in ("serving_default", "serving_bytes", "features"):
        assert methods[name] == "tensorflow/serving/predict"


@pytest.mark.parametrize("batch", [1, 3, 5])
def test_all_signatures_agree_on_the_same_pixels(
    session, small_run, images, batch
):
    images = images[:batch]
    encoded = pngs(images)
    wanted = small_run[1].predict(images, verbose=0)
    default = session.run("serving_default", {"images": images})
    from_bytes = session.run("serving_bytes", {"image_bytes": strings(encoded)})
    for outputs in (default, from_bytes):
        np.testing.assert_allclose(
            outputs["probabilities"], wanted, rtol=1e-4, atol=1e-7
        )
        np.testing.assert_array_equal(outputs["classes"], wanted.argmax(-1))
    examples = strings(map(requests.encoded_example, encoded))
    classified = session.run("classify", {"inputs": examples})
    order = np.argsort(-wanted, axis=-1)
    labels = np.array([label.encode() for label in CLASSES])[order]
    np.testing.assert_array_equal(classified["classes"], labels)
    np.testing.assert_array_equal(default["top_labels"], labels)
    np.testing.assert_allclose(
        classified["scores"], -np.sort(-wanted, axis=-1), rtol=1e-4, atol=1e-7
    )


def test_features_are_the_inputs_of_the_classifier(session, small_run, images):
    head = small_run[1].layers[-1]
    features = session.run("features", {"images": images})["features"]
    kernel, bias = head.get_weights()
    logits = session.run("serving_default", {"images": images})["logits"]
    np.testing.assert_allclose(
        features @ kernel + bias, logits, rtol=1e-4, atol=1e-6
    )


def test_labels_come_from_an_asset(small_export):
    # The labels of the values above came from a file that is gone.
    text = (small_export / "assets/labels.txt").read_text()
    assert text.split() == [*CLASSES]


def test_xla_is_a_signature_of_its_own(session, images):
    """What it computes is verified: see test_verify.py."""
    with pytest.raises(ValueError, match="needs XLA"):
        session.run("serving_default_xla", {"images": images})


def test_the_fingerprint_is_that_of_the_file_beside_it(small_export):
    found, wanted = (
        fingerprint_pb2.FingerprintDef.FromString(read(str(small_export)))
        for read in (
            fingerprinting.ReadSavedModelFingerprint,
            fingerprinting.CreateFingerprintDef,
        )
    )
    assert found.uuid != wanted.uuid  # a random number
    found.uuid = wanted.uuid
    assert found == wanted


def test_warmup_requests_are_what_tf_serving_parses(small_export, session):
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    records = tf.data.TFRecordDataset(str(small_export / requests.WARMUP_FILE))
    signatures = []
    for record in records.as_numpy_iterator():
        log = logs.PredictionLog.FromString(record)
        kind = log.WhichOneof("log_type")
        request = getattr(log, kind).request
        signatures.append((request.model_spec.signature_name, kind))
        assert request.model_spec.name == "LambdaResNetSmall"
    assert set(signatures) == {
        ("serving_default", "predict_log"),
        ("serving_bytes", "predict_log"),
        ("features", "predict_log"),
        ("classify", "classify_log"),
    }
    for signature, inputs in requests.read_warmup(small_export):
        assert session.run(signature, inputs)


@pytest.mark.slow
def test_without_the_extra_an_export_has_no_warmup_requests(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(requests, "is_there", lambda _: False)
    final = export(classifier(2, "softmax"), tmp_path)
    assert not (final / requests.WARMUP_FILE).exists()
    assert requests.read_warmup(final) is None
