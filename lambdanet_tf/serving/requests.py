"""Requests of an export's signatures: its examples, and the warm-up.

The examples are kept with what the Keras model computes for them, to verify the
export on. TF Serving replays `assets.extra/tf_serving_warmup_requests`, a
TFRecord file of `PredictionLog`, when it loads a version: the first request of
a session builds its executor and would otherwise be slow.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.arguments import UserError
from lambdanet_tf.environment import is_there
from lambdanet_tf.environment import require
from lambdanet_tf.files import read_arrays
from lambdanet_tf.serving.inference import Inference
from lambdanet_tf.serving.signatures import ENCODED_FEATURE
from lambdanet_tf.serving.standalone import XLA_SIGNATURE

EXAMPLES_FILE = "assets.extra/examples.npz"
EXAMPLE_IMAGE = "assets.extra/example.png"
WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
BATCH_SIZES = (1, 8, 32)

# Outputs are those of the inputs as tensors, and of images as files, which are
# cropped.
TENSORS = "of_tensors"
FILES = "of_files"
_INPUTS = "inputs/"

_NUM_NOISE = 3
_GRAY = 127
_CLASSIFY = "classify"
_API = "tensorflow_serving"  # which the extra `serving` installs

# Inputs of examples, and what belongs to them, by name.
Arrays = Mapping[str, Any]
# A signature and its inputs by name.
Request = tuple[str, Mapping[str, Any]]


def examples_of(network: Inference, examples: Any) -> dict[str, Any]:
    """Computes what the Keras model makes of examples.

    Args:
        network: what is exported.
        examples: of images, images in [0, 255] and labels, or None for noise;
            else inputs as `predict` of the model takes them.

    Returns:
        Of images `images`, uint8 `(images, height, width, channels)`, and
        `labels`, the class of each, empty if the images are noise. Else the
        inputs, as `inputs/tokens`. And the outputs, as `of_tensors/logits`.

    Raises:
        ValueError: if the examples do not fit the inputs.
    """
    if network.classifier is None:
        inputs = _inputs(network.specs, examples)
        arrays = {f"{_INPUTS}{name}": x for name, x in inputs.items()}
        return arrays | _prefixed(TENSORS, network.expected_outputs(inputs))
    if examples is None:
        shape = (_NUM_NOISE, *network.classifier.image_shape)
        generator = np.random.default_rng(0)
        examples = generator.uniform(0, 255, shape), np.zeros(0, np.int64)
    images, labels = labelled("examples", network, examples)
    images = np.rint(images).clip(0, 255).astype(np.uint8)
    crop = network.classifier.crop
    cropped = [crop(data.ArrayImage(tf.constant(image))) for image in images]
    arrays = {"images": images, "labels": labels}
    for kind, inputs in ((TENSORS, images), (FILES, tf.stack(cropped))):
        arrays |= _prefixed(kind, network.expected_outputs({"images": inputs}))
    return arrays


def labelled(
    name: str, network: Inference, given: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Checks images of a classifier and their labels.

    Args:
        name: of the argument, for errors.
        network: the classifier.
        given: images and the class of each, its number or a row of
            probabilities; or no labels at all.

    Returns:
        Images as float32, and numbers of classes.

    Raises:
        ValueError: if they are something else.
    """
    classifier = network.classifier
    if classifier is None:
        raise UserError(f"`{name}` must be None: it is of image classifiers.")
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise UserError(
            f"`{name}` must be a pair of images and labels. Received: "
            f"{type(given).__name__}."
        )
    images = images_of(name, given[0], network.specs["images"].shape)
    labels, classes = np.asarray(given[1]), len(classifier.labels)
    if labels.ndim == 2 and labels.shape[1] == 1:  # a column of them
        labels = labels[:, 0]
    if labels.ndim == 2 and np.allclose(labels.sum(axis=-1), 1):
        labels = labels.argmax(axis=-1)
    is_of_classes = np.isin(labels, np.arange(classes)).all()
    if labels.shape not in ((0,), images.shape[:1]) or not is_of_classes:
        raise UserError(
            f"`{name}` must have a class for each of {len(images)} images, 0 "
            f"to {classes - 1}. Received: labels of shape {labels.shape}"
            f"{'' if is_of_classes else ' with others'}."
        )
    return images, labels


def images_of(name: str, images: Any, shape: Any) -> np.ndarray:
    """Checks images, one or more, and returns them as float32.

    Args:
        name: of the argument, for errors.
        images: to check.
        shape: `(None, height, width, channels)`, None where any size fits.

    Raises:
        ValueError: if they have another shape, or are no pixels in [0, 255].
    """
    images = np.asarray(images)
    fits = tf.TensorShape(shape).is_compatible_with(images.shape)
    if not fits or not len(images):
        raise UserError(
            f"`{name}` must hold images of shape {tuple(shape)}. Received: "
            f"shape {images.shape}."
        )
    data.check_pixels(name, images)
    return images.astype(np.float32)


def write_examples(folder: pathlib.Path, arrays: Arrays) -> None:
    """Writes examples into a version folder."""
    np.savez(folder / EXAMPLES_FILE, **arrays)
    if len(arrays.get("labels", ())):
        image = _encoded(arrays["images"][:1])[0]
        (folder / EXAMPLE_IMAGE).write_bytes(image)


def read_examples(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the examples of an export, as `examples_of` returns them.

    Raises:
        ValueError: if their file is missing or damaged.
    """
    return read_arrays(str(folder / EXAMPLES_FILE))


def inputs_of(arrays: Arrays) -> dict[str, np.ndarray]:
    """Returns the inputs among the arrays of examples."""
    return {
        name: array
        for name, array in arrays.items()
        if name == "images" or name.startswith(_INPUTS)
    }


def batch_of(inputs: Arrays, size: int) -> Arrays:
    """Returns the inputs of so many examples, over and over."""
    return {k: x[np.arange(size) % len(x)] for k, x in inputs.items()}


def requests_of(arrays: Arrays, xla: bool = False) -> list[Request]:
    """Returns a request of each signature for the same examples.

    Args:
        arrays: `images`, whole numbers `(batch, height, width, channels)`, or
            inputs, as `inputs/tokens`.
        xla: whether there is a signature that XLA compiles.
    """
    if "images" in arrays:
        encoded = _encoded(arrays["images"])
        images = {"images": np.asarray(arrays["images"], np.float32)}
        examples = [*map(encoded_example, encoded)]
        requests: list[Request] = [
            ("serving_default", images),
            ("serving_bytes", {"image_bytes": np.array(encoded, "O")}),
            (_CLASSIFY, {"inputs": np.array(examples, "O")}),
            ("features", images),
        ]
    else:
        inputs = {k.removeprefix(_INPUTS): x for k, x in arrays.items()}
        requests = [("serving_default", inputs)]
    if xla:
        requests.append((XLA_SIGNATURE, requests[0][1]))
    return requests


def encoded_example(encoded: bytes) -> bytes:
    """Returns a serialized `tf.train.Example` of an encoded image."""
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded]))
    features = tf.train.Features(feature={ENCODED_FEATURE: feature})
    return tf.train.Example(features=features).SerializeToString()


def write_warmup(
    folder: pathlib.Path, name: str, network: Inference, arrays: Arrays
) -> None:
    """Writes warm-up requests, if the extra `serving` is installed.

    They are made of the examples, or of gray images: a tensor of equal numbers
    takes no space.

    Args:
        folder: the version folder.
        name: of the model.
        network: what is exported.
        arrays: its examples.
    """
    if not is_there(_API):
        return
    inputs = inputs_of(arrays)
    if network.classifier is not None:
        shape = (1, *network.classifier.image_shape)
        inputs = {"images": np.full(shape, _GRAY, np.uint8)}
    with tf.io.TFRecordWriter(str(folder / WARMUP_FILE)) as writer:
        for size in BATCH_SIZES:
            for request in requests_of(batch_of(inputs, size)):
                writer.write(_log(name, *request).SerializeToString())


def read_warmup(folder: pathlib.Path) -> list[Request] | None:
    """Reads warm-up requests; None if there are none or cannot be read."""
    file = folder / WARMUP_FILE
    if not file.is_file() or not is_there(_API):
        return None
    records = tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
    return [
        _parsed(_api().PredictionLog.FromString(record)) for record in records
    ]


def _log(name, signature, inputs):
    """The `PredictionLog` of a request."""
    log = _api().PredictionLog()
    if signature == _CLASSIFY:
        request = log.classify_log.request
        for serialized in inputs["inputs"]:
            request.input.example_list.examples.add().ParseFromString(
                serialized
            )
    else:
        request = log.predict_log.request
        for key, value in inputs.items():
            request.inputs[key].CopyFrom(_tensor_proto(value))
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    return log


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
    return require(f"{_API}.apis.prediction_log_pb2", extra="serving")


def _inputs(specs, examples):
    """Examples as an array for each input, by name, checked."""
    if examples is None:
        raise UserError(
            "`examples` must be given for a model of other inputs than images: "
            "the export is verified and warmed up by them. Received: None for "
            f"the inputs {[*specs]}."
        )
    if not isinstance(examples, Mapping):
        several = isinstance(examples, tuple | list) and len(specs) > 1
        values = examples if several else [examples]
        if len(values) != len(specs):
            raise _not_fitting(f"{len(values)} arrays", specs)
        examples = dict(zip(specs, values, strict=True))
    if set(examples) != set(specs):
        raise _not_fitting(f"arrays for {[*examples]}", specs)
    try:
        arrays = {
            name: np.asarray(examples[name]).astype(
                spec.dtype.as_numpy_dtype, casting="same_kind"
            )
            for name, spec in specs.items()
        }
    except (TypeError, ValueError) as error:  # of other types, or ragged
        raise _not_fitting(f"{error}", specs) from error
    shapes = {name: array.shape for name, array in arrays.items()}
    fit = [specs[name].shape.is_compatible_with(shapes[name]) for name in specs]
    if not all(fit) or len({shape[0] for shape in shapes.values()}) > 1:
        raise _not_fitting(f"arrays of shapes {shapes}", specs)
    if 0 in {shape[0] for shape in shapes.values()}:
        raise _not_fitting("no example", specs)
    return arrays


def _not_fitting(received, specs):
    wanted = ", ".join(
        f"{name} of {spec.dtype.name} {tuple(spec.shape)}"
        for name, spec in specs.items()
    )
    return UserError(
        "`examples` must be what the model's `predict` takes, one or more "
        f"for {wanted}. Received: {received}."
    )


def _prefixed(kind, outputs):
    return {f"{kind}/{name}": array for name, array in outputs.items()}


def _encoded(images):
    """Images as PNG files."""
    return [tf.io.encode_png(image).numpy() for image in images]
