"""Exports models: from a run or an in-memory model to a version folder.

<destination>/<name>/<version>/
    saved_model.pb, variables/      the model that TF Serving loads
    README.txt                      how to predict and to serve
    assets/labels.txt               class names, one per line
    assets.extra/export.json        labels, options and metadata
    assets.extra/model_card.md      the model card
    assets.extra/examples.npz       images, and the Keras model's outputs
    assets.extra/example.png        the first test image, to try a client
    assets.extra/tf_serving_warmup_requests
    assets.extra/model.tflite, model.onnx
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

import lambdanet_tf
from lambdanet_tf import environment
from lambdanet_tf import markdown
from lambdanet_tf.data.images import image_dtype
from lambdanet_tf.runs import Run
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.serving import formats
from lambdanet_tf.serving import verify
from lambdanet_tf.serving.inference import Inference
from lambdanet_tf.serving.inference import save_signatures
from lambdanet_tf.serving.options import FORMATS
from lambdanet_tf.serving.options import ExportOptions
from lambdanet_tf.serving.versions import METADATA_FILE
from lambdanet_tf.serving.versions import Folder
from lambdanet_tf.serving.versions import write_file
from lambdanet_tf.serving.versions import write_version


def export_run(
    run: Run | str | os.PathLike,
    destination: str | os.PathLike = "exported",
    name: str | None = None,
    version: int | None = None,
    options: ExportOptions | None = None,
    unfinished: bool = False,
) -> Folder:
    """Exports the best weights of a training run.

    Args:
        run: the run, or the path of its folder.
        destination: folder in which to write `<name>/<version>`.
        name: name of the model on the server; None for the network's.
        version: version number; None for the next one.
        options: None for `options_for(run)`.
        unfinished: whether to export a run that has not finished.

    Returns:
        The version folder; a string if the destination is a remote address.

    Raises:
        ValueError: if the run is missing, unfinished or not of this package,
            or if an option does not fit it.
        OSError: if the folder cannot be written.
    """
    if not isinstance(run, Run):
        run = RunFolder(run).read()
    if not unfinished:
        run.require_finished()
    model = run.load_model()
    return export_model(
        model,
        destination,
        name or model.name,
        version,
        options or options_for(run),
        _metadata_of(run),
        run.read_examples(),
    )


def export_model(
    model: tf.keras.Model,
    destination: str | os.PathLike,
    name: str,
    version: int | None = None,
    options: ExportOptions | None = None,
    metadata: Mapping[str, Any] | None = None,
    examples: tuple[Any, Any] | None = None,
) -> Folder:
    """Exports a classifier of images in [0, 255].

    To export any other model, use Keras' own `model.export(folder)`.

    Args:
        model: a functional `tf.keras.Model` with one input `(batch, height,
            width, channels)` that ends in a Dense layer. This layer returns
            logits, or probabilities by softmax or sigmoid.
        destination: folder in which to write `<name>/<version>`. On a local
            disk, the write is atomic.
        name: name of the model on the server.
        version: version number; None for the next one.
        options: None for the defaults. If the model returns logits, they must
            name the activation.
        metadata: origin of the model for its card: any of "model",
            "arguments", "recipe", "metrics", "run", "command" and "versions".
        examples: test images and their classes, to save with the model and to
            verify it; None for noise.

    Returns:
        The version folder; a string if the destination is a remote address.

    Raises:
        ValueError: if the model or an option does not fit.
        ImportError: if a format needs an extra that is not installed.
        OSError: if the folder cannot be written.

    Examples:
        >>> images, labels = np.zeros([4, 8, 8, 1]), np.arange(4)
        >>> folder = export_model(
        ...     models.LambdaResNetSmall(),
        ...     "served",
        ...     "net",
        ...     examples=(images, labels),
        ... )
        >>> folder.name
        '1'
    """
    network, metadata = Inference(model, options), dict(metadata or {})
    arrays = verify.examples_of(network, examples)
    fields = {
        "labels": network.labels,
        "options": dataclasses.asdict(network.options),
        "metadata": metadata,
        "tolerance": network.tolerance,
    }
    texts = {
        "assets/labels.txt": "\n".join(network.labels) + "\n",
        METADATA_FILE: json.dumps(fields, indent=2) + "\n",
        "README.txt": _text("export_readme.txt", name=name),
        "assets.extra/model_card.md": _card(name, network, metadata),
    }

    def write(folder):
        save_signatures(folder, network)
        verify.write_examples(folder, arrays)
        verify.write_warmup(folder, name, network.image_shape)
        for file, text in texts.items():
            write_file(folder, file, text.encode())
        for kind in network.options.formats:
            write_file(folder, FORMATS[kind], formats.convert(kind, network))

    return write_version(destination, name, version, write)


def options_for(run: Run, **changes: Any) -> ExportOptions:
    """Returns the export options of a run, with some of them changed.

    Args:
        run: a run of this package.
        **changes: fields of `ExportOptions`.

    Raises:
        ValueError: if a change is not allowed.
    """
    precision = run.recipe.get("precision", "float32")
    activation = run.arguments.get("classifier_activation", "softmax")
    if run.recipe:  # our training is for one class among several
        activation = activation or "softmax"
    options = {
        "labels": run.classes or None,
        "activation": activation,
        "evaluation_crop": run.recipe.get("evaluation_crop", 1.0),
        "image_dtype": image_dtype(precision),
        "bits": run.image.get("bits", 16),
    }
    return ExportOptions(**{**options, **changes})


def _metadata_of(run):
    """Returns the origin of a run's export, for its card."""
    names = ["model", "arguments", "recipe", "command", "versions"]
    if run.status == "finished":  # Else they belong to earlier weights.
        names.append("metrics")
    origin = {name: getattr(run, name) for name in names}
    return origin | {"run": os.path.basename(run.folder.rstrip("/"))}


def _card(name: str, network: Inference, metadata: Mapping[str, Any]) -> str:
    """Returns the model card of an export, in Markdown.

    It follows Mitchell et al., "Model Cards for Model Reporting", 2019
    (https://arxiv.org/abs/1810.03993).
    """
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
    return _text(
        "model_card.md",
        name=name,
        model=markdown.table(model.items()),
        shape=network.image_shape,
        share=f"{network.crop.share:g}",
        height=network.crop.size[0],
        width=network.crop.size[1],
        origin=markdown.table(origin.items()),
    )


def _text(template, **facts):
    file = pathlib.Path(__file__).with_name(template)
    return file.read_text("utf-8").format(**facts)
