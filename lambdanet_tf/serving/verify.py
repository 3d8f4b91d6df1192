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
from lambdanet_tf.serving import formats
from lambdanet_tf.serving import requests
from lambdanet_tf.serving.classifier import scores_of
from lambdanet_tf.serving.standalone import median_milliseconds
from lambdanet_tf.serving.standalone import run_standalone
from lambdanet_tf.serving.versions import METADATA_FILE
from lambdanet_tf.serving.versions import changed_files
from lambdanet_tf.serving.versions import local_copy
from lambdanet_tf.serving.versions import read_metadata

# Largest difference to Keras, relative to the largest value of an output;
# float16 keeps 11 bits of a number, bfloat16 8. For int8, with 256 values for a
# whole tensor, the root mean square of all differences: single ones can be
# large.
TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2, "int8": 0.2}
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
            the output, of whole numbers the share that differs; of 8-bit
            integers, the root mean square of the logits' differences, relative
            to that of the logits.
        agrees: whether it is within the tolerance.
        milliseconds: per example, by batch size.
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
        examples: how many were compared.
        unit: what they are: "image" or "example".
        signatures: a result for each signature and format.
        accuracies: of "Keras" and of each format, as measured at the export.
        test_images: how many they were measured on.
        warmup_requests: how many succeeded; None if there are none that can
            be read here.
        bytes_on_disk: of the version folder, and of each format.

    Examples:
        >>> serving.verify_export("exported/LambdaResNetSmall/1").changed
        ()
    """

    changed: Sequence[str] = ()
    examples: int = 0
    unit: str = "image"
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
            f"{self.examples} {self.unit}s through Keras, and through the "
            "export in a process with\nTensorFlow alone:\n",
            self._table(),
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

    def _table(self):
        """Lines for a terminal, one for each output."""
        batches = sorted({n for r in self.signatures for n in r.milliseconds})
        rows = [["signature", "output shapes", "max difference", ""]]
        rows[0] += [f"ms/{self.unit} at {size}" for size in batches]
        for result in self.signatures:
            first, *others = [f"{k}{list(v)}" for k, v in result.shapes.items()]
            difference, verdict = f"{result.difference:.2g}", "same"
            if result.signature == INT8:
                difference, verdict = f"{difference} rms", "close"
            if not result.agrees:
                verdict = "DIFFERENT"
            times = [f"{result.milliseconds[size]:.2f}" for size in batches]
            rows.append([result.signature, first, difference, verdict, *times])
            rows += [
                ["", other, "", "", *[""] * len(times)] for other in others
            ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows
        )


def verify_export(
    folder: str | os.PathLike, batch_sizes: Sequence[int] = ()
) -> Verification:
    """Compares an export with what its Keras model computed for its examples.

    The export holds all that this needs. Signatures run in a process with
    TensorFlow alone, files for other runtimes in these.

    Args:
        folder: the version folder.
        batch_sizes: to measure the time of each signature at.

    Returns:
        A `Verification`: the outputs compared, and the times of the signatures.

    Raises:
        ValueError: if the folder is not an export of this package.
        RuntimeError: if the export does not load or a request fails.

    Examples:
        >>> verify_export("exported/LambdaResNetSmall/1").agrees
        True
    """
    with local_copy(folder) as local:
        fields = read_metadata(local)
        changed = changed_files(local, fields["checksums"])
        if changed:
            return Verification(changed)
        arrays, options = requests.read_examples(local), fields["options"]
        examples, warmed = (
            requests.inputs_of(arrays),
            requests.read_warmup(local),
        )
        answers = [
            *_of_signatures(
                local, examples, options["xla"], warmed or [], batch_sizes
            ),
            *_of_formats(local, options["formats"], examples, batch_sizes),
        ]
        compared = _Keras(
            arrays,
            fields["labels"],
            options["weights_dtype"],
            fields.get("compute_dtype", "float32"),
        )
        return Verification(
            examples=len(next(iter(examples.values()))),
            unit="image" if fields["labels"] else "example",
            signatures=[compared.result(*answer) for answer in answers],
            accuracies=fields["metadata"].get("accuracies", {}),
            test_images=fields["metadata"].get("test_images", 0),
            warmup_requests=None if warmed is None else len(warmed),
            bytes_on_disk=_bytes_on_disk(local, options["formats"]),
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

    Examples:
        >>> print(prediction_table("exported/LambdaResNetSmall/1"))
        label ...
    """
    names = read_metadata(folder)["labels"] or ()
    with local_copy(folder) as local:
        arrays = requests.read_examples(local)
        if not len(arrays.get("labels", ())):
            raise UserError(
                "`folder` must hold test images, as exports of runs do. "
                f"Received {folder}, which has none."
            )
        [default, *_] = requests.requests_of(requests.inputs_of(arrays))
        [outputs] = run_standalone(local, [(*default, False)])
    lines = [f"{'label':>12}  {'prediction':>12}  probability"]
    scores = np.asarray(scores_of(outputs["probabilities"]))
    if len(names) < scores.shape[-1]:
        raise UserError(
            f"{METADATA_FILE} in {folder} is damaged: of {scores.shape[-1]} "
            f"`labels` it has {len(names)}."
        )
    for label, predicted, probabilities in zip(
        arrays["labels"], outputs["classes"], scores, strict=True
    ):
        lines.append(
            f"{names[label]:>12}  {names[predicted]:>12}  "
            f"{probabilities[predicted]:11.3f}"
            + ("" if label == predicted else "   wrong")
        )
    return "\n".join(lines)


def _of_signatures(folder, examples, xla, warmed, batch_sizes):
    """Yields each signature, its outputs, and its times by batch size."""
    compared = requests.requests_of(examples, xla)
    timed = [
        (size, request)
        for size in batch_sizes
        for request in requests.requests_of(
            requests.batch_of(examples, size), xla
        )
    ]
    outputs = run_standalone(
        folder,
        [(*request, False) for request in [*warmed, *compared]]
        + [(*request, True) for _, request in timed],
    )[len(warmed) :]
    times = {}
    for (size, (signature, _)), found in zip(
        timed, outputs[len(compared) :], strict=True
    ):
        times.setdefault(signature, {})[size] = found["milliseconds"] / size
    for (signature, _), found in zip(compared, outputs, strict=False):
        yield signature, found, times.get(signature, {})


def _of_formats(folder, names, examples, batch_sizes):
    """Yields each format, its outputs, and its times by batch size."""
    for name in names:
        run = formats.load(folder, name)
        times = {}
        for size in batch_sizes:
            batch = requests.batch_of(examples, size)
            call = functools.partial(run, batch["images"].astype(np.float32))
            times[size] = median_milliseconds(call) / size
        yield name, run(examples["images"].astype(np.float32)), times


def _bytes_on_disk(folder: pathlib.Path, names: Sequence[str]):
    files = [file for file in folder.rglob("*") if file.is_file()]
    sizes = {"version folder": sum(file.stat().st_size for file in files)}
    for name in names:
        sizes[name] = (folder / formats.FORMATS[name]).stat().st_size
    return sizes


class _Keras:
    """What the Keras model computed for the examples, to compare with."""

    def __init__(self, arrays, labels, weights_dtype, compute_dtype):
        self._arrays = arrays
        self._labels = np.array([x.encode() for x in labels or ()], "O")
        self._dtypes = weights_dtype, compute_dtype

    def result(
        self,
        signature: str,
        outputs: Mapping[str, Any],
        milliseconds: Mapping[int, float],
    ) -> SignatureResult:
        """Compares the outputs of a signature or format for all examples."""
        of_files = signature in ("serving_bytes", "classify")
        kind = requests.FILES if of_files else requests.TENSORS
        # Files for other runtimes keep float32 weights.
        dtypes = self._dtypes[signature in formats.FORMATS :]
        tolerance = max(TOLERANCES[dtype] for dtype in dtypes)
        # `max` may pass over NaN.
        difference = float(np.max([*self._differences(outputs, kind)]))
        if signature == INT8:
            tolerance = TOLERANCES["int8"]
            logits = self._arrays[f"{kind}/logits"]
            apart = np.linalg.norm(outputs["logits"] - logits)
            difference = float(apart / np.linalg.norm(logits))
        return SignatureResult(
            signature,
            {name: outputs[name].shape for name in sorted(outputs)},
            difference,
            difference <= tolerance,
            milliseconds,
        )

    def _differences(self, outputs, kind):
        """Yields the difference of each output."""
        for name, received in outputs.items():
            expected = self._arrays.get(f"{kind}/{name}")
            if expected is None:
                yield from self._of_classes(name, outputs, kind)
            elif expected.dtype.kind in "bui":
                yield float(np.mean(received != expected))
            else:
                finite = np.abs(expected[np.isfinite(expected)])
                scale = max(1.0, finite.max(initial=0))
                yield _largest(received, expected) / scale

    def _of_classes(self, name, outputs, kind):
        """Yields how far the classes are from those of the best scores."""
        received = outputs[name]
        wanted = np.asarray(scores_of(self._arrays[f"{kind}/probabilities"]))
        if received.dtype == object:  # names of classes, best first
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
    """The largest difference; values that are equal may be no numbers."""
    if received.shape != expected.shape:
        return np.inf
    apart = received != expected
    apart &= ~(np.isnan(received) & np.isnan(expected))
    differences = np.abs(received[apart] - expected[apart])
    return float(differences.max(initial=0))


def _listed(values, template):
    return ", ".join(f"{k} {template.format(v)}" for k, v in values.items())
