"""What the stand-in for TF Serving serves: see `tests/stand_in_server.py`."""

import pathlib

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import classification_pb2
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import predict_pb2

from lambdanet_tf.serving import fresh_process
from lambdanet_tf.serving import version_folders
from lambdanet_tf.serving import warmup

Code = grpc.StatusCode
CODES = {code.value[0]: code for code in Code}
CLASSIFY_METHOD = "tensorflow/serving/classify"
PREFIX_IN_PYTHON = "Graph execution error:"


class Refusal(Exception):
    """A request is answered by a status code and a text."""

    def __init__(self, code, details):
        super().__init__(details)
        self.code = code


class Models:
    """Loaded versions, asked with TF Serving's own messages.

    Args:
        config: `ModelServerConfig`.
    """

    def __init__(self, config):
        self._versions, self._labels = {}, {}
        for model in config.model_config_list.config:
            base = pathlib.Path(model.base_path)
            wanted = list(model.model_version_policy.specific.versions)
            newest = version_folders.versions(base)[-1:]
            self._versions[model.name] = {
                version: _warmed(base / str(version))
                for version in wanted or newest
            }
            self._labels[model.name] = dict(model.version_labels)

    def predict(self, request):
        """Answers a `PredictRequest`."""
        version, server = self._find(request.model_spec)
        name = request.model_spec.signature_name or "serving_default"
        if name not in server.signatures:
            raise Refusal(
                Code.FAILED_PRECONDITION,
                f'Serving signature key "{name}" not found.',
            )
        outputs = _run(server, name, _feed(server.signatures[name], request))
        response = predict_pb2.PredictResponse()
        _specify(response, request, version, name)
        for key in request.output_filter or outputs:
            if key not in outputs:
                raise Refusal(
                    Code.INVALID_ARGUMENT,
                    f"output tensor alias not found in signature: {key}",
                )
            response.outputs[key].CopyFrom(tf.make_tensor_proto(outputs[key]))
        return response

    def classify(self, request):
        """Answers a `ClassificationRequest`."""
        version, server = self._find(request.model_spec)
        name = request.model_spec.signature_name or "serving_default"
        signature = self.signature(request.model_spec)
        if signature.method_name != CLASSIFY_METHOD:
            raise Refusal(
                Code.INVALID_ARGUMENT,
                "Expected classification signature method_name to be "
                f"{CLASSIFY_METHOD}. Was: {signature.method_name}",
            )
        examples = [
            example.SerializeToString()
            for example in request.input.example_list.examples
        ]
        if not examples:
            raise Refusal(Code.INVALID_ARGUMENT, "Input is empty.")
        outputs = _run(server, name, {"inputs": np.array(examples, "O")})
        response = classification_pb2.ClassificationResponse()
        _specify(response, request, version, name)
        for labels, scores in zip(
            outputs["classes"], outputs["scores"], strict=True
        ):
            row = response.result.classifications.add()
            for label, score in zip(labels, scores, strict=True):
                row.classes.add(label=label.decode(), score=score)
        return response

    def metadata(self, request):
        """Answers a `GetModelMetadataRequest`."""
        version, server = self._find(request.model_spec)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in server.signatures.items():
            signatures.signature_def[name].CopyFrom(signature)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        _specify(response, request, version, "")
        response.metadata["signature_def"].Pack(signatures)
        return response

    def status(self, request):
        """Answers a `GetModelStatusRequest`."""
        spec = request.model_spec
        versions = self._versions.get(spec.name, {})
        if not versions:
            raise Refusal(
                Code.NOT_FOUND,
                f"Could not find any versions of model {spec.name}",
            )
        if spec.HasField("version"):
            versions = [self._find(spec)[0]]
        response = get_model_status_pb2.GetModelStatusResponse()
        for version in versions:
            response.model_version_status.add(
                version=version,
                state=get_model_status_pb2.ModelVersionStatus.AVAILABLE,
            ).status.SetInParent()
        return response

    def signature(self, spec):
        """Returns the `SignatureDef` that a `ModelSpec` names."""
        name = spec.signature_name or "serving_default"
        signatures = self._find(spec)[1].signatures
        if name not in signatures:
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f'Serving signature name: "{name}" not found in signature def',
            )
        return signatures[name]

    def _find(self, spec):
        """The version that a `ModelSpec` names, and its session."""
        versions = self._versions.get(spec.name, {})
        version = max(versions, default=None)
        request = f"Latest({spec.name})"
        if spec.version_label:
            version = self._labels.get(spec.name, {}).get(spec.version_label)
            if version is None:
                raise Refusal(
                    Code.INVALID_ARGUMENT,
                    "Unrecognized servable version label: "
                    f"{spec.version_label}",
                )
        elif spec.HasField("version"):
            version = spec.version.value
            request = f"Specific({spec.name}, {version})"
        if version not in versions:
            raise Refusal(
                Code.NOT_FOUND, f"Servable not found for request: {request}"
            )
        return version, versions[version]


def _warmed(folder):
    """A loaded version that has answered its warm-up requests."""
    server = fresh_process.Server(tf, folder)
    for signature, tensors in warmup.read_warmup_requests(folder) or ():
        server.answer(signature, tensors)
    return server


def _specify(response, request, version, signature):
    """Says in a response who answered."""
    response.model_spec.name = request.model_spec.name
    response.model_spec.signature_name = signature
    response.model_spec.version.value = version


def _feed(signature, request):
    """The tensors of a request, if the signature takes them."""
    if set(request.inputs) != set(signature.inputs):
        raise Refusal(
            Code.INVALID_ARGUMENT,
            "input size does not match signature: "
            f"len({sorted(request.inputs)}) != len({sorted(signature.inputs)})",
        )
    for name, info in signature.inputs.items():
        received = tf.dtypes.as_dtype(request.inputs[name].dtype)
        if received != info.dtype:
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f"Expects arg[0] to be {tf.dtypes.as_dtype(info.dtype).name} "
                f"but {received.name} is provided",
            )
    return {k: tf.make_ndarray(tensor) for k, tensor in request.inputs.items()}


def _run(server, signature, tensors):
    try:
        return server.answer(signature, tensors)
    except tf.errors.OpError as error:
        message = error.message.removeprefix(PREFIX_IN_PYTHON).lstrip()
        raise Refusal(CODES[error.error_code], message) from error
    except (TypeError, ValueError) as error:  # the feed does not fit
        raise Refusal(Code.INVALID_ARGUMENT, str(error)) from error
