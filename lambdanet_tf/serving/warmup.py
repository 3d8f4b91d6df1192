"""Warm-up requests, which a server runs before it accepts traffic.

TF Serving replays `assets.extra/tf_serving_warmup_requests`, a TFRecord file
of `PredictionLog`, when it loads a version. The first request of a session
builds its executor and would otherwise be slow.
"""

import importlib.util
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.environment import require
from lambdanet_tf.serving.signatures import ENCODED_FEATURE

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
BATCH_SIZES = (1, 8, 32)

_GRAY = 127.0
_CLASSIFY = "classify"

# A signature and its inputs by name.
Request = tuple[str, Mapping[str, Any]]


def requests_for(
    image_shape: tuple[int, int, int], batch_sizes: Sequence[int] = BATCH_SIZES
) -> list[Request]:
    """Returns warm-up requests of each signature and batch size.

    Args:
        image_shape: (height, width, channels) of decoded images.
        batch_sizes: how many images the requests have.
    """
    ramp = np.linspace(0, 255, np.prod(image_shape)).reshape(image_shape)
    encoded = tf.io.encode_jpeg(ramp.astype(np.uint8)).numpy()
    return [
        request
        for batch in batch_sizes
        for request in requests_of(
            np.full((batch, *image_shape), _GRAY, np.float32), [encoded] * batch
        )
    ]


def requests_of(images: np.ndarray, encoded: Sequence[bytes]) -> list[Request]:
    """Returns a request of each signature for the same images.

    Args:
        images: float32 `(batch, height, width, channels)`.
        encoded: a JPEG or PNG of each.
    """
    examples = [*map(encoded_example, encoded)]
    return [
        ("serving_default", {"images": images}),
        ("serving_bytes", {"image_bytes": np.array(encoded, "O")}),
        (_CLASSIFY, {"inputs": np.array(examples, "O")}),
        ("features", {"images": images}),
    ]


def encoded_example(encoded: bytes) -> bytes:
    """Returns a serialized `tf.train.Example` of an encoded image."""
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded]))
    features = tf.train.Features(feature={ENCODED_FEATURE: feature})
    return tf.train.Example(features=features).SerializeToString()


def can_write() -> bool:
    """Returns whether the extra `serving` is installed."""
    return importlib.util.find_spec("tensorflow_serving") is not None


def write(
    folder: pathlib.Path, name: str, image_shape: tuple[int, int, int]
) -> None:
    """Writes warm-up requests, if the extra `serving` is installed.

    Args:
        folder: the version folder.
        name: of the model.
        image_shape: (height, width, channels) of decoded images.
    """
    if not can_write():
        return
    with tf.io.TFRecordWriter(str(folder / WARMUP_FILE)) as writer:
        for signature, inputs in requests_for(image_shape):
            log = _api().PredictionLog()
            if signature == _CLASSIFY:
                request = log.classify_log.request
                examples = request.input.example_list.examples
                for serialized in inputs["inputs"]:
                    examples.add().ParseFromString(serialized)
            else:
                request = log.predict_log.request
                for key, value in inputs.items():
                    request.inputs[key].CopyFrom(_tensor_proto(value))
            request.model_spec.name = name
            request.model_spec.signature_name = signature
            writer.write(log.SerializeToString())


def read(folder: pathlib.Path) -> list[Request] | None:
    """Reads warm-up requests; None if there are none or cannot be read."""
    file = folder / WARMUP_FILE
    if not file.is_file() or not can_write():
        return None
    records = tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
    return [
        _parsed(_api().PredictionLog.FromString(record)) for record in records
    ]


def _parsed(log):
    """The request in a `PredictionLog`."""
    if log.WhichOneof("log_type") == "classify_log":
        examples = log.classify_log.request.input.example_list.examples
        serialized = [example.SerializeToString() for example in examples]
        return _CLASSIFY, {"inputs": np.array(serialized, "O")}
    request = log.predict_log.request
    inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
    return request.model_spec.signature_name, inputs


def _tensor_proto(value):
    """A `TensorProto`; a single number if all are equal."""
    value = np.asarray(value)
    if value.dtype == np.float32 and value.size and np.ptp(value) == 0:
        return tf.make_tensor_proto(value.flat[0], tf.float32, value.shape)
    return tf.make_tensor_proto(value)


def _api():
    """The messages of logs, of tensorflow-serving-api."""
    module = "tensorflow_serving.apis.prediction_log_pb2"
    return require(module, extra="serving")
