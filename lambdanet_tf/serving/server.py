"""A local server for trials, with TF Serving's REST API for exports.

Models run in the session that TF Serving uses. The server is slower, because
it does not batch and runs in Python, and it loads versions only once.
"""

import base64
import contextlib
import functools
import http.server
import importlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import UserError
from lambdanet_tf.serving.standalone import Session

# The sessions of each model, by version or label.
Models = Mapping[str, Mapping[str, Session]]

HOST = "127.0.0.1"
_PATH = re.compile(
    r"/v1/models/([^/:]+)(?:/(?:versions|labels)/([^/:]+))?(:predict|/metadata|)"
)
_MALFORMED = (AttributeError, KeyError, RecursionError, TypeError, ValueError)


def serve(folder: str | os.PathLike, port: int) -> None:
    """Serves a version folder until the process is interrupted.

    Raises:
        ValueError: if the port is taken.
    """
    name, version = os.path.abspath(folder).split(os.sep)[-2:]
    with _no_log():
        models = {name: {version: Session(tf, folder)}}
    try:
        server = server_of(models, port)
    except (OSError, OverflowError) as error:
        raise UserError(f"Cannot serve on port {port}: {error}.") from error
    address = f"http://localhost:{server.server_port}/v1/models/{name}"
    print(f"Serving {folder} at {address}:predict (Ctrl-C stops)", flush=True)
    server.serve_forever()


@contextlib.contextmanager
def _no_log():
    """Hides console lines of TensorFlow's C++ code that no level hides."""
    kept = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)


def server_of(models: Models, port: int) -> http.server.ThreadingHTTPServer:
    """Returns a server of models; its `server_port` is the port."""
    handler = functools.partial(_Handler, models)
    return http.server.ThreadingHTTPServer((HOST, port), handler)


def versions_of(models: Models, name: str, key: str | None = None) -> list[str]:
    """Returns the requested version of a model, or all, the newest first.

    Raises:
        LookupError: if there is none.
    """
    there = models.get(name, {})
    numbers = [version for version in there if version.isdecimal()]
    found = [key] if key else sorted(numbers, key=int, reverse=True)
    if not {*found} <= {*there} or not found:
        raise LookupError(f"Servable not found for request: {name}, {key}")
    return found


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open
    disable_nagle_algorithm = True  # a small response is sent at once

    def __init__(self, models, *arguments):
        self._models = models
        super().__init__(*arguments)  # which handles the connection

    def do_GET(self):
        try:
            status, fields = 200, self._answer()
        except tf.errors.InvalidArgumentError as error:
            text = error.message.removeprefix("Graph execution error:\n\n")
            status, fields = 400, {"error": text}
        except Exception as error:  # No request may stop the server.
            status, text = 500, f"{error}"
            if type(error) is LookupError:
                status = 404
            elif isinstance(error, _MALFORMED):
                status = 400
                text = f"Malformed request: {type(error).__name__}: {error}"
            fields = {"error": text}
        content = json.dumps(fields).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, *_):
        pass

    def _answer(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(max(length, 0))
        match = _PATH.fullmatch(self.path)
        if match is None:
            raise LookupError(f"Not found: {self.path}")
        name, key, verb = match.groups()
        versions = versions_of(self._models, name, key)
        session = self._models[name][versions[0]]
        if verb == ":predict":
            return _predict(session, json.loads(body))
        if verb == "/metadata":
            read = importlib.import_module("google.protobuf.json_format")
            signatures = {
                key: read.MessageToDict(x, preserving_proto_field_name=True)
                for key, x in session.signatures.items()
            }
            found = {"signature_def": {"signature_def": signatures}}
            return {"metadata": found}
        states = [{"version": n, "state": "AVAILABLE"} for n in versions]
        return {"model_version_status": states}


def _predict(session, request):
    """Answers rows ("instances") or columns ("inputs")."""
    name = request.get("signature_name", "serving_default")
    needed = session.signatures[name].inputs
    columns = request.get("inputs")
    if columns is None:
        columns = dict.fromkeys(needed, request["instances"])
    outputs = session.run(
        name, {k: _tensor(columns[k], x.dtype) for k, x in needed.items()}
    )
    lists = {
        key: (value.astype("U") if value.dtype == "O" else value).tolist()
        for key, value in outputs.items()
    }
    found: Any = lists
    if len(lists) == 1:  # A single output has no name.
        (found,) = lists.values()
    elif "inputs" not in request:
        rows = zip(*lists.values(), strict=True)
        found = [dict(zip(lists, row, strict=True)) for row in rows]
    return {"outputs" if "inputs" in request else "predictions": found}


def _tensor(values: Any, dtype: int) -> np.ndarray:
    """Returns an input, from JSON: files are {"b64": ...}."""
    if dtype == tf.string:
        files = [base64.b64decode(x["b64"], validate=True) for x in values]
        return np.array(files, "O")
    return np.array(values, np.float32)
