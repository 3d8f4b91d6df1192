"""The card that travels with an export: what it is, in words and numbers."""

import hashlib
import json
import platform

import tensorflow as tf

import lambdanet_tf
from lambdanet_tf.serving.portable import FORMATS

CARD_FILE = "assets.extra/model_card.md"


def model_card(folder, name, model, network, options, facts):
    """Describes an export that has just been written.

    Args:
        folder: where its files are.
        name: the name that clients ask for.
        model: the `tf.keras.Model` that was trained.
        network: the `Inference` that is served.
        options: its `ServingOptions`.
        facts: dict of what the model cannot know itself; the keys used are
            "builder", "arguments", "recipe", "metrics", "flops", "run",
            "command" and "versions".

    Returns:
        Markdown.
    """
    sections = {
        "Model": _model_rows(model, network, options, facts),
        "Training": _training_rows(facts),
        "Input": _input_rows(network, options),
        "Made with": {
            **facts.get("versions", {}),
            "exported by lambdanet_tf": lambdanet_tf.__version__,
            "exported on TensorFlow": tf.__version__,
            "exported on Python": platform.python_version(),
        },
    }
    parts = [f"# {name}"]
    for title, rows in sections.items():
        parts.append(f"## {title}\n\n{_table(('', ''), rows.items())}")
    parts.append(f"## Outputs\n\n{_OUTPUTS}")
    parts.append(
        "## Checksums\n\n"
        + _table(("file", "SHA-256"), file_checksums(folder).items())
    )
    return "\n\n".join(parts) + "\n"


def file_checksums(folder):
    """Maps the files of an export, but for its card, to their SHA-256."""
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(
            file.read_bytes()
        ).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file != folder / CARD_FILE
    }


_OUTPUTS = """\
| signature | input | outputs |
|---|---|---|
| `serving_default` | `images`: float32, see above | `logits`, `probabilities` \
(float32, one per class), `classes` (int64, the likeliest), `top_labels` \
(string) and `top_probabilities` (float32), best first |
| `serving_bytes` | `image_bytes`: string, JPEG or PNG | the same |
| `classify` | `inputs`: string, `tf.train.Example` with `image/encoded` | \
`classes` (string) and `scores` (float32), best first |
| `features` | `images`: float32, see above | `features`: float32, what the \
classifier sees |"""


def _model_rows(model, network, options, facts):
    rows = {
        "architecture": facts.get("builder", model.name),
        "arguments": json.dumps(facts.get("arguments", {})),
        "parameters": f"{model.count_params():,}",
        "parameters served": f"{_num_elements(network.weights):,}",
        "weights stored as": options.weights_dtype,
        "operations per image": facts.get("flops", "not counted"),
        "classes": str(network.classes),
    }
    if options.formats:
        rows["for other runtimes"] = ", ".join(
            f"`{FORMATS[name].FILE}`" for name in options.formats
        )
    if options.xla:
        rows["XLA"] = (
            "`serving_default_xla` needs a server with XLA switched on"
        )
    return rows


def _training_rows(facts):
    recipe = facts.get("recipe", {})
    rows = {
        "data": recipe.get("data", "not recorded"),
        "recipe": recipe.get("name", "not recorded"),
    }
    for name, value in facts.get("metrics", {}).items():
        rows[name] = f"{value:.4g}" if isinstance(value, float) else value
    rows["run"] = facts.get("run", "not recorded")
    rows["command"] = facts.get("command", "not recorded")
    return rows


def _input_rows(network, options):
    channels = network.input_shape[-1]
    sizes = ["any" if size is None else size for size in network.input_shape]
    colours = {1: "grey", 3: "red, green, blue"}[channels]
    return {
        "images": f"float32 `(batch, {', '.join(map(str, sizes))})`, values "
        "in [0, 255] (clipped; NaN and infinity are errors)",
        "channels": colours,
        "encoded images": "JPEG or PNG of at most "
        f"{options.max_pixels:,} pixels; inside the model, "
        f"{options.crop(network.input_shape)}",
        "normalisation": "inside the model",
    }


def _num_elements(weights):
    return sum(weight.shape.num_elements() for weight in weights)


def _table(head, rows):
    lines = [f"| {' | '.join(head)} |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in rows]
    return "\n".join(lines)
