"""Sends images to a served export over gRPC.

    python -m examples.serving.grpc_client MODEL IMAGE...
    python -m examples.serving.grpc_client MODEL IMAGE... --signature features

Needs the extra `serving` (tensorflow-serving-api).
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from examples.serving import command_line
from examples.serving import errors
from examples.serving.pictures import INPUTS

PORT = 8500
# Batches of large images are longer than the 4 MiB that gRPC takes.
UNLIMITED = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]
KINDS = {
    grpc.StatusCode.NOT_FOUND: "not found",
    grpc.StatusCode.INVALID_ARGUMENT: "refused",
    grpc.StatusCode.FAILED_PRECONDITION: "refused",
}


class GrpcClient:
    """One connection to a PredictionService.

    Args:
        address: "host:port".
        model: the name of the model.
        version: int; None for the newest.
        label: the label of a version, instead.
        timeout: seconds that an answer may take.
    """

    def __init__(self, address, model, version=None, label=None, timeout=10.0):
        self.address = address
        self.timeout = timeout
        self._model, self._version, self._label = model, version, label
        self._channel = grpc.insecure_channel(address, UNLIMITED)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(
            self._channel
        )

    def request(self, signature, batch):
        """Builds the request for a batch.

        Args:
            signature: its name.
            batch: list of the bytes of files, or float32 array of pixels.

        Returns:
            A `PredictRequest`.
        """
        request = predict_pb2.PredictRequest()
        dtype = tf.string if isinstance(batch, list) else tf.float32
        request.inputs[INPUTS[signature]].CopyFrom(
            tf.make_tensor_proto(batch, dtype)
        )
        self._specify(request.model_spec)
        request.model_spec.signature_name = signature
        return request

    def send(self, request):
        """Returns the `PredictResponse`.

        Raises:
            ServingError: if there is none, or it is an error.
        """
        return self._call(self._stub.Predict, request)

    def answer(self, response):
        """Returns the outputs in a response: names to arrays or lists."""
        outputs = {
            name: tf.make_ndarray(tensor)
            for name, tensor in response.outputs.items()
        }
        labels = outputs.get("top_labels", [])
        names = [[name.decode() for name in row] for row in labels]
        return outputs | {"top_labels": names}

    def image_shape(self, signature):
        """The shape of one image, as the server describes it; -1 is any."""
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            metadata_field=["signature_def"]
        )
        self._specify(request.model_spec)
        response = self._call(self._stub.GetModelMetadata, request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        images = signatures.signature_def[signature].inputs["images"]
        return [dimension.size for dimension in images.tensor_shape.dim][1:]

    def close(self):
        """Closes the connection."""
        self._channel.close()

    def _specify(self, spec):
        """Names the model, and a version of it."""
        spec.name = self._model
        if self._version is not None:
            spec.version.value = self._version
        if self._label is not None:
            spec.version_label = self._label

    def _call(self, method, request):
        try:
            return method(request, self.timeout)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
            if code == grpc.StatusCode.UNAVAILABLE:
                raise errors.absent(self.address, details) from error
            if code == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise errors.timeout(self.address, self.timeout) from error
            kind = KINDS.get(code, "failed")
            raise errors.of_status(kind, details) from error


if __name__ == "__main__":
    sys.exit(command_line.main(GrpcClient, PORT, __doc__))
