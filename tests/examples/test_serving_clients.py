"""The example's clients against a server process, as a user runs them.

The server is the example's mock server. What the clients send is compared
with TF Serving's own messages and documentation without it.
"""

import base64
import itertools
import json
import re
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from examples.serving import command_line
from examples.serving import load
from examples.serving import pictures
from examples.serving.errors import ServingError
from lambdanet_tf.serving import requests
from tests.support.served import CLIENTS
from tests.support.served import NAME
from tests.support.served import ROOT
from tests.support.served import Served
from tests.support.serving_run import CLASSES
from tests.support.serving_run import SHAPE

pytestmark = pytest.mark.once

both_clients = pytest.mark.parametrize("protocol", CLIENTS)
WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None  # cannot be imported
from examples.serving import command_line, rest_client
sys.exit(command_line.main(rest_client.RestClient, 8501, ""))
"""


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


# What is sent.


@pytest.mark.slow
def test_the_warmup_log_holds_what_the_grpc_client_sends(served):
    client, seen = CLIENTS["grpc"]("127.0.0.1:1", NAME), set()
    file = str(served.exported[0] / requests.WARMUP_FILE)
    for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        logged = getattr(log, log.WhichOneof("log_type")).request
        signature = logged.model_spec.signature_name
        if signature == "classify":
            batch = [
                example.features.feature["image/encoded"].bytes_list.value[0]
                for example in logged.input.example_list.examples
            ]
        else:
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
    assert seen == {*itertools.product(pictures.INPUTS, requests.BATCH_SIZES)}


# https://www.tensorflow.org/tfx/serving/api_rest
ENCODED = {"b64": base64.b64encode(b"JPEG").decode()}
PIXELS = np.arange(4, dtype=np.float32).reshape(2, 2, 1, 1)
SENT = {
    "serving_bytes": ([b"JPEG"], "predict", {"instances": [ENCODED]}),
    "classify": (
        [b"JPEG"], "classify", {"examples": [{"image/encoded": ENCODED}]}
    ),
    "features": (PIXELS, "predict", {"inputs": {"images": PIXELS.tolist()}}),
}  # fmt: skip
ANSWERS = [
    ({"predictions": [{"a": 1}, {"a": 2}]}, {"a": [1, 2]}),
    ({"outputs": {"a": [1], "b": [2]}}, {"a": [1], "b": [2]}),
    ({"outputs": [[1.0, 2.0]]}, {"features": [[1.0, 2.0]]}),
    (
        {"results": [[["cat", 0.75], ["dog", 0.25]]]},
        {"top_labels": [["cat", "dog"]], "top_probabilities": [[0.75, 0.25]]},
    ),
]


def test_the_rest_client_speaks_the_documented_json():
    client = CLIENTS["rest"]("127.0.0.1:1", NAME)
    for signature, (batch, verb, body) in SENT.items():
        sent = client.request(signature, batch)
        assert sent[0] == verb
        assert json.loads(sent[1]) == {"signature_name": signature, **body}
    for response, outputs in ANSWERS:
        assert client.answer(json.dumps(response).encode()) == outputs


# What comes back.


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
    printed = capsys.readouterr().out
    expected = {"probabilities": served.probabilities}
    if signature == "features":
        expected = {"features": served.features}
        number = served.features.shape[1]
        assert printed.count(f".png: {number} features: ") == 3
    else:
        assert_printed(printed, served)
        order = np.argsort(-served.probabilities)
        best = [[CLASSES[index] for index in row] for row in order]
        assert outputs["top_labels"] == best
        if signature == "classify":
            expected = {}
        expected["top_probabilities"] = -np.sort(-served.probabilities)
    for name, numbers in expected.items():
        np.testing.assert_allclose(outputs[name], numbers, atol=1e-5)


def assert_printed(text, served):
    """Each file with its best label and probability."""
    for file, row, line in zip(
        served.files, served.probabilities, text.splitlines(), strict=True
    ):
        label = CLASSES[row.argmax()]
        found = re.match(rf"{re.escape(str(file))}: {label} ([\d.]+), ", line)
        assert float(found[1]) == pytest.approx(row.max(), abs=1e-4)


@pytest.mark.slow
def test_the_rest_command_needs_no_tensorflow(served):
    words = [NAME, *map(str, served.files), "--port", served.ports["rest"]]
    program = [sys.executable, "-c", WITHOUT_TENSORFLOW]
    printed = subprocess.check_output([*program, *words], cwd=ROOT, text=True)
    assert_printed(printed, served)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "signature"), [("grpc", "serving_bytes"), ("rest", "classify")]
)
def test_a_broken_image_is_named_and_the_next_request_works(
    served, protocol, signature, capsys
):
    files = ["--signature", signature, *served.files[:2]]
    assert command(protocol, served, *files, served.broken) == 2
    message = capsys.readouterr().err
    assert re.match(r"Error: the server refused.*no JPEG.*\[2\]\n", message)
    assert f"image 2 is {served.broken}" in message
    assert command(protocol, served, *files) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


# Of what a client asks for: the kind of its error, and what it says.
NOBODY, OTHER = "nobody", "the other protocol"
ASKED = [
    ({"version": 1}, None, ""),
    ({"label": "canary"}, None, ""),
    ({"version": 9}, "not found", "9"),
    ({"label": "old"}, "refused", "old"),
    ({"name": "Nix"}, "not found", r"not have this model.*Latest\(Nix\)"),
    ({"timeout": 1e-6}, "timeout", r"within 1e-06 s.*--timeout"),
    ({"port": NOBODY}, "absent", r":{port}: .*right port\?"),
    ({"port": OTHER}, "absent", r":{port}: .*right port\?"),
]


@pytest.mark.slow
@both_clients
@pytest.mark.parametrize(("arguments", "kind", "message"), ASKED)
def test_a_client_gets_an_answer_or_it_is_said_why(
    served, protocol, arguments, kind, message
):
    if kind is None:
        assert served.ask(protocol, **arguments)
        return
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        [other] = {*served.ports.values()} - {served.ports[protocol]}
        ports = {NOBODY: str(unused.getsockname()[1]), OTHER: other}
        if "port" in arguments:
            arguments = {"batch": [b""], "port": ports[arguments["port"]]}
            message = message.format(**arguments)
        with pytest.raises(ServingError, match=message) as caught:
            served.ask(protocol, **arguments)
    assert caught.value.kind == kind


# The load test.


@pytest.mark.slow
def test_the_load_command_prints_a_consistent_table(served, capsys):
    duration = 0.5
    options = (
        f"--protocol grpc rest --grpc-port {served.ports['grpc']} "
        f"--rest-port {served.ports['rest']} --clients 1 2 --batch 1 4 "
        f"--duration {duration} --warm-up 0.1"
    )
    assert load.main([NAME, *map(str, served.files), *options.split()]) == 0
    head, *rows = capsys.readouterr().out.splitlines()[1:]
    assert head.split()[:4] == ["protocol", "clients", "batch", "requests"]
    assert len(rows) == 8
    for row in rows:
        _, batch, number, errors, rate, *times = map(float, row.split()[1:])
        assert (errors, number > 0) == (0, True)
        assert times == sorted(times)
        slowest = times[-1] / 1e3 + 0.1
        assert number * batch / rate == pytest.approx(duration, abs=slowest)


@pytest.mark.slow
def test_a_load_test_that_cannot_begin_says_why(served, capsys):
    words = ["--protocol", "rest", "--rest-port", served.ports["rest"]]
    assert load.main([NAME, str(served.broken), *words]) == 2
    assert "by index:] [0]" in capsys.readouterr().err


def test_files_that_are_no_images_are_named(tmp_path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no")
    with pytest.raises(ServingError, match=r"No such file.*nix\.png"):
        pictures.read([tmp_path / "nix.png"])
    with pytest.raises(ServingError, match=r"broken\.jpg is no image"):
        pictures.pixels([broken], (8, 7, 1))
