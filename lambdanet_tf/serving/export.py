"""Exports models: from a run or an in-memory model to a version folder.

<destination>/<name>/<version>/
    saved_model.pb, variables/      what TF Serving loads
    assets/labels.txt               class names, of classifiers of images
    assets.extra/export.json        options, metadata and checksums
    assets.extra/model_card.md      the card for people
    assets.extra/examples.npz       inputs, and the Keras model's outputs
    assets.extra/example.png        the first test image, to try a client
    assets.extra/tf_serving_warmup_requests
    assets.extra/model.tflite, model_int8.tflite, model.onnx
"""

import dataclasses
import os
import re
import warnings
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import users_input
from lambdanet_tf.runs import Run
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.serving import formats
from lambdanet_tf.serving import model_card
from lambdanet_tf.serving import requests
from lambdanet_tf.serving import signatures
from lambdanet_tf.serving.classifier import ASSUMED
from lambdanet_tf.serving.inference import Inference
from lambdanet_tf.serving.options import ExportOptions
from lambdanet_tf.serving.versions import EXTRA_FOLDER
from lambdanet_tf.serving.versions import Folder
from lambdanet_tf.serving.versions import new_version
from lambdanet_tf.serving.versions import write_metadata

# Images of a data set: to choose the ranges of 8-bit integers, and to measure
# their accuracy.
_CALIBRATION_IMAGES = 256
_TEST_IMAGES = 512
_NAMED_CLASSES = 10
# The folders of a path that begins at the root; not those of gs://bucket/x.
_FOLDERS = re.compile(r"(?<![^\s:=,'\"\[(])/(?!/)(?:[^/'\"]*?/)*(?=[^\s/'\"])")

# Images in [0, 255] and their labels.
Labelled = tuple[np.ndarray, np.ndarray]
# Those, or inputs as the model's `predict` takes them.
Examples = Labelled | np.ndarray | Sequence[np.ndarray] | Mapping[str, Any]


def export_run(
    run: Run | str | os.PathLike,
    destination: str | os.PathLike = "exported",
    name: str | None = None,
    version: int | None = None,
    options: ExportOptions | None = None,
    unfinished: bool = False,
    data_set: str | None = None,
) -> Folder:
    """Exports the best weights of a training run.

    Args:
        run: the run, or the path of its folder.
        destination: folder that holds `<name>/<version>`, on any file system
            that `tf.io.gfile` knows.
        name: of the model on the server; None for the network's.
        version: None for the one after the highest.
        options: None for `options_for(run)`.
        unfinished: whether to export a run that has not finished.
        data_set: whose training images choose the ranges of the format
            "tflite_int8", and whose test images measure its accuracy, see
            `data.SOURCES`; of the run's classes. None for the run's own,
            unchanged.

    Returns:
        The version folder; a string where the destination is an address.

    Raises:
        ValueError: if the run is missing, unfinished or not of this package,
            or an option does not fit it.
        OSError: if the folder cannot be written.

    Examples:
        >>> export_run("runs/smoke", "served", name="net").name
        '1'
    """
    if not isinstance(run, Run):
        run = RunFolder(run).read()
    if not unfinished:
        run.require_finished()
    model, examples = run.load_model(), run.read_examples()
    network = Inference(model, options or options_for(run))
    calibration = test_set = None
    if network.classifier and "tflite_int8" in network.options.formats:
        images, crop = _data_set(run, data_set), network.classifier.crop
        calibration, _ = sample(images.train, crop, _CALIBRATION_IMAGES)
        test_set = sample(images.test, crop, _TEST_IMAGES)
    return export_model(
        network,
        destination,
        name or model.name,
        version,
        metadata=_metadata_of(run),
        examples=examples,
        calibration=calibration,
        test_set=test_set,
    )


def export_model(
    model: tf.keras.Model | Inference,
    destination: str | os.PathLike,
    name: str,
    version: int | None = None,
    options: ExportOptions | None = None,
    metadata: Mapping[str, Any] | None = None,
    examples: Examples | None = None,
    calibration: np.ndarray | None = None,
    test_set: Labelled | None = None,
) -> Folder:
    """Exports a model: a classifier of images in [0, 255], or any other.

    A model with one input `(batch, height, width, channels)` is a classifier of
    images, unless its options say otherwise. Its inputs and outputs have the
    names of the signatures. Any other model keeps the names of its own: those
    of its dictionaries, else those of its `Input`s and of its last layers.

    Args:
        model: a functional `tf.keras.Model`, or its `Inference`, which has
            options. A classifier ends in a Dense layer of logits, or of
            probabilities by softmax or sigmoid.
        destination: folder that holds `<name>/<version>`, on any file system
            that `tf.io.gfile` knows.
        name: of the model on the server.
        version: None for the one after the highest.
        options: None for the defaults.
        metadata: origin of the model, which its card shows: any of "model",
            "arguments", "recipe", "metrics", "run", "command" and "versions".
            Absolute paths in it are cut to their last name.
        examples: to keep with the model, and to verify it on. Of a classifier
            of images test images and labels, or None for noise; of any other
            model inputs as its `predict` takes them: an array, a list or a
            dictionary of them. They are its warm-up, too.
        calibration: training images `(images, height, width, channels)` that
            choose the ranges of the format "tflite_int8".
        test_set: images and labels to measure the accuracy of files for other
            runtimes with.

    Returns:
        The version folder; a string where the destination is an address.

    Raises:
        ValueError: if the model, the examples or an option do not fit.
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
    network = model
    if not isinstance(network, Inference):
        network = Inference(model, options)
    elif options is not None:
        raise UserError(
            "`options` must be None for an `Inference`, which has its own."
        )
    classifier, origin = network.classifier, _without_folders(metadata or {})
    if network.options.formats:
        formats.check_installed(network.options.formats)
    if classifier is not None and classifier.reason.startswith(ASSUMED):
        warnings.warn(
            "Logits become probabilities by a softmax, "
            f"{classifier.reason}. For several labels at once give "
            "`classifier_activation='sigmoid'`; 'softmax' confirms it.",
            stacklevel=2,
        )
    arrays = requests.examples_of(network, examples)
    if calibration is not None and classifier is not None:
        shape = None, *classifier.image_shape
        calibration = requests.images_of("calibration", calibration, shape)
    if test_set is not None:
        test_set = requests.labelled("test_set", network, test_set)
    with new_version(destination, name, version) as new:
        folder = new.folder
        signatures.save(folder, network)
        (folder / EXTRA_FOLDER).mkdir()
        requests.write_examples(folder, arrays)
        requests.write_warmup(folder, name, network, arrays)
        if network.options.formats:
            formats.write(folder, network, calibration)
        if calibration is not None:
            origin["calibration"] = f"{len(calibration)} training images"
        if test_set is not None:
            origin["test_images"] = len(test_set[0])
            origin["accuracies"] = formats.accuracies(
                folder, network, *test_set
            )
        checksums = write_metadata(
            folder,
            labels=classifier and classifier.labels,
            options=dataclasses.asdict(network.options),
            compute_dtype=network.compute_dtype,
            metadata=origin,
        )
        model_card.write(folder, name, network, origin, checksums)
    return new.final


def options_for(run: Run, **changes: Any) -> ExportOptions:
    """Returns the options of a run's export, with some of them changed.

    Args:
        run: a run of this package.
        **changes: fields of `ExportOptions`.

    Returns:
        An `ExportOptions`.

    Raises:
        ValueError: if a change is not allowed.

    Examples:
        >>> run = training.RunFolder("runs/smoke").read()
        >>> options_for(run, top=1).top
        1
    """
    size = run.image.get("height"), run.image.get("width")
    precision = run.recipe.get("precision", "float32")
    activation = run.arguments.get("classifier_activation", "softmax")
    if run.recipe:  # which trains one class among several
        activation = activation or "softmax"
    options = {
        "task": "classify",
        "labels": run.classes or None,
        "classifier_activation": activation,
        "image_size": None if None in size else size,
        "evaluation_crop": run.recipe.get("evaluation_crop", 1.0),
        "image_dtype": data.image_dtype(precision),
    }
    return ExportOptions(**{**options, **changes})


def sample(
    source: data.Source, crop: data.EvaluationCrop, count: int
) -> Labelled:
    """Returns images of a source, as a model is evaluated on them.

    Args:
        source: of images and classes.
        crop: evaluation preprocessing.
        count: how many images at most, in random order; one that can be read
            must be among those of the source.

    Returns:
        float32 images `(images, height, width, channels)` in [0, 255], and
        labels.
    """
    examples = source.examples(
        source.stream(0).take(source.num_images),  # each image once
        lambda image, label, position: (crop(image), label),
    )
    pixels, labels = next(iter(examples.batch(min(count, source.num_images))))
    return tf.cast(pixels, tf.float32).numpy(), labels.numpy()


@users_input()
def _data_set(run, given):
    """The data set of this name, or of a run. Nothing is downloaded."""
    name = given or run.recipe.get("data")
    if name is None:
        raise UserError(
            "`data_set` must be given for a weights file: its training images "
            "choose the ranges of 8-bit integers. Received: None."
        )
    images = data.load_images(
        name,
        run.recipe.get("validation_split", 0.1),
        run.options.get("data_dir") or None,
        download=False,
    )
    if run.classes and images.classes != run.classes:
        raise UserError(
            "`data_set` must have the classes of the run, in their order: "
            f"{_listed(run.classes)}. Received: data_set={name!r} with "
            f"{_listed(images.classes)}."
        )
    data.require_readable(images)
    return images


def _listed(classes):
    """The first names of classes, and how many there are."""
    more = f", ... ({len(classes)})" if len(classes) > _NAMED_CLASSES else ""
    return ", ".join(classes[:_NAMED_CLASSES]) + more


def _metadata_of(run):
    """The origin of a run's export, which its card shows."""
    names = ["model", "arguments", "weights", "recipe", "command", "versions"]
    if run.status == "finished":  # Else they are those of former weights.
        names.append("metrics")
    return {
        **{name: getattr(run, name) for name in names},
        "run": os.path.basename(run.folder.rstrip("/")),
    }


def _without_folders(value: Any) -> Any:
    """The same without the folders of absolute paths in its texts."""
    if isinstance(value, str):
        return _FOLDERS.sub("", value)
    if isinstance(value, Mapping):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(item) for item in value]
    return value
