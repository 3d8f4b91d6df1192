"""From a trained model to a version folder."""

import json

import numpy as np
import tensorflow as tf

from lambdanet_tf.serving import run_folder
from lambdanet_tf.serving.signatures import ServingModule
from lambdanet_tf.serving.version_folders import new_version

DESCRIPTION_FILE = "assets.extra/export.json"
EXAMPLES_FILE = "assets.extra/examples.npz"


def export_run(run, to="exported", name=None, version=None, unfinished=False):
    """Exports the best weights of a run.

    Args:
        run: a `Run` or the path of a run folder.
        to: the folder that holds `<name>/<version>`.
        name: the name that clients ask for; None takes the model's.
        version: int. None is the one after the highest.
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
    model = logits_model(run)
    description = {
        "run": str(run.path.resolve()),
        "classes": run.classes,
        "image": run.image,
    }
    return export_model(
        model,
        to,
        name or model.name,
        version,
        description,
        run_folder.read_examples(run),
    )


def logits_model(run):
    """Returns the Keras model of a run, from images to logits."""
    model = run_folder.build_model(run, classifier_activation=None)
    run_folder.load_best_weights(run, model)
    return model


def export_model(
    model, to, name, version=None, description=None, examples=None
):
    """Exports a model from images in [0, 255] to logits.

    Args:
        model: a `tf.keras.Model`.
        to: the folder that holds `<name>/<version>`.
        name: the name that clients ask for.
        version: int. None is the one after the highest.
        description: dict of JSON values to keep beside the model.
        examples: (images, labels) to keep beside it, or None.

    Returns:
        The path of the version folder.
    """
    module = ServingModule(model)
    with new_version(to, name, version) as (folder, place):
        tf.saved_model.save(module, str(folder), signatures=module.signatures())
        (folder / DESCRIPTION_FILE).parent.mkdir()
        (folder / DESCRIPTION_FILE).write_text(json.dumps(description or {}))
        if examples is not None:
            images, labels = examples
            np.savez(folder / EXAMPLES_FILE, images=images, labels=labels)
    return place


def read_description(folder):
    """Returns the description of an export."""
    return json.loads((folder / DESCRIPTION_FILE).read_text())


def read_examples(folder):
    """Returns the (images, labels) of an export, or None without any."""
    if not (folder / EXAMPLES_FILE).is_file():
        return None
    with np.load(folder / EXAMPLES_FILE) as arrays:
        return arrays["images"], arrays["labels"]
