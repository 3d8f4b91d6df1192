"""Verifies an export: TensorFlow alone computes what Keras computed."""

import dataclasses
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import UserError
from lambdanet_tf.files import read_arrays
from lambdanet_tf.serving import formats
from lambdanet_tf.serving.examples import EXAMPLES_FILE
from lambdanet_tf.serving.examples import requests_of
from lambdanet_tf.serving.inference import scores_of
from lambdanet_tf.serving.options import FORMATS
from lambdanet_tf.serving.standalone import run_standalone
from lambdanet_tf.serving.versions import read_metadata


@dataclasses.dataclass(frozen=True)
class SignatureResult:
    """Comparison of a signature or a format with Keras.

    Attributes:
        signature: its name, or that of the format.
        difference: the largest one, relative to the largest value of an output;
            of classes and their names the share that differs.
        agrees: whether it is within the tolerance.
    """

    signature: str
    difference: float
    agrees: bool


@dataclasses.dataclass(frozen=True)
class Verification:
    """Results of a verification; `str` of it is a report.

    Attributes:
        images: how many were compared.
        signatures: a result for each signature and format.

    Examples:
        >>> serving.verify_export("exported/LambdaResNetSmall/1").agrees
        True
    """

    images: int
    signatures: Sequence[SignatureResult]

    @property
    def agrees(self) -> bool:
        """Whether every signature and format agrees with Keras."""
        return all(result.agrees for result in self.signatures)

    def __str__(self):
        lines = [
            f"{self.images} images through Keras, and through the export in a "
            "process with\nTensorFlow alone:\n"
        ]
        lines += [
            f"{result.signature:16}{result.difference:9.1e}  "
            f"{'same' if result.agrees else 'DIFFERENT'}"
            for result in self.signatures
        ]
        return "\n".join(lines)


def verify_export(folder: str | os.PathLike) -> Verification:
    """Compares an export with what its Keras model computed for its examples.

    Signatures run in a process with TensorFlow alone.

    Args:
        folder: the version folder, which holds all that this needs.

    Raises:
        ValueError: if the folder is not an export of this package.
        RuntimeError: if the export does not load or a request fails.

    Examples:
        >>> verify_export("exported/LambdaResNetSmall/1").agrees
        True
    """
    fields, arrays = read_metadata(folder), _read_examples(folder)
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


def prediction_table(folder: str | os.PathLike) -> str:
    """Returns label, prediction and probability of an export's test images.

    Args:
        folder: the version folder.

    Raises:
        ValueError: if the export has no test images.
        RuntimeError: if it does not load or rejects them.

    Examples:
        >>> print(prediction_table("exported/LambdaResNetSmall/1"))
        label ...
    """
    names, arrays = read_metadata(folder)["labels"], _read_examples(folder)
    if not len(arrays["labels"]):
        raise UserError(
            "`folder` must hold test images, as exports of runs do. "
            f"Received {folder}, which has none."
        )
    call = "serving_default", requests_of(arrays["images"])["serving_default"]
    [outputs] = run_standalone(folder, [call])
    lines = [f"{'label':>12}  {'prediction':>12}  probability"]
    for label, predicted, scores in zip(
        arrays["labels"],
        outputs["classes"],
        scores_of(outputs["probabilities"]),
        strict=True,
    ):
        lines.append(
            f"{names[label]:>12}  {names[predicted]:>12}  "
            f"{scores[predicted]:11.3f}"
            + ("" if label == predicted else "   wrong")
        )
    return "\n".join(lines)


def _read_examples(folder):
    return read_arrays(os.path.join(folder, EXAMPLES_FILE))


def _compared(name, signature, outputs, arrays, tolerance):
    """Compares the outputs of a signature or a format, by name."""
    # `max` would pass over NaN.
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
