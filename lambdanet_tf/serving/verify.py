"""Verifies an export: TensorFlow alone computes what Keras computed."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from lambdanet_tf.arguments import UserError
from lambdanet_tf.serving import examples
from lambdanet_tf.serving import formats
from lambdanet_tf.serving import warmup
from lambdanet_tf.serving.classifier import scores_of
from lambdanet_tf.serving.standalone import XLA_SIGNATURE
from lambdanet_tf.serving.standalone import median_milliseconds
from lambdanet_tf.serving.standalone import run_standalone
from lambdanet_tf.serving.versions import checksums
from lambdanet_tf.serving.versions import local_copy
from lambdanet_tf.serving.versions import read_metadata

# Largest difference to Keras, relative to the largest value of an output;
# bfloat16 keeps 8 bits of a weight. For int8, with 256 values for a whole
# tensor, the root mean square of all differences: single ones can be large.
TOLERANCES = {"float32": 1e-4, "bfloat16": 5e-2, "int8": 0.2}
INT8 = "tflite_int8"

# What is not compared by its value, and the scores that belong to it.
_SCORES_OF_NAMES = {"top_labels": "top_probabilities", "classes": "scores"}


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
        changed: files that are not those that were written. Where there are
            any, nothing is run.
        images: how many were compared.
        signatures: a result for each signature and format.
        accuracies: of "Keras" and of each format, as measured at the export.
        test_images: how many they were measured on.
        warmup_requests: how many succeeded; None if there are none that can
            be read here.
        bytes_on_disk: of the version folder, and of each format.
    """

    changed: Sequence[str] = ()
    images: int = 0
    signatures: Sequence[SignatureResult] = ()
    accuracies: Mapping[str, float] = dataclasses.field(default_factory=dict)
    test_images: int = 0
    warmup_requests: int | None = None
    bytes_on_disk: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether the files, and every signature and format, are the same."""
        results = all(result.agrees for result in self.signatures)
        return results and not self.changed

    def __str__(self):
        if self.changed:
            return f"DIFFERENT from what was written: {', '.join(self.changed)}"
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
    folder: str | os.PathLike, batch_sizes: Sequence[int] = ()
) -> Verification:
    """Compares an export with what its Keras model computed for its examples.

    The export holds all that this needs. Signatures run in a process with
    TensorFlow alone, files for other runtimes in these.

    Args:
        folder: the version folder.
        batch_sizes: to measure the time of each signature at.

    Raises:
        ValueError: if the folder is not an export of this package.
        RuntimeError: if the export does not load or a request fails.
    """
    with local_copy(folder) as local:
        fields = read_metadata(local)
        found = checksums(local)
        changed = [
            name
            for name, checksum in fields["checksums"].items()
            if found.get(name) != checksum
        ]
        if changed:
            return Verification(changed)
        arrays, options = examples.read(local), fields["options"]
        images, warmed = arrays["images"], warmup.read(local)
        answers = [
            *_of_signatures(
                local, images, options["xla"], warmed or [], batch_sizes
            ),
            *_of_formats(local, images, batch_sizes),
        ]
        compare = _Comparison(
            arrays, fields["labels"], options["weights_dtype"]
        )
        return Verification(
            images=len(images),
            signatures=[compare(*answer) for answer in answers],
            accuracies=fields["metadata"].get("accuracies", {}),
            test_images=fields["metadata"].get("test_images", 0),
            warmup_requests=None if warmed is None else len(warmed),
            bytes_on_disk=_bytes_on_disk(local),
        )


def prediction_table(folder: str | os.PathLike) -> str:
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
    with local_copy(folder) as local:
        arrays = examples.read(local)
        if not len(arrays["labels"]):
            raise UserError(
                "`folder` must hold test images, as exports of runs do. "
                f"Received {folder}, which has none."
            )
        images = {"images": arrays["images"].astype(np.float32)}
        [outputs] = run_standalone(local, [("serving_default", images, False)])
    lines = [f"{'label':>12}  {'prediction':>12}  probability"]
    scores = scores_of(outputs["probabilities"])
    for label, predicted, probabilities in zip(
        arrays["labels"], outputs["classes"], np.asarray(scores), strict=True
    ):
        lines.append(
            f"{names[label]:>12}  {names[predicted]:>12}  "
            f"{probabilities[predicted]:11.3f}"
            + ("" if label == predicted else "   wrong")
        )
    return "\n".join(lines)


def _of_signatures(folder, images, with_xla, warmed, batch_sizes):
    """Yields each signature, its outputs, and its times by batch size."""

    def requests(batch):
        repeated = _batch(images, batch)
        tensors = repeated.astype(np.float32)
        yield from warmup.requests_of(tensors, examples.encoded(repeated))
        if with_xla:
            yield XLA_SIGNATURE, {"images": tensors}

    compared = [*requests(len(images))]
    timed = [
        (batch, *each) for batch in batch_sizes for each in requests(batch)
    ]
    outputs = run_standalone(
        folder,
        [(*request, False) for request in (*warmed, *compared)]
        + [(*request, True) for _, *request in timed],
    )[len(warmed) :]
    times = {}
    for (batch, signature, _), found in zip(
        timed, outputs[len(compared) :], strict=True
    ):
        times.setdefault(signature, {})[batch] = found["milliseconds"] / batch
    for (signature, _), found in zip(compared, outputs, strict=False):
        yield signature, found, times.get(signature, {})


def _of_formats(folder, images, batch_sizes):
    """Yields each format, its outputs, and its times by batch size."""
    images = images.astype(np.float32)
    for name in formats.written(folder):
        run = formats.load(folder, name)
        times = {}
        for batch in batch_sizes:
            call = functools.partial(run, _batch(images, batch))
            times[batch] = median_milliseconds(call) / batch
        yield name, run(images), times


def _batch(images, batch):
    """As many images, over and over."""
    return images[np.arange(batch) % len(images)]


def _bytes_on_disk(folder: pathlib.Path) -> dict[str, int]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    sizes = {"version folder": sum(file.stat().st_size for file in files)}
    for name in formats.written(folder):
        sizes[name] = (folder / formats.FORMATS[name]).stat().st_size
    return sizes


class _Comparison:
    """Compares outputs with those of the Keras model for the examples."""

    def __init__(self, arrays, labels, weights_dtype):
        self._arrays = arrays
        self._labels = np.array([label.encode() for label in labels], "O")
        self._weights_dtype = weights_dtype

    def __call__(
        self,
        signature: str,
        outputs: Mapping[str, Any],
        milliseconds: Mapping[int, float],
    ) -> SignatureResult:
        """Compares the outputs of a signature or format for all examples."""
        of_files = signature in ("serving_bytes", "classify")
        kind = examples.FILES if of_files else examples.TENSORS
        dtype = self._weights_dtype
        if signature in formats.FORMATS:
            dtype = "float32"
        difference = max(self._differences(outputs, kind))
        if signature == INT8:
            dtype = "int8"
            logits = self._arrays[f"{kind}/logits"]
            difference = _rms(outputs["logits"] - logits) / _rms(logits)
        return SignatureResult(
            signature,
            {name: outputs[name].shape for name in sorted(outputs)},
            difference,
            difference <= TOLERANCES[dtype],
            milliseconds,
        )

    def _differences(self, outputs, kind):
        """Yields the relative difference of each output."""
        probabilities = self._arrays[f"{kind}/probabilities"]
        wanted = np.asarray(scores_of(probabilities))
        for name, received in outputs.items():
            if name in ("features", "logits", "probabilities"):
                expected = self._arrays[f"{kind}/{name}"]
                scale = max(1.0, np.abs(expected).max(initial=0))
                yield _largest(received, expected) / scale
            elif received.dtype == object:  # names of classes, best first
                scores = outputs[_SCORES_OF_NAMES[name]]
                best = -np.sort(-wanted, axis=-1)[:, : scores.shape[-1]]
                yield _largest(scores, best)
                # Rounding may swap classes, and classes may share a name.
                distances = np.abs(scores[..., None] - wanted[:, None])
                distances[received[..., None] != self._labels] = np.inf
                yield float(distances.min(axis=-1).max(initial=0))
            elif name == "classes":
                chosen = wanted[np.arange(len(received)), received]
                yield _largest(chosen, wanted.max(axis=-1))


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
