"""The example's clients against a server process, and its files for TF Serving.

The server is the example's mock server. What the clients send is compared
with TF Serving's own messages and documentation without it.
"""

import base64
import contextlib
import http.client
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from examples.serving import command_line
from examples.serving import pictures
from examples.serving.grpc_client import GrpcClient
from examples.serving.rest_client import RestClient
from lambdanet_tf import data
from lambdanet_tf.serving import inference
from lambdanet_tf.serving import verify
from tests.support.serving_run import CLASSES
from tests.support.serving_run import SHAPE

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "serving"
CLIENTS = {"grpc": GrpcClient, "rest": RestClient}
NAME = "LambdaResNetSmall"  # as in the example's model.config


@pytest.fixture(scope="module")
def ports(small_export, tmp_path_factory):
    """Those of the mock server, of two versions, by protocol."""
    folder = tmp_path_factory.mktemp("served")
    for version in "12":
        shutil.copytree(small_export, folder / NAME / version)
    text = (EXAMPLE / "model.config").read_text()
    config = folder / "model.config"
    config.write_text(text.replace(f"/models/{NAME}", str(folder / NAME)))
    command = [sys.executable, "-m", "examples.serving.mock_server"]
    command += [f"--model_config_file={config}", "--port=0"]
    with subprocess.Popen(
        [*command, "--rest_api_port=0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        found = re.findall(r"port (\d+)", process.stdout.readline())
        yield dict(zip(CLIENTS, found, strict=True))
        process.terminate()


def client_of(protocol, ports):
    """A client, which is closed behind `with`."""
    client = CLIENTS[protocol](f"127.0.0.1:{ports[protocol]}", NAME)
    return contextlib.closing(client)


@pytest.mark.slow
def test_the_warmup_log_holds_what_the_grpc_client_sends(ports, small_export):
    seen, file = set(), str(small_export / verify.WARMUP_FILE)
    for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        logged = log.predict_log.request
        signature = logged.model_spec.signature_name
        [tensor] = logged.inputs.values()
        batch = tf.make_ndarray(tensor)
        # The log writes a tensor of equal numbers as one number.
        tensor.CopyFrom(tf.make_tensor_proto(batch))
        batch = list(batch) if batch.dtype == object else batch
        with client_of("grpc", ports) as client:
            sent = client.request(signature, batch)
            answer = client.answer(client.send(logged))
        assert sent.SerializeToString(deterministic=True) == (
            logged.SerializeToString(deterministic=True)
        )
        scores = "features" if signature == "features" else "logits"
        seen.add((signature, len(answer[scores])))
    assert seen == {*itertools.product(pictures.INPUTS, verify.BATCH_SIZES)}


def test_the_rest_client_speaks_the_documented_json():
    """That of https://www.tensorflow.org/tfx/serving/api_rest."""
    client = RestClient("127.0.0.1:1", NAME)
    pixels = np.arange(4, dtype=np.float32).reshape(2, 2, 1, 1)
    encoded = {"b64": base64.b64encode(b"JPEG").decode()}
    for signature, batch, body in (
        ("serving_bytes", [b"JPEG"], {"instances": [encoded]}),
        ("features", pixels, {"inputs": {"images": pixels.tolist()}}),
    ):
        sent = json.loads(client.request(signature, batch))
        assert sent == {"signature_name": signature, **body}
    for response, outputs in (
        ({"predictions": [{"a": 1}, {"a": 2}]}, {"a": [1, 2]}),
        ({"outputs": [[1.0, 2.0]]}, {"features": [[1.0, 2.0]]}),
    ):
        assert client.answer(json.dumps(response).encode()) == outputs


@pytest.mark.slow
@pytest.mark.parametrize("protocol", CLIENTS)
def test_outputs_are_those_of_keras(
    protocol, ports, small_run, tmp_path, rng, capsys
):
    """By the clients and by their commands; a broken image is named."""

    def command(*words):
        words = [NAME, *map(str, words), "--port", ports[protocol]]
        return command_line.main(CLIENTS[protocol], 1, "", words)

    images = rng.integers(0, 256, (3, *SHAPE), np.uint8)
    files = [tmp_path / f"{index}.png" for index in range(3)]
    for file, image in zip(files, images, strict=True):
        file.write_bytes(tf.io.encode_png(image).numpy())
    head = small_run[1].layers[-1]
    network = tf.keras.Model(small_run[1].inputs, [head.input, head.output])
    features, scores = network.predict(images.astype(np.float32), verbose=0)
    names = np.array(CLASSES)[np.argsort(-scores)].tolist()
    scores = {"probabilities": scores, "top_probabilities": -np.sort(-scores)}
    for signature in pictures.INPUTS:
        expected, said = scores, [f"{row[0]} " for row in names]
        if signature == "features":
            expected = {"features": features}
            said = [f"{features.shape[1]} features: "] * 3
        with client_of(protocol, ports) as client:
            batch = pictures.read(files)
            if signature in pictures.OF_PIXELS:
                assert client.image_shape(signature) == [*SHAPE]
                batch = pictures.pixels(files, SHAPE)
                np.testing.assert_array_equal(batch, images)
            response = client.send(client.request(signature, batch))
            outputs = client.answer(response)
        for name, numbers in expected.items():
            np.testing.assert_allclose(outputs[name], numbers, atol=1e-5)
        assert signature == "features" or outputs["top_labels"] == names
        assert command(*files, "--signature", signature) == 0
        printed = capsys.readouterr().out.splitlines()
        for file, words, line in zip(files, said, printed, strict=True):
            assert line.startswith(f"{file}: {words}")
    files[1].write_bytes(files[1].read_bytes()[:50])
    assert command(*files) == 2
    assert f"image 1 is {files[1]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("size", "share"), [((16, 23), 1.0), ((90, 31), 0.875)]
)
def test_pixels_of_a_client_are_those_of_the_server(tmp_path, rng, size, share):
    file = tmp_path / "color.jpg"
    image = rng.integers(0, 256, (*size, 3), np.uint8)
    file.write_bytes(tf.io.encode_jpeg(image, quality=80).numpy())
    crop = data.EvaluationCrop((8, 8), share)
    for channels in (1, 3):
        found = pictures.pixels([file], (8, 8, channels), share)
        encoded = tf.constant(pictures.read([file]))
        wanted = inference.decode_batch(encoded, crop, channels, 2**25)
        np.testing.assert_allclose(found, wanted, atol=1e-6 * 255)


NO_BASE64 = b'{"instances": [{"b64": "*"}], "signature_name": "serving_bytes"}'
NOTHING = np.zeros([1, *SHAPE]).tolist()
ROWS = {"signature_name": "features", "instances": NOTHING}
REQUESTS = [
    (":predict", b"{", 400, "Malformed request: JSONDecodeError"),
    (":predict", b"{}", 400, "Malformed request: KeyError: 'instances'"),
    (":predict", b'{"instances": [1], "signature_name": "x"}', 400, "'x'"),
    (":predict", NO_BASE64, 400, "Malformed request: Error"),
    (":predict", json.dumps(ROWS), 200, '{"predictions": [['),
    (":classify", b"{}", 404, "Not found: /v1/models/"),
    ("", None, 200, '"version": "2"'),
    ("", None, 200, '"version": "1"'),
]


@pytest.mark.slow
def test_malformed_requests_are_answered(ports):
    connection = http.client.HTTPConnection("127.0.0.1", ports["rest"])
    for verb, body, status, message in REQUESTS:
        method = "GET" if body is None else "POST"
        connection.request(method, f"/v1/models/{NAME}{verb}", body)
        response = connection.getresponse()
        assert response.status == status, verb
        assert message in response.read().decode()
    connection.close()


def text_of(file):
    """A file of the example without its comments."""
    return re.sub(r"^(#.*)?\n", "", (EXAMPLE / file).read_text(), flags=re.M)


def test_configs_of_tf_serving():
    config = text_format.Parse(text_of("model.config"), ModelServerConfig())
    [model] = config.model_config_list.config
    versions = {*model.model_version_policy.specific.versions}
    assert model.base_path == f"/models/{model.name}"
    assert {*model.version_labels} == {"stable", "canary"}
    assert {*model.version_labels.values()} <= versions
    # Of the others tensorflow-serving-api has no messages.
    sizes = [f"allowed_batch_sizes: {size}" for size in verify.BATCH_SIZES]
    largest = f"max_batch_size {{ value: {verify.BATCH_SIZES[-1]} }}"
    lines = text_of("batching.config").splitlines()
    assert lines[:4] == [largest, *sizes]  # None is met unprepared.


def test_compose():
    yaml = pytest.importorskip("yaml")
    [service] = yaml.safe_load(text_of("compose.yaml"))["services"].values()
    constraints = (ROOT / "requirements/constraints.txt").read_text()
    ours = re.search(r"^tensorflow==([\d.]+)", constraints, re.M)[1]
    name, server = service["image"].split(":")
    assert name == "tensorflow/serving"
    assert [*map(int, server.split("."))] >= [*map(int, ours.split("."))]
    assert service["ports"] == [f"127.0.0.1:{p}:{p}" for p in (8500, 8501)]
    mounted = dict(reversed(v.split(":")[:2]) for v in service["volumes"])
    assert (EXAMPLE / mounted["/models"]).resolve() == ROOT / "exported"
    assert mounted["/config"] == "."
