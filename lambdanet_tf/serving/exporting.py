"""From a trained model to a version folder."""

import dataclasses
import json
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.python.saved_model import fingerprinting_utils

from lambdanet_tf import data
from lambdanet_tf.serving import run_folder
from lambdanet_tf.serving import warmup
from lambdanet_tf.serving.inference import Inference
from lambdanet_tf.serving.model_card import CARD_FILE
from lambdanet_tf.serving.model_card import model_card
from lambdanet_tf.serving.options import ServingOptions
from lambdanet_tf.serving.portable import write_formats
from lambdanet_tf.serving.signatures import CLASSIFY_METHOD
from lambdanet_tf.serving.signatures import ServingModule
from lambdanet_tf.serving.version_folders import new_version

LABELS_FILE = "labels.txt"
DESCRIPTION_FILE = "assets.extra/export.json"
EXAMPLES_FILE = "assets.extra/examples.npz"


def export_run(
    run,
    to="exported",
    name=None,
    version=None,
    options=None,
    facts=None,
    unfinished=False,
):
    """Exports the best weights of a run.

    Args:
        run: a `Run` or the path of a run folder.
        to: the folder that holds `<name>/<version>`.
        name: the name that clients ask for; None takes the model's.
        version: int. None is the one after the highest.
        options: `ServingOptions`; None for `options_of(run)`.
        facts: dict of what the model card is to say besides, see there.
        unfinished: bool. Whether a run that did not finish may be exported.

    Returns:
        The path of the version folder.

    Raises:
        ValueError: if the run is missing, unfinished, or not of this project.
        OSError: if the folder cannot be written.
    """
    if not isinstance(run, run_folder.Run):
        run = run_folder.read_run(run)
    if not unfinished:
        run_folder.require_finished(run)
    model = run.model()
    return export_model(
        model,
        to,
        name or model.name,
        version,
        options or options_of(run),
        {**facts_of(run), **(facts or {})},
        run_folder.read_examples(run),
    )


def options_of(run, **changes):
    """The `ServingOptions` that a run asks for, with some changed."""
    size = run.image.get("height"), run.image.get("width")
    precision = run.recipe.get("precision", "float32")
    defaults = {
        "labels": run.classes or None,
        "image_size": None if None in size else size,
        "evaluation_crop": run.recipe.get("evaluation_crop", 1.0),
        "image_dtype": data.image_dtype(precision),
    }
    return ServingOptions(**{**defaults, **changes})


def facts_of(run):
    """What a run knows about itself, for the model card and the check."""
    return {
        "builder": run.builder,
        "arguments": run.arguments,
        "weights": str(run.weights.resolve()),
        "recipe": run.recipe,
        "metrics": run.metrics,
        "run": run.path.name,
        "command": run.command,
        "versions": run.versions,
    }


def export_model(
    model,
    to,
    name,
    version=None,
    options=None,
    facts=None,
    examples=None,
):
    """Exports a classifier of images in [0, 255].

    Args:
        model: a functional `tf.keras.Model` that ends in a Dense layer.
        to: the folder that holds `<name>/<version>`.
        name: the name that clients ask for.
        version: int. None is the one after the highest.
        options: `ServingOptions`; None for the defaults.
        facts: dict of what the model card is to say besides, see there.
        examples: (images, labels) to keep beside the model, or None.

    Returns:
        The path of the version folder.

    Raises:
        ValueError: if the model or an option does not fit.
        OSError: if the folder cannot be written.
    """
    options = options or ServingOptions()
    facts = facts or {}
    network = Inference(model, options.weights_dtype, options.implementation)
    labels = options.checked_labels(network.classes)
    with new_version(to, name, version) as (folder, place):
        _save(network, labels, options, folder)
        _write_extras(folder, labels, options, facts, examples)
        write_formats(folder, network, options)
        image_shape = options.image_shape(network.input_shape)
        if warmup.can_write():
            calls = warmup.warmup_calls(image_shape)
            warmup.write_warmup_requests(folder, name, calls)
        card = model_card(folder, name, model, network, options, facts)
        (folder / CARD_FILE).write_text(card, encoding="utf-8")
    return place


def read_description(folder):
    """Returns what an export says about itself, a dict."""
    file = pathlib.Path(folder) / DESCRIPTION_FILE
    if not file.is_file():
        raise ValueError(
            "`folder` must be a version folder that this package wrote. "
            f"Received {folder}, which holds no {DESCRIPTION_FILE}."
        )
    return json.loads(file.read_text(encoding="utf-8"))


def source_of(folder):
    """Returns the `Run` that an export was made of."""
    facts = read_description(folder)["facts"]
    if "weights" not in facts:
        raise ValueError(
            "`folder` must be the export of a run or of a weights file. "
            f"Received {folder}, the export of a model in memory: compare it "
            "with `lambdanet_tf.serving.check_export`."
        )
    return run_folder.run_of_weights(
        facts["builder"], facts["arguments"], facts["weights"]
    )


def read_examples(folder):
    """Returns the (images, labels) of an export, or None without any."""
    file = pathlib.Path(folder) / EXAMPLES_FILE
    if not file.is_file():
        return None
    with np.load(file) as arrays:
        return arrays["images"], arrays["labels"]


def _save(network, labels, options, folder):
    """Writes the SavedModel itself."""
    with tempfile.TemporaryDirectory() as scratch:
        labels_file = pathlib.Path(scratch, LABELS_FILE)
        labels_file.write_text("\n".join(labels) + "\n", encoding="utf-8")
        module = ServingModule(network, labels_file, options)
        tf.saved_model.save(module, str(folder), signatures=module.signatures())
    v1 = tf.compat.v1.saved_model.signature_def_utils
    methods = v1.MethodNameUpdater(str(folder))
    methods.replace_method_name("classify", CLASSIFY_METHOD)
    methods.save()
    # That of `tf.saved_model.save` is of the file before.
    fingerprinting_utils.write_fingerprint(str(folder))


def _write_extras(folder, labels, options, facts, examples):
    """Writes what is for people and for the check, not for the server."""
    description = {
        "labels": labels,
        "options": dataclasses.asdict(options),
        "facts": facts,
    }
    (folder / DESCRIPTION_FILE).parent.mkdir(exist_ok=True)
    (folder / DESCRIPTION_FILE).write_text(
        json.dumps(description, indent=2) + "\n", encoding="utf-8"
    )
    if examples is not None:
        images, labels = examples
        np.savez(folder / EXAMPLES_FILE, images=images, labels=labels)
