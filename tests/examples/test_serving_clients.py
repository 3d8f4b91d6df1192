"""The example's clients against a server process, as a user runs them.

The server is the example's mock server. What the clients send is compared
with TF Serving's own messages and documentation without it.
"""

import base64
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
from examples.serving.grpc_client import GrpcClient
from examples.serving.rest_client import RestClient
from lambdanet_tf.serving import requests
from tests.support.served import EXAMPLE
from tests.support.served import NAME
from tests.support.served import ROOT
from tests.support.served import Served
from tests.support.served import start_server
from tests.support.serving_run import CLASSES
from tests.support.serving_run import SHAPE

pytestmark = pytest.mark.once

CLIENTS = {"grpc": GrpcClient, "rest": RestClient}
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
    return Served(small_run[1], small_export, folder)


@pytest.fixture(scope="module")
def ports(served):
    """The ports of a server process."""
    process, ports = start_server(served.config)
    yield ports
    process.terminate()
    process.communicate()


@pytest.fixture(scope="module")
def connect(ports):
    """A function that returns a client of that server."""

    def client_of(protocol, name=NAME, **arguments):
        address = f"127.0.0.1:{ports[protocol]}"
        return CLIENTS[protocol](address, name, **arguments)

    return client_of


def asked(client, signature, batch):
    """The outputs for a batch; the connection is closed behind them."""
    try:
        return client.answer(client.send(client.request(signature, batch)))
    finally:
        client.close()


# What is sent.


def records(folder):
    """The requests in the warm-up log of a version."""
    file = str(folder / requests.WARMUP_FILE)
    for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        yield getattr(log, log.WhichOneof("log_type")).request


@pytest.mark.slow
def test_the_warmup_log_holds_what_the_grpc_client_sends(served):
    client = GrpcClient("127.0.0.1:1", NAME)
    seen = set()
    for logged in records(served.exported[0]):
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
            if batch.dtype == object:
                batch = list(batch)
        sent = client.request(signature, batch)
        assert sent == logged
        assert sent.SerializeToString(deterministic=True) == (
            logged.SerializeToString(deterministic=True)
        )
        seen.add((signature, len(batch)))
    client.close()
    assert seen == {
        (signature, size)
        for signature in pictures.INPUTS
        for size in requests.BATCH_SIZES
    }


def test_the_rest_client_speaks_the_documented_json():
    # https://www.tensorflow.org/tfx/serving/api_rest
    client = RestClient("127.0.0.1:1", NAME)
    encoded = {"b64": base64.b64encode(b"JPEG").decode()}
    pixels = np.arange(4, dtype=np.float32).reshape(2, 2, 1, 1)
    for signature, batch, verb, body in (
        ("serving_bytes", [b"JPEG"], "predict", {"instances": [encoded]}),
        (
            "classify",
            [b"JPEG"],
            "classify",
            {"examples": [{"image/encoded": encoded}]},
        ),
        (
            "features",
            pixels,
            "predict",
            {"inputs": {"images": [[[[0]], [[1]]], [[[2]], [[3]]]]}},
        ),
    ):
        sent = client.request(signature, batch)
        assert sent[0] == verb
        assert json.loads(sent[1]) == {"signature_name": signature, **body}
    for response, outputs in (
        ({"predictions": [{"a": 1}, {"a": 2}]}, {"a": [1, 2]}),
        ({"outputs": {"a": [1], "b": [2]}}, {"a": [1], "b": [2]}),
        ({"outputs": [[1.0, 2.0]]}, {"features": [[1.0, 2.0]]}),
        (
            {"results": [[["cat", 0.75], ["dog", 0.25]]]},
            {
                "top_labels": [["cat", "dog"]],
                "top_probabilities": [[0.75, 0.25]],
            },
        ),
    ):
        assert client.answer(json.dumps(response).encode()) == outputs


# What comes back.


@pytest.mark.slow
@both_clients
@pytest.mark.parametrize("signature", pictures.INPUTS)
def test_outputs_are_those_of_keras(
    served, ports, connect, protocol, signature, capsys
):
    client = connect(protocol)
    batch = pictures.read(served.files)
    if signature in pictures.OF_PIXELS:
        assert client.image_shape(signature) == [*SHAPE]
        batch = pictures.pixels(served.files, SHAPE)
        np.testing.assert_array_equal(batch, served.pixels)
    outputs = asked(client, signature, batch)
    arguments = [NAME, *map(str, served.files), "--signature", signature]
    arguments += ["--port", ports[protocol]]
    assert command_line.main(CLIENTS[protocol], 1, "", arguments) == 0
    printed = capsys.readouterr().out
    if signature == "features":
        np.testing.assert_allclose(
            outputs["features"], served.features, atol=1e-5
        )
        number = served.features.shape[1]
        assert printed.count(f".png: {number} features: ") == 3
        return
    assert_printed(printed, served)
    order = np.argsort(-served.probabilities)
    best = np.take_along_axis(served.probabilities, order, axis=-1)
    assert outputs["top_labels"] == [[CLASSES[i] for i in row] for row in order]
    np.testing.assert_allclose(outputs["top_probabilities"], best, atol=1e-5)
    if signature != "classify":
        np.testing.assert_allclose(
            outputs["probabilities"], served.probabilities, atol=1e-5
        )


def assert_printed(text, served):
    """Each file with its best label and probability."""
    for file, row, line in zip(
        served.files, served.probabilities, text.splitlines(), strict=True
    ):
        label = CLASSES[row.argmax()]
        found = re.match(rf"{re.escape(str(file))}: {label} ([\d.]+), ", line)
        assert float(found[1]) == pytest.approx(row.max(), abs=1e-4)


@pytest.mark.slow
def test_the_rest_command_needs_no_tensorflow(served, ports):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TENSORFLOW, NAME]
        + [*map(str, served.files), "--port", ports["rest"]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert_printed(done.stdout, served)


@pytest.mark.slow
@both_clients
@pytest.mark.parametrize("arguments", [{"version": 1}, {"label": "canary"}])
def test_clients_name_a_version_or_a_label(
    served, connect, protocol, arguments
):
    batch = pictures.read(served.files[:1])
    assert asked(connect(protocol, **arguments), "serving_bytes", batch)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), [(NAME, 0), ("Nix", 1)])
def test_the_health_check_of_the_container(ports, name, status):
    yaml = pytest.importorskip("yaml")
    text = (EXAMPLE / "compose.yaml").read_text().replace("$$", "$")
    [service] = yaml.safe_load(text)["services"].values()
    kind, *command = service["healthcheck"]["test"]
    command[-1] = command[-1].replace("8501", ports["rest"])
    environment = {**service["environment"], "MODEL_NAME": name}
    done = subprocess.run(
        command, env={**os.environ, **environment}, check=False
    )
    assert (kind, done.returncode) == ("CMD", status)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "signature"), [("grpc", "serving_bytes"), ("rest", "classify")]
)
def test_a_broken_image_is_named_and_the_next_request_works(
    served, ports, protocol, signature, capsys
):
    files = [*map(str, served.files[:2]), str(served.broken)]
    common = ["--port", ports[protocol], "--signature", signature]
    kind = CLIENTS[protocol]
    assert command_line.main(kind, 1, "", [NAME, *files, *common]) == 2
    message = capsys.readouterr().err
    assert re.match(r"Error: the server refused.*no JPEG.*\[2\]\n", message)
    assert f"image 2 is {served.broken}" in message
    assert command_line.main(kind, 1, "", [NAME, *files[:2], *common]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.slow
@both_clients
@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"version": 9}, "not found", "9"),
        ({"label": "old"}, "refused", "old"),
        ({"name": "Nix"}, "not found", r"not have this model.*Latest\(Nix\)"),
        ({"timeout": 1e-6}, "timeout", r"within 1e-06 s.*--timeout"),
    ],
)
def test_errors_say_what_is_wrong(
    served, connect, protocol, arguments, kind, message
):
    client = connect(protocol, **arguments)
    batch = pictures.read(served.files[:1])
    with pytest.raises(ServingError, match=message) as caught:
        asked(client, "serving_bytes", batch)
    assert caught.value.kind == kind


@pytest.mark.slow
@both_clients
@pytest.mark.parametrize("there", ["nobody", "the other protocol"])
def test_an_absent_server_is_said_to_be_absent(ports, protocol, there):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = str(unused.getsockname()[1])
        if there != "nobody":
            [port] = {*ports.values()} - {ports[protocol]}
        client = CLIENTS[protocol](f"127.0.0.1:{port}", NAME)
        with pytest.raises(ServingError, match=rf":{port}: .*right port\?"):
            asked(client, "serving_bytes", [b""])


# The load test.


@pytest.mark.slow
def test_the_load_command_prints_a_consistent_table(served, ports, capsys):
    duration = 0.5
    arguments = [NAME, *map(str, served.files), "--protocol", "grpc", "rest"]
    for name, values in {
        "--grpc-port": [ports["grpc"]],
        "--rest-port": [ports["rest"]],
        "--clients": [1, 2],
        "--batch": [1, 4],
        "--duration": [duration],
        "--warm-up": [0.1],
    }.items():
        arguments += [name, *map(str, values)]
    assert load.main(arguments) == 0
    head, *rows = capsys.readouterr().out.splitlines()[1:]
    assert head.split()[:4] == ["protocol", "clients", "batch", "requests"]
    assert len(rows) == 8
    for row in rows:
        _, batch, requests, errors, rate, *times = map(float, row.split()[1:])
        assert (errors, requests > 0) == (0, True)
        assert times == sorted(times)
        seconds = requests * batch / rate
        slowest = times[-1] / 1e3
        assert duration - slowest - 0.1 <= seconds <= duration + slowest + 0.1


@pytest.mark.slow
def test_a_load_test_that_cannot_begin_says_why(served, ports, capsys):
    arguments = [NAME, str(served.broken), "--protocol", "rest"]
    assert load.main([*arguments, "--rest-port", ports["rest"]]) == 2
    assert "by index:] [0]" in capsys.readouterr().err


@pytest.mark.slow
def test_a_load_test_that_is_stopped_prints_what_it_has(served, ports):
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_CTRL_C, NAME, str(served.files[0])]
        + ["--protocol", "rest", "--rest-port", ports["rest"]]
        + ["--warm-up", "0", "--duration", "600"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(2):  # it has begun
        process.stdout.readline()
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=30)
    row, last = printed.splitlines()
    assert (last, process.returncode) == ("Stopped early.", 130)
    assert row.split()[0] == "rest"
    assert int(row.split()[3]) > 0
