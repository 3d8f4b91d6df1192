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
from lambdanet_tf.serving.versions import checksums

CARD_FILE = "assets.extra/model_card.md"

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


def write(
    folder: pathlib.Path,
    name: str,
    network: Inference,
    metadata: Mapping[str, Any],
) -> None:
    """Writes the card of an export whose other files are complete.

    Args:
        folder: the version folder.
        name: of the model on the server.
        network: the classifier.
        metadata: origin of the model. The keys used are "model", "arguments",
            "recipe", "metrics", "run", "command", "calibration" and
            "versions"; what is missing is "not recorded".
    """
    with ops.planning_for(network.options.device):  # operations depend on it
        model_rows = _model_rows(network, metadata)
    sections = {
        "Model": _table(model_rows),
        "Intended use and limits": _intended_use(network.labels, metadata),
        "Training": _table(_training_rows(metadata)),
        "Input": _table(_input_rows(network)),
        "Outputs": _OUTPUTS,
        "Made with": _table(
            {
                **metadata.get("versions", {}),
                "exported by lambdanet_tf": lambdanet_tf.__version__,
                "exported on TensorFlow": tf.__version__,
                "exported on Python": platform.python_version(),
            }
        ),
        "Checksums": _table(checksums(folder), ("file", "SHA-256")),
    }
    parts = [f"## {title}\n\n{text}" for title, text in sections.items()]
    text = "\n\n".join([f"# {name}", *parts]) + "\n"
    (folder / CARD_FILE).write_text(text, encoding="utf-8")


def _model_rows(network, metadata):
    model, options = network.model, network.options
    classifier = network.classifier
    probabilities = _PROBABILITIES[
        classifier.activation, classifier.dense.units == 1
    ]
    served = sum(weight.shape.num_elements() for weight in network.weights)
    rows = {
        "architecture": metadata.get("model", model.name),
        "arguments": json.dumps(metadata.get("arguments", {})),
        "trainable parameters": f"{analysis.trainable_parameters(model):,}",
        "parameters served": f"{served:,}",
        "weights stored as": options.weights_dtype,
        "planned for": options.device,
        "FLOPs per image": _flops(model, network.image_shape[:2]),
        "classes": str(len(network.labels)),
        "probabilities": f"{probabilities} ({classifier.reason})",
    }
    if options.formats:
        files = [f"`{FORMATS[name]}`" for name in options.formats]
        rows["other runtimes"] = ", ".join(files)
    if "calibration" in metadata:
        rows["ranges of int8 chosen by"] = metadata["calibration"]
    if options.xla:
        rows["XLA"] = (
            "`serving_default_xla` needs a server with XLA switched on"
        )
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
    channels = network.input_shape[-1]
    sizes = ["any" if size is None else size for size in network.input_shape]
    colors = {1: "gray", 3: "red, green, blue"}[channels]
    return {
        "images": f"float32 `(batch, {', '.join(map(str, sizes))})`, values "
        "in [0, 255] (clipped; NaN and infinity are errors)",
        "channels": colors,
        "encoded images": "JPEG or PNG of at most "
        f"{network.options.max_pixels:,} pixels; inside the model, "
        f"{network.crop}",
        "normalization": "inside the model",
    }


def _table(rows: Mapping[str, Any], head: tuple[str, str] = ("", "")) -> str:
    return markdown.table(rows.items(), head)
