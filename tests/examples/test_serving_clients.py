"""The example's clients against a server process, as a user runs them.

The server is the example's mock server. What the clients send is compared
with TF Serving's own messages and documentation without it.
"""

import base64
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

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
from tests.support.served import EXAMPLE
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
# A process that pytest starts from a script may have been told to ignore it.
WITH_CTRL_C = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from examples.serving import load
sys.exit(load.main())
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


def in_a_process(*words, **environment):
    return subprocess.run(
        words,
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


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
    done = in_a_process(sys.executable, "-c", WITHOUT_TENSORFLOW, *words)
    assert done.returncode == 0, done.stderr
    assert_printed(done.stdout, served)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), [(NAME, 0), ("Nix", 1)])
def test_the_health_check_of_the_container(served, name, status):
    yaml = pytest.importorskip("yaml")
    text = (EXAMPLE / "compose.yaml").read_text().replace("$$", "$")
    [service] = yaml.safe_load(text)["services"].values()
    kind, *words = service["healthcheck"]["test"]
    words[-1] = words[-1].replace("8501", served.ports["rest"])
    environment = {**service["environment"], "MODEL_NAME": name}
    done = in_a_process(*words, **environment)
    assert (kind, done.returncode) == ("CMD", status)


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
ASKED = [
    ({"version": 1}, None, ""),
    ({"label": "canary"}, None, ""),
    ({"version": 9}, "not found", "9"),
    ({"label": "old"}, "refused", "old"),
    ({"name": "Nix"}, "not found", r"not have this model.*Latest\(Nix\)"),
    ({"timeout": 1e-6}, "timeout", r"within 1e-06 s.*--timeout"),
]


@pytest.mark.slow
@both_clients
@pytest.mark.parametrize(("arguments", "kind", "message"), ASKED)
def test_a_version_or_a_label_answers_or_it_is_said_why(
    served, protocol, arguments, kind, message
):
    if kind is None:
        assert served.ask(protocol, **arguments)
        return
    with pytest.raises(ServingError, match=message) as caught:
        served.ask(protocol, **arguments)
    assert caught.value.kind == kind


@pytest.mark.slow
@both_clients
@pytest.mark.parametrize("there", ["nobody", "the other protocol"])
def test_an_absent_server_is_said_to_be_absent(served, protocol, there):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = str(unused.getsockname()[1])
        if there != "nobody":
            [port] = {*served.ports.values()} - {served.ports[protocol]}
        with pytest.raises(ServingError, match=rf":{port}: .*right port\?"):
            served.ask(protocol, [b""], port=port)


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


@pytest.mark.slow
def test_a_load_test_that_is_stopped_prints_what_it_has(served):
    options = f"--protocol rest --rest-port {served.ports['rest']}"
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_CTRL_C, NAME, str(served.files[0])]
        + [*options.split(), "--warm-up", "0", "--duration", "600"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(2):  # it has begun
        process.stdout.readline()
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    row, last = process.communicate(timeout=30)[0].splitlines()
    assert (last, process.returncode) == ("Stopped early.", 130)
    assert row.split()[0] == "rest"
    assert int(row.split()[3]) > 0
