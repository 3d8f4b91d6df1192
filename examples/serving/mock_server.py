"""A mock of TF Serving, for tests and trials. It is not a product.

    python -m examples.serving.mock_server exported/LambdaResNetSmall
    python -m examples.serving.mock_server --model_config_file FILE

TF Serving's binary cannot be installed everywhere. `lambdanet serve` speaks its
REST API; this process adds the gRPC PredictionService of
tensorflow-serving-api, and several versions with labels. There is no batching,
and versions are loaded once.
"""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.config import model_server_config_pb2

from lambdanet_tf.serving import server as rest
from lambdanet_tf.serving.standalone import Session
from lambdanet_tf.serving.versions import list_versions


def load(config):
    """Returns the sessions of a `ModelServerConfig`, by version and label."""
    models = {}
    for model in config.model_config_list.config:
        base = pathlib.Path(model.base_path)
        wanted = model.model_version_policy.specific.versions
        sessions = {
            str(version): Session(tf, base / str(version))
            for version in wanted or list_versions(base)[-1:]
        }
        labels = model.version_labels.items()
        sessions |= {label: sessions[str(n)] for label, n in labels}
        models[model.name] = sessions
    return models


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """The gRPC service.

    Args:
        models: as `load` returns.
    """

    def __init__(self, models):
        self._models = models

    def Predict(self, request, context):
        response = predict_pb2.PredictResponse()
        inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
        with _refusing(context):
            session = self._session(request.model_spec)
            name = request.model_spec.signature_name or "serving_default"
            for key, value in session.run(name, inputs).items():
                response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
        return response

    def GetModelMetadata(self, request, context):
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        signatures = get_model_metadata_pb2.SignatureDefMap()
        with _refusing(context):
            session = self._session(request.model_spec)
            for name, signature in session.signatures.items():
                signatures.signature_def[name].CopyFrom(signature)
        response.metadata["signature_def"].Pack(signatures)
        return response

    def _session(self, spec):
        key = spec.version_label
        if spec.HasField("version"):
            key = str(spec.version.value)
        versions = rest.versions_of(self._models, spec.name, key)
        return self._models[spec.name][versions[0]]


@contextlib.contextmanager
def _refusing(context):
    """Answers errors as TF Serving does."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except LookupError as error:
        context.abort(grpc.StatusCode.NOT_FOUND, str(error))
    except tf.errors.OpError as error:
        message = error.message.removeprefix("Graph execution error:").lstrip()
        codes = {code.value[0]: code for code in grpc.StatusCode}
        context.abort(codes[error.error_code], message)


def serve(models, grpc_port=0, rest_port=0):
    """Starts both interfaces in threads; returns their servers and ports."""
    web = rest.server_of(models, rest_port)
    threading.Thread(target=web.serve_forever, daemon=True).start()
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
    grpc_port = server.add_insecure_port(f"{rest.HOST}:{grpc_port}")
    server.start()
    return (server, web), {"grpc": grpc_port, "rest": web.server_port}


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
    models = load(config)
    (server, web), ports = serve(models, flags.port, flags.rest_api_port)
    names = ", ".join(c.name for c in config.model_config_list.config)
    print(
        f"Mock server with {names}: gRPC on port {ports['grpc']}, "
        f"REST on port {ports['rest']}",
        flush=True,
    )
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        web.shutdown()
        server.stop(grace=1)


if __name__ == "__main__":
    main()
