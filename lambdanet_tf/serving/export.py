"""Exports models: from a run or a model in hand to a version folder.

<destination>/<name>/<version>/
    saved_model.pb, variables/      what TF Serving loads
    assets/labels.txt               class names
    assets.extra/export.json        options and metadata
    assets.extra/model_card.md      the card for people
    assets.extra/examples.npz       test images, if the run kept some
    assets.extra/example.png        the first of them, to try a client
    assets.extra/tf_serving_warmup_requests
    assets.extra/model.tflite, model_int8.tflite, model.onnx
"""

import dataclasses
import json
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.saved_model import fingerprinting_utils

from lambdanet_tf import data
from lambdanet_tf import ops
from lambdanet_tf.runs import Run
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.serving import formats
from lambdanet_tf.serving import model_card
from lambdanet_tf.serving import warmup
from lambdanet_tf.serving.inference import Inference
from lambdanet_tf.serving.inference import activation_of
from lambdanet_tf.serving.options import ExportOptions
from lambdanet_tf.serving.signatures import CLASSIFY_METHOD
from lambdanet_tf.serving.signatures import ServingModule
from lambdanet_tf.serving.versions import new_version

LABELS_FILE = "labels.txt"
METADATA_FILE = "assets.extra/export.json"
EXAMPLES_FILE = "assets.extra/examples.npz"
EXAMPLE_IMAGE = "assets.extra/example.png"

Examples = tuple[np.ndarray, np.ndarray]


def export_run(
    run: Run | str | os.PathLike,
    destination: str | os.PathLike = "exported",
    name: str | None = None,
    version: int | None = None,
    options: ExportOptions | None = None,
    unfinished: bool = False,
    model: tf.keras.Model | None = None,
    data_set: str | None = None,
) -> pathlib.Path:
    """Exports the best weights of a training run.

    Args:
        run: the run, or the path of its folder.
        destination: local folder that holds `<name>/<version>`.
        name: of the model on the server; None for the network's.
        version: None for the one after the highest.
        options: None for `options_for(run)`.
        unfinished: whether to export a run that has not finished.
        model: the network with its weights; None loads it.
        data_set: whose training images choose the ranges of the format
            "tflite_int8", see `data.SOURCES`; None for the run's.

    Returns:
        The version folder.

    Raises:
        ValueError: if the run is missing, unfinished or not of this package,
            or an option does not fit it.
        OSError: if the folder cannot be written.
    """
    if not isinstance(run, Run):
        run = RunFolder(run).read()
    if not unfinished:
        run.require_finished()
    options = options or options_for(run)
    model = model or run.load_model()
    calibration = None
    if "tflite_int8" in options.formats:
        calibration, _ = data_set_images(
            run, "train", options, model.input_shape[1:], data_set
        )
    return export_model(
        model,
        destination,
        name or model.name,
        version,
        options,
        metadata_of(run),
        run.read_examples(),
        calibration,
    )


def export_model(
    model: tf.keras.Model,
    destination: str | os.PathLike,
    name: str,
    version: int | None = None,
    options: ExportOptions | None = None,
    metadata: Mapping[str, Any] | None = None,
    examples: Examples | None = None,
    calibration: np.ndarray | None = None,
) -> pathlib.Path:
    """Exports a classifier of images in [0, 255].

    Args:
        model: a functional `tf.keras.Model` that ends in a Dense layer of
            logits, or of probabilities by softmax or sigmoid.
        destination: local folder that holds `<name>/<version>`.
        name: of the model on the server.
        version: None for the one after the highest.
        options: None for the defaults.
        metadata: origin of the model for its card, see `metadata_of`.
        examples: test images and labels to keep with the model.
        calibration: training images `(images, height, width, channels)` that
            choose the ranges of the format "tflite_int8".

    Returns:
        The version folder.

    Raises:
        ValueError: if the model or an option does not fit.
        ImportError: if a format needs an extra that is not installed.
        OSError: if the folder cannot be written.
    """
    options = options or ExportOptions()
    metadata = dict(metadata or {})
    formats.check_installed(options.formats)
    network = Inference(
        model, options.weights_dtype, options.implementation, options.device
    )
    options = dataclasses.replace(
        options,
        classifier_activation=activation_of(
            model, options.classifier_activation
        ),
    )
    labels = options.class_names(network.num_classes)
    image_shape = options.image_shape(network.input_shape)
    if calibration is not None:
        metadata["calibration"] = f"{len(calibration)} training images"
    with new_version(destination, name, version) as (folder, final):
        _write_saved_model(folder, network, labels, options)
        _write_metadata(folder, labels, options, metadata)
        _write_examples(folder, examples)
        formats.write(
            folder,
            options.formats,
            network,
            image_shape,
            calibration,
            options.classifier_activation,
        )
        if warmup.can_write():
            warmup.write(folder, name, warmup.requests_for(image_shape))
        with ops.planning_for(options.device):  # operations depend on it
            model_card.write(folder, name, model, network, options, metadata)
    return final


def options_for(run: Run, **changes: Any) -> ExportOptions:
    """Returns the options of a run's export, with some of them changed."""
    size = run.image.get("height"), run.image.get("width")
    precision = run.recipe.get("precision", "float32")
    options = {
        "labels": run.classes or None,
        "image_size": None if None in size else size,
        "evaluation_crop": run.recipe.get("evaluation_crop", 1.0),
        "image_dtype": data.image_dtype(precision),
    }
    return ExportOptions(**{**options, **changes})


def metadata_of(run: Run) -> dict[str, Any]:
    """Returns the origin of a run's export.

    The model card shows it, and `exported_run` reads it.
    """
    weights = run.weights
    if "://" not in weights:
        weights = os.path.abspath(weights)
    return {
        "model": run.model,
        "arguments": dict(run.arguments),
        "weights": weights,
        "recipe": dict(run.recipe),
        "options": dict(run.options),
        "metrics": dict(run.metrics),
        "run": os.path.basename(run.folder.rstrip("/")),
        "command": run.command,
        "versions": dict(run.versions),
    }


def exported_run(folder: str | os.PathLike) -> Run:
    """Returns the run that an export was made of.

    Raises:
        ValueError: if it was made of a model in hand.
    """
    metadata = read_metadata(folder)["metadata"]
    if "weights" not in metadata:
        raise ValueError(
            "`folder` must be the export of a run or of a weights file. "
            f"Received {folder}, the export of a model in hand: verify it "
            "with `lambdanet_tf.serving.verify_export`."
        )
    return Run(
        "finished",
        metadata["model"],
        metadata["arguments"],
        recipe=metadata["recipe"],
        options=metadata["options"],
        weights=metadata["weights"],
    )


def data_set_images(
    run: Run,
    split: str,
    options: ExportOptions,
    input_shape: tuple,
    name: str | None = None,
    count: int = 256,
) -> Examples:
    """Returns images and labels of a data set, as a model is evaluated on.

    Nothing is downloaded.

    Args:
        run: its recipe names the data set.
        split: "train" or "test".
        options: of the export; they hold the evaluation preprocessing.
        input_shape: of the model, without the batch.
        name: of another data set, see `data.SOURCES`.
        count: how many images at most, in random order.

    Returns:
        float32 images `(images, height, width, channels)` in [0, 255], and
        labels.

    Raises:
        ValueError: if there is no such data set.
        ImportError: if it needs an extra that is not installed.
    """
    name = name or run.recipe.get("data")
    if name is None:
        raise ValueError(
            "`data_set` must be given for a weights file: its training images "
            "choose the ranges of 8-bit integers. Received: None."
        )
    images = data.load_images(
        name, data_dir=run.options.get("data_dir") or None, download=False
    )
    source = getattr(images, split)
    crop = options.crop(input_shape)
    elements = source.stream(0)
    batches = source.batches(
        elements,
        lambda image, label, position: (crop(image), label),
        min(count, source.num_images),
    )
    (pixels, labels), _ = next(iter(batches))
    return tf.cast(pixels, tf.float32).numpy(), labels.numpy()


def read_metadata(folder: str | os.PathLike) -> dict[str, Any]:
    """Reads the labels, the options and the metadata of an export.

    Raises:
        ValueError: if it is not a version folder that this package wrote.
    """
    file = pathlib.Path(folder) / METADATA_FILE
    if not file.is_file():
        raise ValueError(
            "`folder` must be a version folder that this package wrote. "
            f"Received {folder}, which holds no {METADATA_FILE}."
        )
    return json.loads(file.read_text(encoding="utf-8"))


def read_options(folder: str | os.PathLike) -> ExportOptions:
    """Reads the options of an export.

    Raises:
        ValueError: as `read_metadata`.
    """
    return ExportOptions(**read_metadata(folder)["options"])


def read_examples(folder: pathlib.Path) -> Examples | None:
    """Reads the test images and labels of an export; None without any."""
    file = folder / EXAMPLES_FILE
    if not file.is_file():
        return None
    with np.load(file) as arrays:
        return arrays["images"], arrays["labels"]


def _write_saved_model(folder, network, labels, options):
    with tempfile.TemporaryDirectory() as scratch:
        labels_file = pathlib.Path(scratch, LABELS_FILE)
        labels_file.write_text("\n".join(labels) + "\n", encoding="utf-8")
        module = ServingModule(network, labels_file, options)
        tf.saved_model.save(module, str(folder), signatures=module.signatures())
    v1 = tf.compat.v1.saved_model.signature_def_utils
    methods = v1.MethodNameUpdater(str(folder))
    methods.replace_method_name("classify", CLASSIFY_METHOD)
    methods.save()
    # `tf.saved_model.save` wrote that of the file before this change.
    fingerprinting_utils.write_fingerprint(str(folder))


def _write_metadata(folder, labels, options, metadata):
    fields = {
        "labels": labels,
        "options": dataclasses.asdict(options),
        "metadata": metadata,
    }
    (folder / METADATA_FILE).parent.mkdir(exist_ok=True)
    (folder / METADATA_FILE).write_text(
        json.dumps(fields, indent=2) + "\n", encoding="utf-8"
    )


def _write_examples(folder, examples):
    if examples is None:
        return
    images, labels = examples
    np.savez(folder / EXAMPLES_FILE, images=images, labels=labels)
    pixels = np.rint(images[0]).clip(0, 255).astype(np.uint8)
    (folder / EXAMPLE_IMAGE).write_bytes(tf.io.encode_png(pixels).numpy())
