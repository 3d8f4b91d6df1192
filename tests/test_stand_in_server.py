"""The stand-in answers as TF Serving is documented to answer."""

import json
import urllib.error
import urllib.request

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.config import model_server_config_pb2

from examples.serving.errors import ServingError
from examples.serving.grpc_client import GrpcClient
from tests import stand_in_server
from tests.served import NAME
from tests.served import Served
from tests.stand_in_models import Models
from tests.stand_in_rest import serve_rest


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    return Served(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def models(served):
    config = model_server_config_pb2.ModelServerConfig()
    text_format.Parse(served.config.read_text(), config)
    return Models(config)


@pytest.fixture(scope="module")
def rest(models):
    """A function of a path and a body that returns (status, answer)."""
    server = serve_rest(models, "127.0.0.1")

    def ask(path, body=None):
        url = f"http://127.0.0.1:{server.server_port}/v1/models/{path}"
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(url, data) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    yield ask
    server.shutdown()
    server.server_close()


@pytest.fixture
def client(models):
    server, port = stand_in_server.serve_grpc(models)
    client = GrpcClient(f"127.0.0.1:{port}", NAME)
    yield client
    client.close()
    server.stop(None).wait()


def test_a_folder_serves_its_newest_version(served):
    config = stand_in_server.config_of(served.exported[0].parent)
    spec = predict_pb2.PredictRequest().model_spec
    spec.name = NAME
    request = get_model_status_pb2.GetModelStatusRequest(model_spec=spec)
    status = Models(config).status(request)
    assert [v.version for v in status.model_version_status] == [2]


def test_the_model_status_is_the_documented_one(rest):
    fine = {"error_code": "OK", "error_message": ""}
    version = {"version": "2", "state": "AVAILABLE", "status": fine}
    status = rest(f"{NAME}/versions/2")
    assert status == (200, {"model_version_status": [version]})
    assert len(rest(NAME)[1]["model_version_status"]) == 2
    message = "Could not find any versions of model Nix"
    assert rest("Nix") == (404, {"error": message})


def test_the_metadata_describe_the_signatures(rest):
    status, answer = rest(f"{NAME}/labels/stable/metadata")
    assert status == 200
    assert answer["model_spec"]["version"] == "1"
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    images = signatures["serving_default"]["inputs"]["images"]
    sizes = [d["size"] for d in images["tensor_shape"]["dim"]]
    assert (images["dtype"], sizes) == ("DT_FLOAT", ["-1", "8", "7", "1"])


def test_rows_and_columns_give_the_same_answer(served, rest):
    images = served.pixels.tolist()
    bodies = (
        {"instances": images},
        {"instances": [{"images": image} for image in images]},
        {"inputs": images},
        {"inputs": {"images": images}},
    )
    answers = [rest(f"{NAME}:predict", body) for body in bodies]
    assert [status for status, _ in answers] == [200] * 4
    rows, named_rows, columns, named_columns = [a for _, a in answers]
    assert rows == named_rows
    assert columns == named_columns
    for row, probabilities in zip(
        rows["predictions"], columns["outputs"]["probabilities"], strict=True
    ):
        np.testing.assert_allclose(row["probabilities"], probabilities)


def test_a_single_output_has_no_name(served, rest):
    body = {"signature_name": "features", "instances": served.pixels.tolist()}
    _, answer = rest(f"{NAME}:predict", body)
    np.testing.assert_allclose(
        answer["predictions"], served.features, atol=1e-5
    )


@pytest.mark.parametrize(
    ("verb", "body", "message"),
    [
        ("predict", {}, "one of 'inputs' or 'instances'"),
        ("predict", {"instances": []}, "No values in 'instances'"),
        ("predict", {"instances": [[["a"]]]}, "expected type: float32"),
        ("predict", {"instances": [[1.0]]}, "shape"),
        ("predict", {"instances": [[1.0], [[2.0]]]}, "unexpected size"),
        (
            "predict",
            {"signature_name": "nix", "instances": [1.0]},
            'signature name: "nix" not found',
        ),
        (
            "predict",
            {"signature_name": "serving_bytes", "instances": [{"b64": "?"}]},
            "Unable to base64 decode",
        ),
        ("classify", {"examples": []}, "list/array"),
        (
            "classify",
            {"examples": [{"image/encoded": "x"}]},
            "method_name to be tensorflow/serving/classify",
        ),
        ("regress", {}, "Malformed request: POST"),
    ],
)
def test_malformed_requests_are_refused(rest, verb, body, message):
    status, answer = rest(f"{NAME}:{verb}", body)
    assert (status, [*answer]) == (400, ["error"])
    assert message in answer["error"]


def test_grpc_refuses_what_tf_serving_refuses(served, client):
    good = client.request("serving_default", served.pixels)
    double, extra, unknown, filtered = [
        predict_pb2.PredictRequest.FromString(good.SerializeToString())
        for _ in range(4)
    ]
    double.inputs["images"].CopyFrom(
        tf.make_tensor_proto(served.pixels, tf.float64)
    )
    extra.inputs["more"].CopyFrom(tf.make_tensor_proto(1.0))
    unknown.model_spec.signature_name = "nix"
    filtered.output_filter.append("logits")
    for request, message in (
        (double, "to be float32 but float64"),
        (extra, "does not match signature"),
        (unknown, 'key "nix" not found'),
    ):
        with pytest.raises(ServingError, match=message) as caught:
            client.send(request)
        assert caught.value.kind == "refused"
    assert [*client.send(filtered).outputs] == ["logits"]
