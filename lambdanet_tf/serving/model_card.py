"""The model card of an export: what it is, for what, and how good.

In the manner of Mitchell et al., "Model Cards for Model Reporting", 2019
(https://arxiv.org/abs/1810.03993).
"""

import json
import pathlib
import platform
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

import lambdanet_tf
from lambdanet_tf import analysis
from lambdanet_tf import markdown
from lambdanet_tf import ops
from lambdanet_tf.serving.formats import FORMATS
from lambdanet_tf.serving.inference import Inference
from lambdanet_tf.serving.versions import CARD_FILE
from lambdanet_tf.serving.versions import sealed

_NAMED_CLASSES = 20
_OUTPUTS = """\
| signature | input | outputs |
|---|---|---|
| `serving_default` | `images`: float32, see above | `logits`, `probabilities` \
(float32, one per output), `classes` (int64, the most likely), `top_labels` \
(string) and `top_probabilities` (float32), best first |
| `serving_bytes` | `image_bytes`: string, JPEG or PNG | the same |
| `classify` | `inputs`: string, `tf.train.Example` with `image/encoded` | \
`classes` (string) and `scores` (float32), best first |
| `features` | `images`: float32, see above | `features`: float32, the inputs \
of the classifier |"""
_PROBABILITIES = {
    ("softmax", False): "softmax: one class for each image",
    ("sigmoid", False): "sigmoid: of each class by itself, several at once",
    ("sigmoid", True): "sigmoid of one output: that of the second class",
}
_LIMITS = """\
- Every image gets one of the classes, also an image that shows none of them.
- The probabilities are not calibrated: do not read them as frequencies.
- Nothing is known about images of another origin than the training images
  (another camera, place, time or population), nor about groups among them.
- Before it decides anything about people, measure it on images of its use."""

_TENSOR_LIMITS = """\
Computes its outputs from its inputs, as it was trained to; what they mean is
not recorded.

- Nothing is known about inputs of another origin than those of the training,
  nor about groups among them.
- Before it decides anything about people, measure it on data of its use."""


def write(
    folder: pathlib.Path,
    name: str,
    network: Inference,
    metadata: Mapping[str, Any],
    checksums: Mapping[str, str],
) -> None:
    """Writes the card of an export whose other files are complete.

    Args:
        folder: the version folder.
        name: of the model on the server.
        network: what is exported.
        metadata: origin of the model. The keys used are "model", "arguments",
            "recipe", "metrics", "run", "command", "calibration" and
            "versions"; what is missing is "not recorded".
        checksums: SHA-256 of each file, by path.
    """
    with ops.planning_for(network.options.device):  # operations depend on it
        sections = _sections(network, metadata)
    sections["Made with"] = _table(
        {
            **metadata.get("versions", {}),
            "exported by lambdanet_tf": lambdanet_tf.__version__,
            "exported on TensorFlow": tf.__version__,
            "exported on Python": platform.python_version(),
        }
    )
    sections["Checksums"] = _table(checksums, ("file", "SHA-256"))
    parts = [f"## {title}\n\n{text}" for title, text in sections.items()]
    text = "\n\n".join([f"# {name}", *parts]) + "\n"
    (folder / CARD_FILE).write_text(sealed(text), encoding="utf-8")


def _sections(network, metadata):
    """What differs between classifiers of images and other models."""
    classifier, training = network.classifier, _training_rows(metadata)
    rows = _model_rows(network, metadata)
    if classifier is None:
        return {
            "Model": _table(rows),
            "Intended use and limits": _TENSOR_LIMITS,
            "Training": _table(training),
            "Inputs": _tensors(network.specs),
            "Outputs": _tensors(network.output_specs),
        }
    return {
        "Model": _table(rows | _classifier_rows(network, metadata)),
        "Intended use and limits": _intended_use(classifier.labels, metadata),
        "Training": _table(training),
        "Input": _table(_input_rows(network)),
        "Outputs": _OUTPUTS,
    }


def _model_rows(network, metadata):
    model, options = network.model, network.options
    served = sum(weight.shape.num_elements() for weight in network.weights)
    rows = {
        "architecture": metadata.get("model", model.name),
        "arguments": json.dumps(metadata.get("arguments", {})),
        "trainable parameters": f"{analysis.trainable_parameters(model):,}",
        "parameters served": f"{served:,}",
        "weights stored as": options.weights_dtype,
        "planned for": options.device,
    }
    if options.xla:
        rows["XLA"] = (
            "`serving_default_xla` needs a server with XLA switched on"
        )
    return rows


def _classifier_rows(network, metadata):
    classifier, formats = network.classifier, network.options.formats
    probabilities = _PROBABILITIES[
        classifier.activation, classifier.dense.units == 1
    ]
    rows = {
        "FLOPs per image": _flops(network.model, classifier.image_shape[:2]),
        "classes": str(len(classifier.labels)),
        "probabilities": f"{probabilities} ({classifier.reason})",
    }
    if formats:
        files = [f"`{FORMATS[name]}`" for name in formats]
        rows["other runtimes"] = ", ".join(files)
    if "calibration" in metadata:
        rows["ranges of int8 chosen by"] = metadata["calibration"]
    return rows


def _flops(model, image_size):
    """FLOPs of the paper's convention, 2 per multiply-add."""
    counts = analysis.analyze(model, image_size, executed=False)
    text = f"{counts.total('flops') / 1e6:,.1f} million, 2 per multiply-add"
    if counts.not_counted:
        text += f", without {', '.join(counts.not_counted)}"
    return text


def _intended_use(names, metadata):
    named = ", ".join(map(markdown.escape, names[:_NAMED_CLASSES]))
    if len(names) > _NAMED_CLASSES:
        named += ", ... (all in `assets/labels.txt`)"
    source = metadata.get("recipe", {}).get("data")
    images = "its training images"
    if source:
        images = f"the images of {markdown.code(source)}"
    accuracy = metadata.get("metrics", {}).get("accuracy")
    known = "Its accuracy is not recorded."
    if accuracy is not None:
        known = (
            f"Its accuracy on test images of the same origin: {accuracy:.2%}."
        )
    return (
        f"Classifies images like {images} into {len(names)} classes: {named}. "
        f"{known}\n\n{_LIMITS}"
    )


def _training_rows(metadata):
    recipe = metadata.get("recipe", {})
    rows = {
        "data": recipe.get("data", "not recorded"),
        "recipe": recipe.get("name", "not recorded"),
    }
    for name, value in metadata.get("metrics", {}).items():
        rows[name] = f"{value:.4g}" if isinstance(value, float) else value
    rows["run"] = metadata.get("run") or "not recorded"
    rows["command"] = metadata.get("command") or "not recorded"
    return rows


def _input_rows(network):
    shape, crop = network.specs["images"].shape, network.classifier.crop
    return {
        "images": f"float32 `{_shape(shape)}`, values in [0, 255] (clipped; "
        "NaN and infinity are errors)",
        "channels": {1: "gray", 3: "red, green, blue"}[shape[-1]],
        "encoded images": "JPEG or PNG of at most "
        f"{network.options.max_pixels:,} pixels; inside the model, {crop}",
        "normalization": "inside the model",
    }


def _tensors(specs):
    """A table of tensors by name."""
    rows = {
        f"`{name}`": f"{spec.dtype.name} `{_shape(spec.shape)}`"
        for name, spec in specs.items()
    }
    return _table(rows, ("name", "tensor"))


def _shape(shape):
    sizes = ["any" if size is None else str(size) for size in shape[1:]]
    return f"({', '.join(['batch', *sizes])})"


def _table(rows: Mapping[str, Any], head: tuple[str, str] = ("", "")) -> str:
    return markdown.table(rows.items(), head)
