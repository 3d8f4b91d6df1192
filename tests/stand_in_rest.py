"""The REST half of the stand-in server: TF Serving's documented JSON.

https://www.tensorflow.org/tfx/serving/api_rest
"""

import base64
import binascii
import functools
import http.server
import json
import re
import threading
import urllib.parse

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow_serving.apis import classification_pb2
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import predict_pb2

from tests.stand_in_models import Refusal

_MODEL = r"/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?"
ASKED = re.compile(_MODEL + r":(classify|predict)")
DESCRIBED = re.compile(_MODEL + r"(/metadata)?")
STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.NOT_FOUND: 404,
}


class Malformed(Exception):
    """A request that is no request."""


def serve_rest(models, host, port=0):
    """Starts the REST interface in a thread; returns its server.

    Args:
        models: `Models`.
        host: to listen on.
        port: int. 0 takes a free one; `server_port` says which.
    """
    handler = functools.partial(_Handler, models)
    server = http.server.ThreadingHTTPServer((host, port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open
    disable_nagle_algorithm = True  # a small answer is sent at once

    def __init__(self, models, *arguments):
        self._models = models
        super().__init__(*arguments)  # which handles the connection

    def do_GET(self):
        self._answer(DESCRIBED, self._describe)

    def do_POST(self):
        self._answer(ASKED, self._ask)

    def log_message(self, *_):
        pass

    def _answer(self, pattern, method):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match = pattern.fullmatch(self.path)
        try:
            if match is None:
                raise Malformed(
                    f"Malformed request: {self.command} {self.path}"
                )
            status, answer = 200, method(body, *match.groups())
        except Malformed as error:
            status, answer = 400, {"error": str(error)}
        except Refusal as error:
            status = STATUSES.get(error.code, 500)
            answer = {"error": str(error)}
        content = json.dumps(answer, indent=1).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _describe(self, _, name, version, label, metadata):
        if not metadata:
            request = get_model_status_pb2.GetModelStatusRequest()
            _specify(request.model_spec, name, version, label)
            return _as_json(self._models.status(request), False)
        request = get_model_metadata_pb2.GetModelMetadataRequest()
        _specify(request.model_spec, name, version, label)
        response = self._models.metadata(request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        return {
            "model_spec": _as_json(response.model_spec),
            "metadata": {"signature_def": _as_json(signatures)},
        }

    def _ask(self, body, name, version, label, verb):
        try:
            asked = json.loads(body)
        except ValueError as error:
            raise Malformed(f"JSON Parse error: {error}") from error
        request = {
            "predict": predict_pb2.PredictRequest,
            "classify": classification_pb2.ClassificationRequest,
        }[verb]()
        _specify(request.model_spec, name, version, label)
        request.model_spec.signature_name = asked.get("signature_name", "")
        if verb == "classify":
            _fill_examples(request, asked)
            rows = self._models.classify(request).result.classifications
            return {
                "results": [
                    [[c.label, c.score] for c in r.classes] for r in rows
                ]
            }
        signature = self._models.signature(request.model_spec)
        _fill_tensors(request, signature, asked)
        outputs = {
            key: _plain(tf.make_ndarray(tensor))
            for key, tensor in self._models.predict(request).outputs.items()
        }
        columns = "inputs" in asked
        key = "outputs" if columns else "predictions"
        if len(outputs) == 1:
            [answer] = outputs.values()
        elif columns:
            answer = outputs
        else:
            rows = zip(*outputs.values(), strict=True)
            answer = [dict(zip(outputs, row, strict=True)) for row in rows]
        return {key: answer}


def _specify(spec, name, version, label):
    spec.name = urllib.parse.unquote(name)
    if version:
        spec.version.value = int(version)
    if label:
        spec.version_label = urllib.parse.unquote(label)


def _as_json(message, snake_case=True):
    return json_format.MessageToDict(
        message,
        preserving_proto_field_name=snake_case,
        always_print_fields_with_no_presence=True,
    )


def _fill_examples(request, asked):
    """Features of bytes, which are all that the exports take."""
    if not asked.get("examples"):
        raise Malformed("Expecting 'examples' value to be an list/array")
    for features in asked["examples"]:
        example = request.input.example_list.examples.add()
        for name, value in features.items():
            values = example.features.feature[name].bytes_list.value
            values.append(_bytes(value))


def _fill_tensors(request, signature, asked):
    """Tensors in rows ("instances") or in columns ("inputs")."""
    if ("instances" in asked) == ("inputs" in asked):
        raise Malformed("Expecting one of 'inputs' or 'instances' keys")
    columns = asked.get("inputs")
    if columns is None:
        rows = asked["instances"]
        if not isinstance(rows, list) or not rows:
            raise Malformed("No values in 'instances' array")
        columns = rows
        if _is_object(rows[0]):
            columns = {key: [row.get(key) for row in rows] for key in rows[0]}
    if not _is_object(columns):
        columns = dict.fromkeys(signature.inputs, columns)
    for name, info in signature.inputs.items():
        if name not in columns:
            raise Malformed(f"Missing named input: {name} in 'inputs' object.")
        request.inputs[name].CopyFrom(_tensor(columns[name], info.dtype))


def _is_object(value):
    return isinstance(value, dict) and set(value) != {"b64"}


def _tensor(value, dtype):
    """A `TensorProto` of nested lists."""
    dtype = tf.dtypes.as_dtype(dtype)
    if dtype == tf.string:
        values = value if isinstance(value, list) else [value]
        return tf.make_tensor_proto([_bytes(v) for v in values], dtype)
    try:
        array = np.array(value)
    except ValueError as error:
        raise Malformed(f"Encountered list at unexpected size: {error}") from (
            error
        )
    if array.dtype.kind not in "iuf":
        raise Malformed(f"JSON Value is not of expected type: {dtype.name}")
    return tf.make_tensor_proto(array, dtype)


def _bytes(value):
    """The bytes of a JSON string, or of an object `{"b64": ...}`."""
    if isinstance(value, str):
        return value.encode()
    try:
        return base64.b64decode(value["b64"], validate=True)
    except binascii.Error as error:
        raise Malformed("Unable to base64 decode") from error
    except (KeyError, TypeError) as error:
        raise Malformed(
            "JSON Value not formatted correctly for base64 data"
        ) from error


def _plain(array):
    """An array as JSON has it."""
    if array.dtype != object:
        return array.tolist()
    return np.vectorize(bytes.decode, otypes="O")(array).tolist()
