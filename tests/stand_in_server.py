"""A stand-in for TF Serving, for tests and trials. It is not a product.

    python -m tests.stand_in_server exported/LambdaResNetSmall
    python -m tests.stand_in_server --model_config_file FILE

TF Serving's binary cannot be installed everywhere. This process speaks its
two protocols on loopback: the real gRPC services of tensorflow-serving-api,
and the documented REST interface (`tests/stand_in_rest.py`), with TF Serving's
status codes and messages. The models run in the session of TensorFlow 1 that
the server itself uses. It has no batching, loads versions once, and is slower
than a server in C++: what Python adds, it adds to every request.
"""

import argparse
import concurrent.futures
import os
import pathlib
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
from google.protobuf import text_format
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.config import model_server_config_pb2

from tests.stand_in_models import Models
from tests.stand_in_models import Refusal
from tests.stand_in_rest import serve_rest

HOST = "127.0.0.1"


def _as_rpc(method):
    """A function of a request as gRPC calls it."""

    def call(request, context):
        try:
            return method(request)
        except Refusal as refusal:
            context.abort(refusal.code, str(refusal))

    return call


def serve_grpc(models, port=0, threads=8):
    """Starts both gRPC services; returns the server and its port."""
    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(threads),
        options=[
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ],
    )
    prediction = prediction_service_pb2_grpc.PredictionServiceServicer()
    prediction.Predict = _as_rpc(models.predict)
    prediction.Classify = _as_rpc(models.classify)
    prediction.GetModelMetadata = _as_rpc(models.metadata)
    status = model_service_pb2_grpc.ModelServiceServicer()
    status.GetModelStatus = _as_rpc(models.status)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        prediction, server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(status, server)
    port = server.add_insecure_port(f"{HOST}:{port}")
    server.start()
    return server, port


def config_of(folder):
    """A `ModelServerConfig` for the newest version in a model's folder."""
    folder = pathlib.Path(folder).resolve()
    config = model_server_config_pb2.ModelServerConfig()
    config.model_config_list.config.add(
        name=folder.name, base_path=str(folder), model_platform="tensorflow"
    )
    return config


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", help="<base>/<model>")
    parser.add_argument("--model_config_file")
    parser.add_argument("--port", type=int, default=8500, help="of gRPC")
    parser.add_argument("--rest_api_port", type=int, default=8501)
    options = parser.parse_args()
    if (options.folder is None) == (options.model_config_file is None):
        parser.error("give a folder or --model_config_file")
    if options.folder:
        config = config_of(options.folder)
    else:
        text = pathlib.Path(options.model_config_file).read_text()
        config = model_server_config_pb2.ModelServerConfig()
        text_format.Parse(text, config)
    models = Models(config)
    server, port = serve_grpc(models, options.port)
    rest = serve_rest(models, HOST, options.rest_api_port)
    names = ", ".join(c.name for c in config.model_config_list.config)
    print(
        f"Stand-in for TF Serving with {names}: gRPC on port {port}, REST on "
        f"port {rest.server_port}",
        flush=True,
    )
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        rest.shutdown()
        server.stop(grace=1)


if __name__ == "__main__":
    main()
