"""Proof of an export: a process with TensorFlow alone agrees with Keras."""

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.serving import exporting
from lambdanet_tf.serving import fresh_process
from lambdanet_tf.serving import portable
from lambdanet_tf.serving import warmup
from lambdanet_tf.serving.inference import classifier_of

# Largest difference, relative to the largest value of an output. bfloat16
# keeps 8 bits of a weight.
TOLERANCES = {"float32": 1e-4, "bfloat16": 5e-2}


@dataclasses.dataclass(frozen=True)
class SignatureCheck:
    """One signature, or file of another format, beside the Keras model.

    Attributes:
        signature: its name, or the format's.
        shapes: of its outputs, by name.
        difference: the largest absolute difference to Keras.
        agrees: whether that is rounding.
        milliseconds: per image, by batch size.
    """

    signature: str
    shapes: dict
    difference: float
    agrees: bool
    milliseconds: dict


@dataclasses.dataclass(frozen=True)
class ExportCheck:
    """What the check of an export found.

    Attributes:
        folder: the version folder.
        signatures: a `SignatureCheck` each.
        warmup_requests: how many warm-up requests were answered; None if the
            export has none that could be read here.
        bytes_on_disk: of the version folder.
    """

    folder: pathlib.Path
    signatures: list
    warmup_requests: int | None
    bytes_on_disk: int

    @property
    def agrees(self):
        """Whether every signature does."""
        return all(check.agrees for check in self.signatures)

    def __str__(self):
        lines = [_table(self.signatures), ""]
        if self.warmup_requests is not None:
            lines.append(f"warm-up requests answered: {self.warmup_requests}")
        lines.append(f"size on disk: {self.bytes_on_disk / 2**20:.2f} MiB")
        return "\n".join(lines)


def check_export(folder, model, options, images, batch_sizes=(), repeats=5):
    """Compares an export with the Keras model, in a fresh process.

    Args:
        folder: the version folder.
        model: the `tf.keras.Model` that it was made from.
        options: the `ServingOptions` that it was made with.
        images: array of images in [0, 255]; they are rounded to pixels.
        batch_sizes: batch sizes to time each signature at.
        repeats: int. Repetitions of each timing.

    Returns:
        An `ExportCheck`.

    Raises:
        RuntimeError: if the export does not load or a call fails.
    """
    folder = pathlib.Path(folder)
    images = np.rint(images).astype(np.float32)
    shape = options.image_shape(model.input_shape[1:])
    expected = _Expected(model, options, images)
    calls = expected.calls()
    replayed = warmup.read_warmup_requests(folder)
    answers = _answers(folder, calls + (replayed or []))
    times = _times(folder, shape, batch_sizes, repeats)
    checks = [
        expected.check(signature, answer, times.get(signature, {}))
        for signature, answer in answers[: len(calls)]
    ]
    for name in portable.formats_in(folder):
        answer, milliseconds = portable.answer(
            folder, name, images, batch_sizes, repeats
        )
        checks.append(expected.check(name, answer, milliseconds))
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    number = None if replayed is None else len(replayed)
    return ExportCheck(folder, checks, number, size)


def images_for(folder, image_shape, number=3):
    """Returns images to check an export with: its own, or noise."""
    examples = exporting.read_examples(folder)
    if examples is not None:
        return examples[0][:number].astype(np.float32)
    generator = np.random.default_rng(0)
    noise = generator.uniform(0, 255, (number, *image_shape))
    return noise.astype(np.float32)


def answer_in_fresh_process(folder, calls, repeats=0):
    """Runs calls against an export in a process without Keras and us.

    Args:
        folder: the version folder.
        calls: list of (signature, {input name: value}).
        repeats: int. Timed repetitions of each call.

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
        arguments = [folder, requests, answers, repeats]
        finished = subprocess.run(
            [sys.executable, fresh_process.__file__, *map(str, arguments)],
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


def _times(folder, shape, batch_sizes, repeats):
    """Milliseconds per image, by signature and batch size."""
    times = {}
    calls = warmup.warmup_calls(shape, batch_sizes)
    if not calls:
        return times
    answers = _answers(folder, calls, repeats)
    for (signature, inputs), (_, answer) in zip(calls, answers, strict=True):
        batch = len(next(iter(inputs.values())))
        milliseconds = float(answer["milliseconds"]) / batch
        times.setdefault(signature, {})[batch] = milliseconds
    return times


def _answers(folder, calls, repeats=0):
    """Answers without a failed one among them."""
    answers = answer_in_fresh_process(folder, calls, repeats)
    for signature, answer in answers:
        if "error" in answer:
            raise RuntimeError(
                f"`{signature}` of {folder} failed: {answer['error']}"
            )
    return answers


class _Expected:
    """What Keras says to the images, and how far an answer is from it."""

    def __init__(self, model, options, images):
        self._options = options
        self._images = images
        self._tolerance = TOLERANCES[options.weights_dtype]
        self._head = classifier_of(model)
        network = tf.keras.Model(model.inputs, self._head.input)
        self._labels = options.checked_labels(model.output_shape[-1])
        crop = options.crop(model.input_shape[1:])
        pixels = tf.cast(images, tf.uint8)
        cropped = [crop(data.ArrayImage(image)) for image in pixels]
        cropped = tf.cast(tf.stack(cropped), tf.float32)
        self._from_tensors = self._outputs(network, images)
        self._from_bytes = self._outputs(network, cropped)
        self._encoded = [tf.io.encode_png(image).numpy() for image in pixels]

    def _outputs(self, network, images):
        features = network.predict(images, verbose=0)
        kernel, bias = self._head.get_weights()
        logits = features @ kernel + bias
        return {
            "features": features,
            "logits": logits,
            "probabilities": tf.nn.softmax(logits).numpy(),
        }

    def calls(self):
        """One call of each signature."""
        images = {"images": self._images}
        encoded = np.array(self._encoded, "O")
        examples = np.array([*map(warmup.example_of, encoded)], "O")
        return [
            ("serving_default", images),
            ("serving_bytes", {"image_bytes": encoded}),
            ("classify", {"inputs": examples}),
            ("features", images),
        ]

    def check(self, signature, answer, milliseconds):
        """Compares an answer with what Keras says."""
        wanted = self._from_tensors
        if signature in ("serving_bytes", "classify"):
            wanted = self._from_bytes
        difference = max(self._differences(answer, wanted))
        return SignatureCheck(
            signature,
            {name: answer[name].shape for name in sorted(answer)},
            difference,
            difference <= self._tolerance,
            milliseconds,
        )

    def _differences(self, answer, wanted):
        """The difference of each output, relative to its largest value."""
        by_label = dict(
            zip(self._labels, wanted["probabilities"].T, strict=True)
        )
        names = {"top_labels": "top_probabilities", "classes": "scores"}
        for name, received in answer.items():
            if name in wanted:
                scale = max(1.0, np.abs(wanted[name]).max(initial=0))
                yield _largest(received, wanted[name]) / scale
            elif received.dtype == object:  # labels, best first
                scores = answer[names[name]]
                said = [
                    [by_label[label.decode()][row] for label in labels]
                    for row, labels in enumerate(received)
                ]
                yield _largest(scores, np.array(said))
                yield _largest(scores, -np.sort(-scores, axis=-1))
            elif name == "classes":
                best = wanted["probabilities"].max(axis=-1)
                rows = np.arange(len(received))
                yield _largest(wanted["probabilities"][rows, received], best)


def _largest(received, wanted):
    if received.shape != wanted.shape:
        return np.inf
    return float(np.abs(received - wanted).max(initial=0))


def _table(checks):
    """The checks as lines for a terminal, one per output."""
    batches = sorted({size for c in checks for size in c.milliseconds})
    rows = [["signature", "output shapes", "max difference", ""]]
    rows[0] += [f"ms/image at {size}" for size in batches]
    for check in checks:
        first, *others = [f"{k}{list(v)}" for k, v in check.shapes.items()]
        agreement = "same" if check.agrees else "DIFFERENT"
        row = [check.signature, first, f"{check.difference:.2g}", agreement]
        rows.append(row + [f"{check.milliseconds[b]:.2f}" for b in batches])
        rows += [["", other, *[""] * (len(rows[0]) - 2)] for other in others]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows
    )
