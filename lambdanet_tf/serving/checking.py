"""Proof of an export: a process with TensorFlow alone agrees with Keras."""

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from lambdanet_tf.serving import exporting
from lambdanet_tf.serving import fresh_process

# Of logits and probabilities, relative to the largest of each output.
TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One output of one signature, beside the Keras model's.

    Attributes:
        signature: the signature's name.
        output: the output's name.
        shape: of the output, for the images of the check.
        difference: the largest absolute difference.
        agrees: whether that is rounding.
    """

    signature: str
    output: str
    shape: tuple
    difference: float
    agrees: bool


def answer_in_fresh_process(folder, calls):
    """Runs calls against an export in a process without Keras and us.

    Args:
        folder: the version folder.
        calls: list of (signature, {input name: value}).

    Returns:
        A list of (signature, {output name: value}), in the order of the
        calls. A call that failed has one output, `error`.

    Raises:
        RuntimeError: if the model cannot be loaded at all.
    """
    with tempfile.TemporaryDirectory() as scratch:
        requests = pathlib.Path(scratch, "requests.npz")
        answers = pathlib.Path(scratch, "answers.npz")
        fresh_process.write_calls(requests, calls)
        command = [sys.executable, fresh_process.__file__]
        finished = subprocess.run(
            [*command, str(folder), str(requests), str(answers)],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            capture_output=True,
            text=True,
            check=False,
        )
        if finished.returncode:
            raise RuntimeError(
                f"{folder} does not load in a process with TensorFlow alone:\n"
                f"{finished.stderr[-2000:]}"
            )
        return fresh_process.read_calls(answers)


def compare(folder, model, images):
    """Compares an export with the model that it was made from.

    Args:
        folder: the version folder.
        model: the `tf.keras.Model`, from images to logits.
        images: array of images in [0, 255].

    Returns:
        A list of `Comparison`.

    Raises:
        RuntimeError: if the export does not load or a call fails.
    """
    calls = [("serving_default", {"images": images})]
    [(signature, answer)] = answer_in_fresh_process(folder, calls)
    if "error" in answer:
        raise RuntimeError(f"{folder}: {answer['error']}")
    return [
        _comparison(signature, name, answer[name], wanted)
        for name, wanted in expected_outputs(model, images).items()
    ]


def images_for(folder, shape, number=3):
    """Returns images to check an export with: its own, or noise.

    Args:
        folder: the version folder.
        shape: (height, width, channels); None takes a size at will.
        number: int. How many images at most.
    """
    examples = exporting.read_examples(folder)
    if examples is not None:
        return examples[0][:number].astype(np.float32)
    shape = [64 if size is None else size for size in shape]
    generator = np.random.default_rng(0)
    return generator.uniform(0, 255, (number, *shape)).astype(np.float32)


def expected_outputs(model, images):
    """What Keras answers, under the names of the signature's outputs."""
    logits = np.asarray(model.predict(images, verbose=0), np.float32)
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return {
        "logits": logits,
        "probabilities": shifted / shifted.sum(axis=-1, keepdims=True),
        "classes": logits.argmax(axis=-1),
    }


def comparison_table(comparisons):
    """Returns the comparisons as lines of text for a terminal."""
    rows = [("signature", "output", "shape", "max difference", "")]
    rows += [
        (
            row.signature,
            row.output,
            str(list(row.shape)),
            f"{row.difference:.2g}",
            "same" if row.agrees else "DIFFERENT",
        )
        for row in comparisons
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows
    )


def _comparison(signature, name, received, wanted):
    if received.shape != wanted.shape:
        return Comparison(signature, name, received.shape, np.inf, False)
    difference = np.abs(received - wanted).max(initial=0)
    scale = max(1.0, np.abs(wanted).max(initial=0))
    exact = np.issubdtype(wanted.dtype, np.integer)
    agrees = difference <= (0 if exact else TOLERANCE * scale)
    return Comparison(
        signature, name, received.shape, float(difference), bool(agrees)
    )
