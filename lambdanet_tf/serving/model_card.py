"""The model card of an export: where it is from, and how good it is.

In the manner of Mitchell et al., "Model Cards for Model Reporting", 2019
(https://arxiv.org/abs/1810.03993).
"""

import json
from collections.abc import Mapping
from typing import Any

import lambdanet_tf
from lambdanet_tf import environment
from lambdanet_tf import markdown
from lambdanet_tf.serving.inference import Inference

CARD_FILE = "assets.extra/model_card.md"
_TEXT = """\
# {name}

{model}

## Input

`images`, float32 {shape}, values in [0, 255]; normalization is inside the
model. Encoded images are JPEG or PNG: {crop}.

## Limits

- Every image gets one of the classes, also an image that shows none of them.
- The probabilities are not calibrated: do not read them as frequencies.
- Nothing is known about images of another origin than the training images
  (another camera, place, time or population), nor about groups among them.
- Before it decides anything about people, measure it on images of its use.

## Origin

{origin}
"""


def card(name: str, network: Inference, metadata: Mapping[str, Any]) -> str:
    """Returns the card of an export, in Markdown."""
    recipe = metadata.get("recipe", {})
    labels = map(markdown.escape, network.labels)
    model = {
        "architecture": metadata.get("model", network.model.name),
        "arguments": json.dumps(metadata.get("arguments", {})),
        "parameters": f"{network.model.count_params():,}",
        "probabilities": network.options.activation,
        "classes": ", ".join(labels),
    }
    origin = {
        "data": recipe.get("data", "not recorded"),
        "recipe": recipe.get("name", "not recorded"),
        "run": metadata.get("run", "not recorded"),
        "command": metadata.get("command", "not recorded"),
        **metadata.get("metrics", {}),
        **metadata.get("versions", {}),
        "exported by lambdanet_tf": lambdanet_tf.__version__,
        "exported on TensorFlow": environment.versions()["tensorflow"],
    }
    return _TEXT.format(
        name=name,
        model=markdown.table(model.items()),
        shape=network.image_shape,
        crop=_crop_in_words(network.crop),
        origin=markdown.table(origin.items()),
    )


def _crop_in_words(crop):
    """Returns what an encoded image is cut and resized to."""
    kept = "the whole image"
    if crop.share != 1.0:
        kept = f"the central square of {crop.share:g} of the shorter side"
    height, width = crop.size
    return f"{kept}, resized bilinearly to {height}x{width}"
