"""A mock of TF Serving, for tests and trials. It is not a product.

    python -m examples.serving.mock_server exported/LambdaResNetSmall
    python -m examples.serving.mock_server --model_config_file FILE

TF Serving's binary cannot be installed everywhere. This process speaks its two
protocols on loopback: the gRPC PredictionService of tensorflow-serving-api and
the REST API (https://www.tensorflow.org/tfx/serving/api_rest), as far as the
clients of examples/serving go. Models run in the session of TensorFlow 1 that
the server uses. There is no batching, and versions are loaded once.
"""

import argparse
import base64
import concurrent.futures
import functools
import http.server
import json
import os
import pathlib
import re
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from google.protobuf import text_format
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.config import model_server_config_pb2

from lambdanet_tf.serving import standalone
from lambdanet_tf.serving import versions

HOST = "127.0.0.1"
CODES = {code.value[0]: code for code in grpc.StatusCode}
HTTP_STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
}
PATH = re.compile(
    r"/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?"
    r"(:predict|/metadata|)"
)


class RequestError(Exception):
    """A request that is answered by a status code and a message."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Models:
    """Loaded versions of models.

    Args:
        config: `ModelServerConfig`.
    """

    def __init__(self, config):
        self._sessions, self._labels = {}, {}
        for model in config.model_config_list.config:
            base = pathlib.Path(model.base_path)
            wanted = list(model.model_version_policy.specific.versions)
            self._labels[model.name] = dict(model.version_labels)
            self._sessions[model.name] = {
                version: standalone.Session(tf, base / str(version))
                for version in wanted or versions.list_versions(base)[-1:]
            }

    def find(self, name, version=None, label=None):
        """Returns a version of a model, and its session."""
        if label:
            version = self._labels.get(name, {}).get(label)
            if version is None:
                raise RequestError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"Unrecognized servable version label: {label}",
                )
        sessions = self._sessions.get(name, {})
        wanted = version or max(sessions, default=None)
        if wanted not in sessions:
            which = f"Latest({name})"
            if version:
                which = f"Specific({name}, {version})"
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Servable not found for request: {which}",
            )
        return wanted, sessions[wanted]

    def versions(self, name):
        """Returns the loaded versions of a model, the newest first."""
        return sorted(self._sessions[name], reverse=True)


def _run(session, signature, inputs):
    """The outputs of a signature, or a `RequestError`."""
    try:
        return session.run(signature, inputs)
    except tf.errors.OpError as error:
        message = error.message.removeprefix("Graph execution error:").lstrip()
        raise RequestError(CODES[error.error_code], message) from error
    except (TypeError, ValueError) as error:
        code = grpc.StatusCode.INVALID_ARGUMENT
        raise RequestError(code, str(error)) from error


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """The gRPC service.

    Args:
        models: `Models`.
    """

    def __init__(self, models):
        self._models = models

    def Predict(self, request, context):
        def respond(session):
            inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
            name = request.model_spec.signature_name
            response = predict_pb2.PredictResponse()
            for key, value in _run(session, name, inputs).items():
                response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
            return response

        return self._respond(request, context, respond)

    def GetModelMetadata(self, request, context):
        def respond(session):
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            response.metadata["signature_def"].Pack(_signatures(session))
            return response

        return self._respond(request, context, respond)

    def _respond(self, request, context, respond):
        spec = request.model_spec
        version = spec.version.value if spec.HasField("version") else None
        try:
            version, session = self._models.find(
                spec.name, version, spec.version_label
            )
            response = respond(session)
        except RequestError as error:
            context.abort(error.code, str(error))
        response.model_spec.name = spec.name
        response.model_spec.version.value = version
        return response


def _signatures(session):
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for name, signature in session.signatures.items():
        signatures.signature_def[name].CopyFrom(signature)
    return signatures


class RestHandler(http.server.BaseHTTPRequestHandler):
    """The REST API.

    Args:
        models: `Models`.
        *arguments: of the base class.
    """

    protocol_version = "HTTP/1.1"  # connections stay open
    disable_nagle_algorithm = True  # a small response is sent at once

    def __init__(self, models, *arguments):
        self._models = models
        super().__init__(*arguments)  # which handles the connection

    def do_GET(self):
        self._respond()

    def do_POST(self):
        self._respond()

    def log_message(self, *_):
        pass

    def _respond(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match = PATH.fullmatch(self.path)
        try:
            if match is None:
                code = grpc.StatusCode.NOT_FOUND
                raise RequestError(code, f"Not found: {self.path}")
            status, fields = 200, self._fields(body, *match.groups())
        except RequestError as error:
            status = HTTP_STATUSES.get(error.code, 500)
            fields = {"error": str(error)}
        content = json.dumps(fields).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _fields(self, body, name, version, label, verb):
        asked = int(version) if version else None
        version, session = self._models.find(name, asked, label)
        if verb == ":predict":
            return _predict(session, body)
        if verb == "/metadata":
            signatures = json_format.MessageToDict(
                _signatures(session), preserving_proto_field_name=True
            )
            return {"metadata": {"signature_def": signatures}}
        there = [version] if label or asked else self._models.versions(name)
        return {
            "model_version_status": [
                {"version": str(each), "state": "AVAILABLE"} for each in there
            ]
        }


def _predict(session, body):
    """Rows ("instances") to "predictions", or columns to "outputs"."""
    try:
        request = json.loads(body)
        name = request.get("signature_name", "serving_default")
        needed = session.signatures[name].inputs
        columns = request.get("inputs")
        if columns is None:
            columns = dict.fromkeys(needed, request["instances"])
        inputs = {
            key: _tensor(columns[key], info.dtype)
            for key, info in needed.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        code = grpc.StatusCode.INVALID_ARGUMENT
        message = f"Malformed request: {type(error).__name__}: {error}"
        raise RequestError(code, message) from error
    outputs = {
        key: value.astype("U").tolist()
        if value.dtype == "O"
        else value.tolist()
        for key, value in _run(session, name, inputs).items()
    }
    if "inputs" in request:  # a single output has no name
        values = [*outputs.values()]
        return {"outputs": values[0] if len(values) == 1 else outputs}
    rows = zip(*outputs.values(), strict=True)
    return {
        "predictions": [dict(zip(outputs, row, strict=True)) for row in rows]
    }


def _tensor(values, dtype):
    if dtype == tf.string:
        files = [base64.b64decode(x["b64"], validate=True) for x in values]
        return np.array(files, "O")
    return np.array(values, np.float32)


def serve(models, grpc_port=0, rest_port=0):
    """Starts both interfaces in threads; returns their servers and ports."""
    rest = http.server.ThreadingHTTPServer(
        (HOST, rest_port), functools.partial(RestHandler, models)
    )
    threading.Thread(target=rest.serve_forever, daemon=True).start()
    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(8),
        options=[
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ],
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(models), server
    )
    grpc_port = server.add_insecure_port(f"{HOST}:{grpc_port}")
    server.start()
    return (server, rest), {"grpc": grpc_port, "rest": rest.server_port}


def main():
    """Serves until it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", help="<destination>/<model>")
    parser.add_argument("--model_config_file")
    parser.add_argument("--port", type=int, default=8500, help="of gRPC")
    parser.add_argument("--rest_api_port", type=int, default=8501)
    flags = parser.parse_args()
    config = model_server_config_pb2.ModelServerConfig()
    if flags.model_config_file:
        text = pathlib.Path(flags.model_config_file).read_text()
        text_format.Parse(text, config)
    elif flags.folder:
        folder = pathlib.Path(flags.folder).resolve()
        config.model_config_list.config.add(
            name=folder.name, base_path=str(folder)
        )
    else:
        parser.error("give a folder or --model_config_file")
    models = Models(config)
    (server, rest), ports = serve(models, flags.port, flags.rest_api_port)
    names = ", ".join(c.name for c in config.model_config_list.config)
    print(
        f"Mock server with {names}: gRPC on port {ports['grpc']}, "
        f"REST on port {ports['rest']}",
        flush=True,
    )
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        rest.shutdown()
        server.stop(grace=1)


if __name__ == "__main__":
    main()
