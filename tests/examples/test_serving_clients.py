"""The example's clients against a server process, and its files for TF Serving.

The server is the example's mock server. What the clients send is compared
with TF Serving's own messages and documentation without it.
"""

import base64
import http.client
import itertools
import json
import re

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from examples.serving import command_line
from examples.serving import pictures
from lambdanet_tf import data
from lambdanet_tf.serving import signatures
from lambdanet_tf.serving import verify
from tests.examples.served import CLIENTS
from tests.examples.served import EXAMPLE
from tests.examples.served import NAME
from tests.examples.served import ROOT
from tests.examples.served import Served
from tests.support.serving_run import CLASSES
from tests.support.serving_run import SHAPE

pytestmark = pytest.mark.once

both_clients = pytest.mark.parametrize("protocol", CLIENTS)


@pytest.fixture(scope="module")
def served(small_run, small_export, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    found = Served(small_run[1], small_export, folder)
    yield found
    found.end()


def command(protocol, served, *arguments):
    """Runs the command of a client; returns its exit status."""
    port = ["--port", served.ports[protocol]]
    words = [NAME, *map(str, arguments), *port]
    return command_line.main(CLIENTS[protocol], 1, "", words)


@pytest.mark.slow
def test_the_warmup_log_holds_what_the_grpc_client_sends(served):
    client, seen = CLIENTS["grpc"]("127.0.0.1:1", NAME), set()
    file = str(served.exported[0] / verify.WARMUP_FILE)
    for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        logged = log.predict_log.request
        signature = logged.model_spec.signature_name
        [tensor] = logged.inputs.values()
        batch = tf.make_ndarray(tensor)
        # The log writes a tensor of equal numbers as one number.
        tensor.CopyFrom(tf.make_tensor_proto(batch))
        batch = list(batch) if batch.dtype == object else batch
        sent = client.request(signature, batch)
        assert sent == logged
        assert sent.SerializeToString(deterministic=True) == (
            logged.SerializeToString(deterministic=True)
        )
        seen.add((signature, len(batch)))
    client.close()
    assert seen == {*itertools.product(pictures.INPUTS, verify.BATCH_SIZES)}


# https://www.tensorflow.org/tfx/serving/api_rest
ENCODED = {"b64": base64.b64encode(b"JPEG").decode()}
PIXELS = np.arange(4, dtype=np.float32).reshape(2, 2, 1, 1)
SENT = {
    "serving_bytes": ([b"JPEG"], {"instances": [ENCODED]}),
    "features": (PIXELS, {"inputs": {"images": PIXELS.tolist()}}),
}
ANSWERS = [
    ({"predictions": [{"a": 1}, {"a": 2}]}, {"a": [1, 2]}),
    ({"outputs": [[1.0, 2.0]]}, {"features": [[1.0, 2.0]]}),
]


def test_the_rest_client_speaks_the_documented_json():
    client = CLIENTS["rest"]("127.0.0.1:1", NAME)
    for signature, (batch, body) in SENT.items():
        sent = json.loads(client.request(signature, batch))
        assert sent == {"signature_name": signature, **body}
    for response, outputs in ANSWERS:
        assert client.answer(json.dumps(response).encode()) == outputs


@pytest.mark.slow
@both_clients
@pytest.mark.parametrize("signature", pictures.INPUTS)
def test_outputs_are_those_of_keras(served, protocol, signature, capsys):
    batch = pictures.read(served.files)
    if signature in pictures.OF_PIXELS:
        with served.client(protocol) as client:
            assert client.image_shape(signature) == [*SHAPE]
        batch = pictures.pixels(served.files, SHAPE)
        np.testing.assert_array_equal(batch, served.pixels)
    outputs = served.ask(protocol, batch, signature)
    files = [*served.files, "--signature", signature]
    assert command(protocol, served, *files) == 0
    if signature == "features":
        expected = {"features": served.features}
        said = [f"{served.features.shape[1]} features: "] * 3
    else:
        order = np.argsort(-served.probabilities)
        assert outputs["top_labels"] == np.array(CLASSES)[order].tolist()
        said = [f"{CLASSES[row[0]]} " for row in order]
        expected = {
            "top_probabilities": -np.sort(-served.probabilities),
            "probabilities": served.probabilities,
        }
    for name, numbers in expected.items():
        np.testing.assert_allclose(outputs[name], numbers, atol=1e-5)
    printed = capsys.readouterr().out.splitlines()
    for file, words, line in zip(served.files, said, printed, strict=True):
        assert line.startswith(f"{file}: {words}")


@pytest.mark.slow
@both_clients
def test_a_broken_image_is_named(served, protocol, capsys):
    assert command(protocol, served, served.files[0], served.broken) == 2
    assert f"image 1 is {served.broken}" in capsys.readouterr().err


@pytest.mark.parametrize("size", [(16, 23), (90, 31), (2000, 16)])
@pytest.mark.parametrize("share", [1.0, 0.875])
def test_pixels_of_a_client_are_those_of_the_server(tmp_path, rng, size, share):
    file = tmp_path / "color.jpg"
    image = rng.integers(0, 256, (*size, 3), np.uint8)
    file.write_bytes(tf.io.encode_jpeg(image, quality=80).numpy())
    crop = data.EvaluationCrop((8, 8), share)
    for channels in (1, 3):
        found = pictures.pixels([file], (8, 8, channels), share)
        encoded = tf.constant(pictures.read([file]))
        wanted = signatures.decode_batch(encoded, crop, channels, 2**25)
        np.testing.assert_allclose(found, wanted, atol=1e-6 * 255)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "body", "status", "message"),
    [
        (":predict", b"{", 400, "Malformed request: JSONDecodeError"),
        (":predict", b"[]", 400, "Malformed request"),
        (":predict", b"{}", 400, "Malformed request: KeyError: 'instances'"),
        (":predict", b'{"instances": [1], "signature_name": "x"}', 400, "'x'"),
        (
            ":predict",
            b'{"instances": [{"b64": "*"}], "signature_name": "serving_bytes"}',
            400,
            "Malformed request: Error",
        ),
        (":classify", b"{}", 404, "Not found: /v1/models/"),
        ("", None, 200, '"version": "2"'),
    ],
)
def test_a_malformed_request_is_answered(served, verb, body, status, message):
    connection = http.client.HTTPConnection("127.0.0.1", served.ports["rest"])
    method = "GET" if body is None else "POST"
    connection.request(method, f"/v1/models/{NAME}{verb}", body)
    response = connection.getresponse()
    content = response.read().decode()
    connection.close()
    assert response.status == status
    assert message in content
    if status == 200:
        assert '"version": "1"' in content


def text_of(file):
    """A file of the example without its comments."""
    return re.sub(r"^(#.*)?\n", "", (EXAMPLE / file).read_text(), flags=re.M)


def test_versions_and_labels():
    config = text_format.Parse(text_of("model.config"), ModelServerConfig())
    [model] = config.model_config_list.config
    versions = {*model.model_version_policy.specific.versions}
    assert model.base_path == f"/models/{model.name}"
    assert {*model.version_labels} == {"stable", "canary"}
    assert {*model.version_labels.values()} <= versions


# tensorflow-serving-api lacks the messages of these two. Their fields are
# those of TF Serving's session_bundle_config.proto and monitoring_config.proto.
def test_batches_and_monitoring():
    lines = text_of("batching.config").splitlines()
    sizes = [f"allowed_batch_sizes: {size}" for size in verify.BATCH_SIZES]
    largest = f"max_batch_size {{ value: {verify.BATCH_SIZES[-1]} }}"
    assert lines[:4] == [largest, *sizes]  # None is met unprepared.
    text = " ".join(text_of("monitoring.config").split())
    form = r'prometheus_config \{ enable: true path: "/monitoring/[^"]*" \}'
    assert re.fullmatch(form, text)


def test_compose():
    yaml = pytest.importorskip("yaml")
    [service] = yaml.safe_load(text_of("compose.yaml"))["services"].values()
    constraints = (ROOT / "requirements/constraints.txt").read_text()
    pinned = re.search(r"^tensorflow==([\d.]+)", constraints, re.M)[1]
    form = r"tensorflow/serving:(\d+\.\d+\.\d+)"
    image = re.fullmatch(form, service["image"])[1]
    server, ours = ([*map(int, x.split("."))] for x in (image, pinned))
    assert server >= ours
    assert service["ports"] == [f"127.0.0.1:{p}:{p}" for p in (8500, 8501)]
    mounted = dict(reversed(v.split(":")[:2]) for v in service["volumes"])
    assert (EXAMPLE / mounted["/models"]).resolve() == ROOT / "exported"
    assert mounted["/config"] == "."
    assert re.fullmatch(r"\d+g", service["mem_limit"])
