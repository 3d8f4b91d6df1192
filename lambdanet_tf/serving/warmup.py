"""Requests that a server runs before it takes the first client's.

TF Serving replays `assets.extra/tf_serving_warmup_requests`, a TFRecord file
of `PredictionLog`, when it loads a version: the first request of a session
builds its executor and would be slow otherwise.
"""

import importlib
import importlib.util

import numpy as np
import tensorflow as tf

from lambdanet_tf.serving.encoded_images import ENCODED_FEATURE

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
BATCH_SIZES = (1, 8, 32)
MAX_REQUESTS = 1000  # TF Serving refuses more.
# A model of any image size is warmed up at one that encoded images get.
_GREY = 127.0
_CLASSIFY = "classify"


def warmup_calls(image_shape, batch_sizes=BATCH_SIZES):
    """Returns one call per signature and batch size.

    Args:
        image_shape: (height, width, channels).
        batch_sizes: how many images the calls have.

    Returns:
        A list of (signature, {input name: array}).
    """
    calls = []
    picture = encoded_picture(image_shape)
    for batch in batch_sizes:
        images = np.full((batch, *image_shape), _GREY, np.float32)
        inputs = {
            "serving_default": {"images": images},
            "serving_bytes": {"image_bytes": np.array([picture] * batch, "O")},
            _CLASSIFY: {"inputs": np.array([example_of(picture)] * batch, "O")},
            "features": {"images": images},
        }
        calls.extend(inputs.items())
    return calls


def encoded_picture(image_shape):
    """A small JPEG of the model's size: a ramp of grey."""
    ramp = np.linspace(0, 255, np.prod(image_shape)).reshape(image_shape)
    return tf.io.encode_jpeg(ramp.astype(np.uint8)).numpy()


def example_of(image_bytes):
    """A serialised `tf.train.Example` of an encoded image."""
    feature = tf.train.Feature(
        bytes_list=tf.train.BytesList(value=[image_bytes])
    )
    features = tf.train.Features(feature={ENCODED_FEATURE: feature})
    return tf.train.Example(features=features).SerializeToString()


def can_write():
    """Whether the extra `serving` is installed."""
    return importlib.util.find_spec("tensorflow_serving") is not None


def write_warmup_requests(folder, name, calls):
    """Writes the calls into the version folder, as TF Serving wants them.

    Args:
        folder: path of the version folder.
        name: the model's name.
        calls: list of (signature, {input name: array}).

    Raises:
        ImportError: if the extra `serving` is not installed.
    """
    if len(calls) > MAX_REQUESTS:
        raise ValueError(
            f"`calls` must be at most {MAX_REQUESTS}. Received: {len(calls)}."
        )
    apis = _apis("prediction_log_pb2")
    file = folder / WARMUP_FILE
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for signature, tensors in calls:
            log = apis.PredictionLog()
            if signature == _CLASSIFY:
                log.classify_log.request.CopyFrom(
                    classification_request(name, tensors["inputs"])
                )
            else:
                log.predict_log.request.CopyFrom(
                    predict_request(name, signature, tensors)
                )
            writer.write(log.SerializeToString())


def read_warmup_requests(folder):
    """Reads them back as calls, or None where there are none."""
    file = folder / WARMUP_FILE
    if not file.is_file() or not can_write():
        return None
    logs = _apis("prediction_log_pb2")
    records = tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
    return [_call(logs.PredictionLog.FromString(record)) for record in records]


def predict_request(name, signature, tensors):
    """A `PredictRequest` of these tensors."""
    request = _apis("predict_pb2").PredictRequest()
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    for key, value in tensors.items():
        request.inputs[key].CopyFrom(_tensor_proto(value))
    return request


def classification_request(name, serialized_examples):
    """A `ClassificationRequest` of these examples."""
    request = _apis("classification_pb2").ClassificationRequest()
    request.model_spec.name = name
    request.model_spec.signature_name = _CLASSIFY
    for serialized in serialized_examples:
        request.input.example_list.examples.append(
            tf.train.Example.FromString(serialized)
        )
    return request


def _call(log):
    """The call in a `PredictionLog`."""
    if log.WhichOneof("log_type") == "classify_log":
        examples = log.classify_log.request.input.example_list.examples
        serialized = [example.SerializeToString() for example in examples]
        return _CLASSIFY, {"inputs": np.array(serialized, "O")}
    request = log.predict_log.request
    tensors = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
    return request.model_spec.signature_name, tensors


def _tensor_proto(value):
    """A `TensorProto`; of one number where all are equal."""
    value = np.asarray(value)
    if value.dtype == np.float32 and value.size and np.ptp(value) == 0:
        return tf.make_tensor_proto(value.flat[0], tf.float32, value.shape)
    return tf.make_tensor_proto(value)


def _apis(module):
    """A module of tensorflow-serving-api."""
    try:
        return importlib.import_module(f"tensorflow_serving.apis.{module}")
    except ImportError as error:
        raise ImportError(
            "Requests of TF Serving need the extra `serving`: "
            "pip install 'lambdanet-tf[serving]'."
        ) from error
