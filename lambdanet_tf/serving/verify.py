"""Verifies that an export without Keras computes the outputs of Keras.

An export contains examples with the outputs of Keras, and warm-up requests.
When TF Serving loads a version, it replays
`assets.extra/tf_serving_warmup_requests`, a TFRecord file of `PredictionLog`.
Otherwise the first request of a session would be slow, because it builds the
executor.
"""

import dataclasses
import io
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.environment import is_there
from lambdanet_tf.environment import require
from lambdanet_tf.files import read_arrays
from lambdanet_tf.serving import formats
from lambdanet_tf.serving.inference import Inference
from lambdanet_tf.serving.inference import scores_of
from lambdanet_tf.serving.options import FORMATS
from lambdanet_tf.serving.standalone import run_standalone
from lambdanet_tf.serving.versions import read_metadata
from lambdanet_tf.serving.versions import write_file

EXAMPLES_FILE = "assets.extra/examples.npz"
EXAMPLE_IMAGE = "assets.extra/example.png"
WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
BATCH_SIZES = (1, 8, 32)

_NUM_NOISE = 3
_GRAY = 127
_API = "tensorflow_serving"  # installed by the extra `serving`


def examples_of(
    network: Inference, examples: tuple[Any, Any] | None
) -> dict[str, np.ndarray]:
    """Returns examples, and the outputs that each signature must compute.

    Returns:
        `images`, uint8; `labels`, empty for noise; and the outputs of the Keras
        model, under names such as `serving_default/logits`.
    """
    if examples is None:
        shape = (_NUM_NOISE, *network.image_shape)
        noise = np.random.default_rng(0).uniform(0, 255, shape)
        examples = noise, np.zeros(0, np.int64)
    images = np.rint(examples[0]).clip(0, 255).astype(np.uint8)
    arrays = {"images": images, "labels": np.ravel(examples[1])}
    crop = network.crop
    cropped = [crop(data.ArrayImage(tf.constant(image))) for image in images]
    for signature, pixels in (
        ("serving_default", images),
        ("serving_bytes", tf.stack(cropped)),
    ):
        outputs = network.expected_outputs(pixels)
        features = outputs.pop("features")
        outputs |= _classes(network, outputs)
        arrays |= {f"{signature}/{k}": array for k, array in outputs.items()}
        if signature == "serving_default":
            arrays["features/features"] = features
    return arrays


def _classes(network, outputs):
    """Returns the classes and their names; -1 and "" if rounding decides."""
    scores = scores_of(outputs["probabilities"])
    order = np.argsort(-scores, axis=-1, kind="stable")
    best = np.take_along_axis(scores, order, axis=-1)
    is_close = best[:, :-1] - best[:, 1:] < 2 * network.tolerance
    is_close = np.pad(is_close, [(0, 0), (1, 1)])
    is_open = is_close[:, :-1] | is_close[:, 1:]
    labels = np.array([label.encode() for label in network.labels])
    top = network.options.top
    return {
        "classes": np.where(is_open, -1, order)[:, 0],
        "top_labels": np.where(is_open, b"", labels[order])[:, :top],
        "top_probabilities": best[:, :top],
    }


def write_examples(folder: str, arrays: Mapping[str, Any]) -> None:
    """Writes examples into a version folder."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    write_file(folder, EXAMPLES_FILE, stream.getvalue())
    if len(arrays["labels"]):
        image = tf.io.encode_png(arrays["images"][0]).numpy()
        write_file(folder, EXAMPLE_IMAGE, image)


def requests_of(images: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """Returns the inputs of each signature, by name, for uint8 images."""
    pixels = {"images": images.astype(np.float32)}
    files = [tf.io.encode_png(image).numpy() for image in images]
    return {
        "serving_default": pixels,
        "serving_bytes": {"image_bytes": np.array(files, "O")},
        "features": pixels,
    }


def write_warmup(folder: str, name: str, image_shape: tuple[int, ...]) -> None:
    """Writes requests of gray images, if the extra `serving` is installed."""
    if not is_there(_API):
        return
    logs = require(f"{_API}.apis.prediction_log_pb2", extra="serving")
    file = os.path.join(folder, WARMUP_FILE)
    with tf.io.TFRecordWriter(file) as writer:
        for size in BATCH_SIZES:
            images = np.full((size, *image_shape), _GRAY, np.uint8)
            for signature, inputs in requests_of(images).items():
                log = logs.PredictionLog()
                request = log.predict_log.request
                request.model_spec.name = name
                request.model_spec.signature_name = signature
                for key, array in inputs.items():
                    request.inputs[key].CopyFrom(_tensor_proto(array))
                writer.write(log.SerializeToString())


def _tensor_proto(array):
    """Returns a `TensorProto`; for a constant array, it stores one number."""
    if array.dtype == np.float32:
        return tf.make_tensor_proto(array.flat[0], tf.float32, array.shape)
    return tf.make_tensor_proto(array)


@dataclasses.dataclass(frozen=True)
class SignatureResult:
    """Comparison of a signature or a format with Keras.

    Attributes:
        signature: name of the signature or format.
        difference: the largest difference, relative to the largest value of an
            output; for classes and names, the fraction that differs.
        agrees: whether the difference is within the tolerance.
    """

    signature: str
    difference: float
    agrees: bool


@dataclasses.dataclass(frozen=True)
class Verification:
    """Results of a verification; print it for a report.

    Attributes:
        images: number of images compared.
        signatures: a result for each signature and format.
    """

    images: int
    signatures: Sequence[SignatureResult]

    @property
    def agrees(self) -> bool:
        """Whether every signature and format agrees with Keras."""
        return all(result.agrees for result in self.signatures)

    def __str__(self):
        lines = [
            f"Compared {self.images} images in Keras and in the export, in a "
            "process with\nTensorFlow only. Largest relative difference:\n"
        ]
        lines += [
            f"{result.signature:16}{result.difference:9.1e}  "
            f"{'same' if result.agrees else 'DIFFERENT'}"
            for result in self.signatures
        ]
        return "\n".join(lines)


def verify_export(folder: str | os.PathLike) -> Verification:
    """Compares an export with the outputs of its Keras model on examples.

    Signatures run in a process with TensorFlow only.

    Args:
        folder: the version folder, which contains the examples.

    Raises:
        ValueError: if the folder is not an export of this package.
        RuntimeError: if the export does not load, or if a request fails.

    Examples:
        >>> verify_export("exported/LambdaResNetSmall/1").agrees
        True
    """
    fields = read_metadata(folder)
    arrays = read_arrays(os.path.join(folder, EXAMPLES_FILE))
    calls = requests_of(arrays["images"])
    answers = run_standalone(folder, [*calls.items()])
    found = [*zip(calls, calls, answers, strict=True)]
    for name in fields["options"]["formats"]:
        file = os.path.join(folder, FORMATS[name])
        with tf.io.gfile.GFile(file, "rb") as stream:
            run = formats.runner(name, stream.read())
        outputs = run(calls["serving_default"]["images"])
        found.append((name, "serving_default", outputs))
    results = [_compared(*x, arrays, fields["tolerance"]) for x in found]
    return Verification(len(arrays["images"]), results)


def _compared(name, signature, outputs, arrays, tolerance):
    """Compares the outputs of a signature or a format, by name."""
    # Python's `max` would ignore NaN.
    difference = np.max(
        [_difference(x, arrays[f"{signature}/{k}"]) for k, x in outputs.items()]
    )
    return SignatureResult(
        name, float(difference), bool(difference <= tolerance)
    )


def _difference(found, wanted):
    """Returns the largest difference, relative to the largest value."""
    if found.shape != wanted.shape:
        return np.inf
    if wanted.dtype.kind == "f":
        apart = np.where(found == wanted, 0.0, np.abs(found - wanted))
        return np.max(apart) / max(1.0, np.abs(wanted).max())
    is_open = (wanted == b"") if wanted.dtype.kind == "S" else wanted < 0
    return np.mean(~is_open & (found.astype(wanted.dtype) != wanted))
