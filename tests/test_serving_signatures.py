"""The signatures of an export: names, shapes, values, assets, warm-up."""

import hashlib
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import fingerprint_pb2
from tensorflow.python.saved_model.pywrap_saved_model import fingerprinting

from lambdanet_tf import serving
from lambdanet_tf.serving import fresh_process
from lambdanet_tf.serving import warmup
from tests.serving_run import CLASSES
from tests.serving_run import shake
from tests.serving_run import write_run

SHAPE = (8, 7, 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run and its Keras model."""
    return write_run(tmp_path_factory.mktemp("runs") / "20250101-000000")


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    """The export of that run."""
    return serving.export_run(run[0], tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def server(exported):
    """The export, loaded as TF Serving loads it."""
    return fresh_process.Server(tf, exported)


@pytest.fixture
def images(rng):
    """Five images of whole pixels."""
    return rng.integers(0, 256, (5, *SHAPE)).astype(np.float32)


def strings(values):
    return np.array(list(values), "O")


def pngs(images):
    return [tf.io.encode_png(i.astype(np.uint8)).numpy() for i in images]


def test_the_check_in_a_fresh_process_agrees_with_keras(run, exported, images):
    options = serving.options_of(serving.read_run(run[0]))
    check = serving.check_export(exported, run[1], options, images, (1, 2), 1)
    assert check.agrees, str(check)
    assert check.warmup_requests == 12
    assert [row.signature for row in check.signatures] == [
        "serving_default",
        "serving_bytes",
        "classify",
        "features",
    ]
    for row in check.signatures:
        assert row.difference < 1e-5
        assert set(row.milliseconds) == {1, 2}
    assert check.signatures[0].shapes["probabilities"] == (5, len(CLASSES))
    assert "ms/image at 2" in str(check)


def test_the_check_notices_another_model(exported, tmp_path, images, rng):
    _, other = write_run(tmp_path / "other")
    shake(other, rng)
    options = serving.ServingOptions(labels=CLASSES)
    check = serving.check_export(exported, other, options, images)
    assert not check.agrees
    assert "DIFFERENT" in str(check)


def test_names_dtypes_and_shapes_are_the_contract(server):
    string, size = tf.string.as_datatype_enum, len(CLASSES)
    number, whole = tf.float32.as_datatype_enum, tf.int64.as_datatype_enum
    answer = {
        "logits": (number, [-1, size]),
        "probabilities": (number, [-1, size]),
        "classes": (whole, [-1]),
        "top_labels": (string, [-1, 5]),
        "top_probabilities": (number, [-1, 5]),
    }
    images = {"images": (number, [-1, *SHAPE])}
    wanted = {
        "serving_default": (images, answer),
        "serving_bytes": ({"image_bytes": (string, [-1])}, answer),
        "classify": (
            {"inputs": (string, [-1])},
            {"classes": (string, [-1, 5]), "scores": (number, [-1, 5])},
        ),
        "features": (images, {"features": (number, [-1, 32])}),
    }
    found = {
        name: (_described(signature.inputs), _described(signature.outputs))
        for name, signature in server.signatures.items()
        if not name.startswith("__")
    }
    assert found == wanted
    methods = {k: v.method_name for k, v in server.signatures.items()}
    assert methods["classify"] == "tensorflow/serving/classify"
    for name in ("serving_default", "serving_bytes", "features"):
        assert methods[name] == "tensorflow/serving/predict"


def _described(tensors):
    return {
        name: (info.dtype, [dim.size for dim in info.tensor_shape.dim])
        for name, info in tensors.items()
    }


@pytest.mark.parametrize("batch", [1, 3, 5])
def test_all_signatures_say_the_same_about_the_same_pixels(
    server, run, images, batch
):
    images = images[:batch]
    encoded = pngs(images)
    wanted = run[1].predict(images, verbose=0)
    default = server.answer("serving_default", {"images": images})
    from_bytes = server.answer(
        "serving_bytes", {"image_bytes": strings(encoded)}
    )
    for answer in (default, from_bytes):
        np.testing.assert_allclose(
            answer["probabilities"], wanted, rtol=1e-4, atol=1e-7
        )
        np.testing.assert_array_equal(answer["classes"], wanted.argmax(-1))
    examples = strings(map(warmup.example_of, encoded))
    classified = server.answer("classify", {"inputs": examples})
    order = np.argsort(-wanted, axis=-1)
    labels = np.array([label.encode() for label in CLASSES])[order]
    np.testing.assert_array_equal(classified["classes"], labels)
    np.testing.assert_array_equal(default["top_labels"], labels)
    np.testing.assert_allclose(
        classified["scores"], -np.sort(-wanted, axis=-1), rtol=1e-4, atol=1e-7
    )


def test_features_are_what_the_classifier_sees(server, run, images):
    head = run[1].layers[-1]
    features = server.answer("features", {"images": images})["features"]
    kernel, bias = head.get_weights()
    logits = server.answer("serving_default", {"images": images})["logits"]
    np.testing.assert_allclose(
        features @ kernel + bias, logits, rtol=1e-4, atol=1e-6
    )


def test_labels_come_from_an_asset_and_survive_the_original(server, exported):
    assert (exported / "assets/labels.txt").read_text().split() == [*CLASSES]
    assert (
        server.answer_or_error(
            "serving_default", {"images": np.zeros((1, *SHAPE), np.float32)}
        )["top_labels"][0].tolist()
        != [b""] * 5
    )


def test_only_what_inference_reads_is_saved(run, exported):
    loaded = tf.saved_model.load(str(exported))
    saved = sum(w.shape.num_elements() for w in loaded.network.weights)
    # Of four numbers per channel of a folded norm, a bias remains.
    assert saved < run[1].count_params()
    graphs = [
        loaded.signatures[name].graph.as_graph_def()
        for name in ("serving_default", "serving_bytes")
    ]
    operations = {
        node.op
        for graph in graphs
        for body in (graph, *graph.library.function)
        for node in getattr(body, "node", None) or body.node_def
    }
    training_only = {"AssignVariableOp", "RandomUniform", "AssignAddVariableOp"}
    assert not operations & training_only


def test_the_fingerprint_is_that_of_the_file_beside_it(exported):
    found, wanted = (
        fingerprint_pb2.FingerprintDef.FromString(read(str(exported)))
        for read in (
            fingerprinting.ReadSavedModelFingerprint,
            fingerprinting.CreateFingerprintDef,
        )
    )
    assert found.uuid != wanted.uuid  # a random number
    found.uuid = wanted.uuid
    assert found == wanted


def test_the_card_says_what_a_stranger_must_know(run, exported):
    card = (exported / "assets.extra/model_card.md").read_text()
    assert f"| parameters | {run[1].count_params():,} |" in card
    for fact in (
        "LambdaResNetSmall",
        "[0, 255]",
        "| accuracy | 0.5 |",
        "python train.py",
        tf.__version__,
        "8x7",
    ):
        assert fact in card
    sums = dict(re.findall(r"\| (\S+) \| ([0-9a-f]{64}) \|", card))
    assert "saved_model.pb" in sums
    for name, checksum in sums.items():
        content = (exported / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == checksum


def test_warmup_requests_are_what_tf_serving_parses(exported, server):
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    records = tf.data.TFRecordDataset(str(exported / warmup.WARMUP_FILE))
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
    for signature, tensors in warmup.read_warmup_requests(exported):
        assert "error" not in server.answer_or_error(signature, tensors)


def test_more_warmup_requests_than_a_server_takes_are_refused(tmp_path):
    calls = warmup.warmup_calls(SHAPE, (1,)) * 251
    with pytest.raises(ValueError, match="at most 1000. Received: 1004"):
        warmup.write_warmup_requests(tmp_path, "m", calls)


def test_without_the_extra_an_export_has_no_warmup_requests(
    run, tmp_path, monkeypatch
):
    monkeypatch.setattr(warmup, "can_write", lambda: False)
    place = serving.export_run(run[0], tmp_path)
    assert not (place / warmup.WARMUP_FILE).exists()
    assert warmup.read_warmup_requests(place) is None


def test_weights_in_half_the_space(run, exported, tmp_path, images):
    options = serving.options_of(
        serving.read_run(run[0]), weights_dtype="bfloat16"
    )
    place = serving.export_run(run[0], tmp_path, options=options)
    halved = [
        weight.dtype
        for weight in tf.saved_model.load(str(place)).network.weights
    ]
    assert set(halved) == {tf.bfloat16}
    answer = fresh_process.Server(tf, place).answer(
        "serving_default", {"images": images}
    )
    wanted = run[1].predict(images, verbose=0)
    difference = np.abs(answer["probabilities"] - wanted).max()
    assert 0 < difference < 2e-2


def test_xla_is_a_signature_of_its_own(run, tmp_path, images):
    options = serving.options_of(serving.read_run(run[0]), xla=True)
    place = serving.export_run(run[0], tmp_path, options=options)
    server = fresh_process.Server(tf, place)
    refused = server.answer_or_error("serving_default_xla", {"images": images})
    assert "needs XLA" in refused["error"]
    plain = server.answer("serving_default", {"images": images})
    compiled = tf.saved_model.load(str(place)).signatures["serving_default_xla"]
    answer = compiled(images=tf.constant(images))
    np.testing.assert_allclose(
        answer["probabilities"], plain["probabilities"], rtol=1e-4, atol=1e-7
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": ("a",)}, "`labels` must hold 5 names.*Received: 1"),
        ({"labels": ("a\nb",)}, "`labels` must be one line of text"),
        ({"top": 0}, "`top` must be a positive integer. Received: 0"),
        ({"max_pixels": 1.5}, "`max_pixels` must be .* Received: 1.5"),
        ({"weights_dtype": "int8"}, "`weights_dtype` must be one of .*'int8'"),
        ({"implementation": "magic"}, "`implementation` must be one of"),
        ({"image_size": (9, 9)}, r"the model's, \(8, 7\). Received: \(9, 9\)"),
    ],
)
def test_options_that_do_not_fit_are_refused(run, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        serving.export_model(
            run[1], tmp_path, "m", options=serving.ServingOptions(**arguments)
        )
    assert not (tmp_path / "m").exists() or not any((tmp_path / "m").iterdir())


def dense_model(**arguments):
    images = tf.keras.Input((4, 4, 3))
    pooled = tf.keras.layers.GlobalAveragePooling2D()(images)
    return tf.keras.Model(images, tf.keras.layers.Dense(3, **arguments)(pooled))


def test_models_that_end_in_no_classifier_are_refused(tmp_path):
    images = tf.keras.Input((4, 4, 3))
    pooled = tf.keras.layers.GlobalAveragePooling2D()(images)
    with pytest.raises(ValueError, match="must end in a Dense layer"):
        serving.export_model(tf.keras.Model(images, pooled), tmp_path, "m")
    with pytest.raises(ValueError, match="the activation 'sigmoid'"):
        serving.export_model(dense_model(activation="sigmoid"), tmp_path, "m")
    two = tf.keras.Model([images, tf.keras.Input((1,))], pooled)
    with pytest.raises(ValueError, match="must have one input"):
        serving.export_model(two, tmp_path, "m")


@pytest.mark.parametrize("activation", [None, "softmax"])
def test_any_keras_classifier_can_be_exported(tmp_path, rng, activation):
    model = dense_model(activation=activation)
    place = serving.export_model(model, tmp_path, "plain")
    images = rng.uniform(0, 255, (2, 4, 4, 3)).astype(np.float32)
    answer = fresh_process.Server(tf, place).answer(
        "serving_default", {"images": images}
    )
    key = "probabilities" if activation else "logits"
    np.testing.assert_allclose(
        answer[key], model.predict(images, verbose=0), rtol=1e-4
    )
    assert set(answer["top_labels"].flat) == {b"0", b"1", b"2"}
    with pytest.raises(ValueError, match="export of a model in memory"):
        serving.exporting.source_of(place)
