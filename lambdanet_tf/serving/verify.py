"""Verifies an export: TensorFlow alone computes what Keras computes."""

import dataclasses
import os
import pathlib
import statistics
import time
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.serving import formats
from lambdanet_tf.serving import warmup
from lambdanet_tf.serving.export import read_examples
from lambdanet_tf.serving.export import read_metadata
from lambdanet_tf.serving.export import read_options
from lambdanet_tf.serving.inference import activation_of
from lambdanet_tf.serving.inference import classifier_of
from lambdanet_tf.serving.inference import probabilities_of
from lambdanet_tf.serving.inference import scores_of
from lambdanet_tf.serving.standalone import run_standalone

# Largest difference to Keras, relative to the largest value of an output;
# bfloat16 keeps 8 bits of a weight. For int8, with 256 values for a whole
# tensor, the root mean square of all differences: single ones can be large.
TOLERANCES = {"float32": 1e-4, "bfloat16": 5e-2, "int8": 0.2}
INT8 = "tflite_int8"
_IMAGES = 3


@dataclasses.dataclass(frozen=True)
class SignatureResult:
    """Comparison of a signature, or of a file for another runtime, with Keras.

    Attributes:
        signature: its name, or that of the format.
        shapes: of its outputs, by name.
        difference: the largest one to Keras, relative to the largest value of
            the output; of 8-bit integers, the root mean square of the
            logits' differences, relative to that of the logits.
        agrees: whether it is within the tolerance.
        milliseconds: per image, by batch size.
    """

    signature: str
    shapes: Mapping[str, tuple[int, ...]]
    difference: float
    agrees: bool
    milliseconds: Mapping[int, float]


@dataclasses.dataclass(frozen=True)
class Verification:
    """Results of a verification; `str` of it is a report.

    Attributes:
        images: how many were compared.
        signatures: a result for each signature and format.
        accuracies: on a test set, of "Keras" and of each format.
        test_images: of that set; 0 if there was none.
        warmup_requests: how many succeeded; None if there are none that can
            be read here.
        bytes_on_disk: of the version folder, and of each format.
    """

    images: int
    signatures: Sequence[SignatureResult]
    accuracies: Mapping[str, float]
    test_images: int
    warmup_requests: int | None
    bytes_on_disk: Mapping[str, int]

    @property
    def agrees(self) -> bool:
        """Whether every signature and format agrees with Keras."""
        return all(result.agrees for result in self.signatures)

    def __str__(self):
        lines = [
            f"{self.images} images through Keras, and through the export in a "
            "process with\nTensorFlow alone:\n",
            _table(self.signatures),
            "",
        ]
        if self.accuracies:
            listed = _listed(self.accuracies, "{:.2%}")
            lines.append(
                f"accuracy on {self.test_images} test images: {listed}"
            )
        if self.warmup_requests is not None:
            lines.append(f"warm-up requests answered: {self.warmup_requests}")
        sizes = {k: size / 2**20 for k, size in self.bytes_on_disk.items()}
        lines.append(f"size on disk: {_listed(sizes, '{:.2f} MiB')}")
        return "\n".join(lines)


def verify_export(
    folder: str | os.PathLike,
    model: tf.keras.Model,
    images: np.ndarray | None = None,
    test_set: tuple[np.ndarray, np.ndarray] | None = None,
    batch_sizes: Sequence[int] = (),
    repeats: int = 5,
) -> Verification:
    """Compares an export with its Keras model.

    Signatures run in a process with TensorFlow alone, files for other runtimes
    in these.

    Args:
        folder: the version folder.
        model: the Keras model that was exported.
        images: `(images, height, width, channels)` in [0, 255] to compare
            with, rounded to whole pixels; None for test images of the export,
            or noise if it has none.
        test_set: images and labels to measure the accuracy of the Keras model
            and of the files for other runtimes with.
        batch_sizes: to measure the time of each signature at.
        repeats: of each measurement.

    Raises:
        ValueError: if the folder is not an export of this package.
        RuntimeError: if the export does not load or a request fails.
    """
    folder = pathlib.Path(folder)
    options = read_options(folder)
    image_shape = options.image_shape(model.input_shape[1:])
    if images is None:
        images = _images_for(folder, image_shape)
    images = np.rint(images).astype(np.float32)
    reference = _Reference(model, options, images)
    requests = reference.requests()
    replayed = warmup.read(folder)
    timed = warmup.requests_for(image_shape, batch_sizes)
    untimed = requests + (replayed or [])
    responses = _run(
        folder, untimed + timed, [0] * len(untimed) + [repeats] * len(timed)
    )
    times = _milliseconds(timed, responses[len(untimed) :])
    results = [
        reference.compare(signature, outputs, times.get(signature, {}))
        for signature, outputs in responses[: len(requests)]
    ]
    runners = {n: formats.load(folder, n) for n in formats.written(folder)}
    for name, run in runners.items():
        times = _format_times(run, images, batch_sizes, repeats)
        results.append(reference.compare(name, run(images), times))
    accuracies = {}
    if test_set is not None and runners:
        accuracies = _accuracies(model, runners, *test_set)
    return Verification(
        len(images),
        results,
        accuracies,
        len(test_set[0]) if accuracies else 0,
        None if replayed is None else len(replayed),
        _bytes_on_disk(folder),
    )


def prediction_table(folder: pathlib.Path) -> str:
    """Predicts the test images of an export, with TensorFlow alone.

    Args:
        folder: the version folder.

    Returns:
        Lines of text: label, prediction and probability of each image.

    Raises:
        ValueError: if the export has no test images.
        RuntimeError: if it does not load or rejects them.
    """
    names = read_metadata(folder)["labels"]
    examples = read_examples(folder)
    if examples is None:
        raise ValueError(
            "`folder` must hold test images, as exports of runs do. Received "
            f"{folder}, which has none."
        )
    images, labels = examples
    [(_, outputs)] = _run(folder, [("serving_default", {"images": images})])
    lines = [f"{'label':>12}  {'prediction':>12}  probability"]
    scores = scores_of(outputs["probabilities"])
    for label, predicted, probabilities in zip(
        labels, outputs["classes"], np.asarray(scores), strict=True
    ):
        lines.append(
            f"{names[label]:>12}  {names[predicted]:>12}  "
            f"{probabilities[predicted]:11.3f}"
            + ("" if label == predicted else "   wrong")
        )
    return "\n".join(lines)


def _images_for(folder, image_shape):
    """A few test images of an export, or noise."""
    examples = read_examples(folder)
    if examples is not None:
        return examples[0][:_IMAGES]
    generator = np.random.default_rng(0)
    return generator.uniform(0, 255, (_IMAGES, *image_shape))


def _run(folder, requests, repeats=None):
    """Responses to requests of which none may fail."""
    responses = run_standalone(folder, requests, repeats)
    for signature, outputs in responses:
        if "error" in outputs:
            raise RuntimeError(
                f"`{signature}` of {folder} failed: {outputs['error']}"
            )
    return responses


def _milliseconds(requests, responses):
    """Milliseconds per image, by signature and batch size."""
    times = {}
    for (signature, inputs), (_, outputs) in zip(
        requests, responses, strict=True
    ):
        batch = len(next(iter(inputs.values())))
        milliseconds = float(outputs["milliseconds"]) / batch
        times.setdefault(signature, {})[batch] = milliseconds
    return times


def _format_times(run, images, batch_sizes, repeats):
    """Milliseconds per image, by batch size."""
    times = {}
    for batch in batch_sizes:
        some = images[np.arange(batch) % len(images)]
        run(some)
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            run(some)
            seconds.append(time.perf_counter() - start)
        times[batch] = 1000 * statistics.median(seconds) / batch
    return times


def _accuracies(model, runners, images, labels):
    """Accuracy of the Keras model and of each format."""

    def accuracy(logits):
        if logits.shape[-1] == 1:
            predicted = logits[:, 0] > 0
        else:
            predicted = logits.argmax(axis=-1)
        return float(np.mean(predicted == labels))

    head = classifier_of(model)
    network = tf.keras.Model(model.inputs, head.input)
    keras = _outputs(network, head, images, "softmax")["logits"]
    accuracies = {"Keras": accuracy(keras)}
    for name, run in runners.items():
        accuracies[name] = accuracy(run(images)["logits"])
    return accuracies


def _bytes_on_disk(folder):
    files = [file for file in folder.rglob("*") if file.is_file()]
    sizes = {"version folder": sum(file.stat().st_size for file in files)}
    for name in formats.written(folder):
        sizes[name] = (folder / formats.FORMATS[name]).stat().st_size
    return sizes


class _Reference:
    """Outputs of the Keras model for images, and differences to them."""

    def __init__(self, model, options, images):
        self._options = options
        self._images = images
        self._labels = options.class_names(model.output_shape[-1])
        crop = options.crop(model.input_shape[1:])
        pixels = tf.cast(images, tf.uint8)
        cropped = [crop(data.ArrayImage(image)) for image in pixels]
        cropped = tf.cast(tf.stack(cropped), tf.float32)
        head = classifier_of(model)
        network = tf.keras.Model(model.inputs, head.input)
        activation = activation_of(model, options.classifier_activation)
        self._of_tensors = _outputs(network, head, images, activation)
        self._of_files = _outputs(network, head, cropped, activation)
        self._encoded = [tf.io.encode_png(image).numpy() for image in pixels]

    def requests(self):
        """One request for each signature."""
        images = {"images": self._images}
        encoded = np.array(self._encoded, "O")
        examples = np.array([*map(warmup.encoded_example, encoded)], "O")
        return [
            ("serving_default", images),
            ("serving_bytes", {"image_bytes": encoded}),
            ("classify", {"inputs": examples}),
            ("features", images),
        ]

    def compare(
        self,
        signature: str,
        outputs: Mapping[str, Any],
        milliseconds: Mapping[int, float],
    ) -> SignatureResult:
        """Compares the outputs of a signature or format with Keras."""
        expected = self._of_tensors
        if signature in ("serving_bytes", "classify"):
            expected = self._of_files
        dtype = self._options.weights_dtype
        if signature in formats.FORMATS:
            dtype = "float32"
        difference = max(self._differences(outputs, expected))
        if signature == INT8:
            dtype = "int8"
            logits = expected["logits"]
            difference = _rms(outputs["logits"] - logits) / _rms(logits)
        return SignatureResult(
            signature,
            {name: outputs[name].shape for name in sorted(outputs)},
            difference,
            difference <= TOLERANCES[dtype],
            milliseconds,
        )

    def _differences(self, outputs, expected):
        """Yields the relative difference of each output."""
        scores_of = {"top_labels": "top_probabilities", "classes": "scores"}
        for name, received in outputs.items():
            if name in expected:
                scale = max(1.0, np.abs(expected[name]).max(initial=0))
                yield _largest(received, expected[name]) / scale
            elif received.dtype == object:  # names of classes, best first
                scores = outputs[scores_of[name]]
                yield _largest(scores, self._by_name(received, expected))
                yield _largest(scores, -np.sort(-scores, axis=-1))
            elif name == "classes":
                scores = _scores(expected)
                rows = np.arange(len(received))
                best = scores.max(axis=-1)
                yield _largest(scores[rows, received], best)

    def _by_name(self, names, expected):
        """Probabilities of classes that are given by name."""
        columns = _scores(expected).T
        by_name = {}
        for label, column in zip(self._labels, columns, strict=True):
            by_name.setdefault(label, []).append(column)
        # Of classes that share a name, the best one is named first.
        shared = {
            name: -np.sort(-np.stack(columns), axis=0)
            for name, columns in by_name.items()
        }
        return np.array(
            [
                [
                    shared[name.decode()][np.sum(best[:place] == name), row]
                    for place, name in enumerate(best)
                ]
                for row, best in enumerate(names)
            ]
        )


def _scores(expected):
    return np.asarray(scores_of(tf.constant(expected["probabilities"])))


def _outputs(network, head, images, activation):
    features = network.predict(images, verbose=0)
    kernel, *bias = head.get_weights()
    logits = features @ kernel + sum(bias)
    return {
        "features": features,
        "logits": logits,
        "probabilities": probabilities_of(logits, activation).numpy(),
    }


def _largest(received, expected):
    if received.shape != expected.shape:
        return np.inf
    return float(np.abs(received - expected).max(initial=0))


def _rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


def _listed(values, template):
    return ", ".join(f"{k} {template.format(v)}" for k, v in values.items())


def _table(results):
    """Results as lines for a terminal, one for each output."""
    batches = sorted({size for r in results for size in r.milliseconds})
    rows = [["signature", "output shapes", "max difference", ""]]
    rows[0] += [f"ms/image at {size}" for size in batches]
    for result in results:
        first, *others = [f"{k}{list(v)}" for k, v in result.shapes.items()]
        difference, verdict = f"{result.difference:.2g}", "same"
        if result.signature == INT8:
            difference, verdict = f"{difference} rms", "close"
        if not result.agrees:
            verdict = "DIFFERENT"
        row = [result.signature, first, difference, verdict]
        rows.append(row + [f"{result.milliseconds[b]:.2f}" for b in batches])
        rows += [["", other, *[""] * (len(rows[0]) - 2)] for other in others]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows
    )
