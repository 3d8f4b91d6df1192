"""Reading a run folder: the file names, its description, its model.

A run folder is what training leaves behind. This module is the one place that
knows the names of its files; training writes through the same constants.

    runs/20250131-101500/
        run.json            what was trained, and how it ended (see `Run`)
        best.weights.h5     the weights to serve
        examples.npz        a few held-out images and labels (optional)
"""

import dataclasses
import difflib
import json
import pathlib

import numpy as np

from lambdanet_tf import models
from lambdanet_tf.serving.local_paths import local_path

RUN_FILE = "run.json"
WEIGHTS_FILE = "best.weights.h5"
EXAMPLES_FILE = "examples.npz"
RUN_FORMAT = 1
STATUSES = ("running", "finished", "stopped", "failed")


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained network: what its run folder says about it.

    Attributes:
        path: the folder.
        weights: the file of weights to serve.
        status: one of `STATUSES`.
        builder: the function of `lambdanet_tf.models` that made the model.
        arguments: its keyword arguments.
        classes: the names of the classes, in the order of the outputs.
        image: height, width, channels and the range of the pixel values.
        recipe: the resolved training recipe.
        metrics: the figures that the run reached.
        versions: the packages that it ran on.
        command: the command that started it.
    """

    path: pathlib.Path
    weights: pathlib.Path
    status: str
    builder: str
    arguments: dict
    classes: tuple[str, ...]
    image: dict
    recipe: dict
    metrics: dict
    versions: dict
    command: str

    def model(self):
        """Builds the network and loads its weights."""
        return trained_model(self.builder, self.arguments, self.weights)


def read_run(path):
    """Reads `run.json` of the run folder at `path`, whatever its status."""
    path = local_path("run", path)
    if not path.is_dir():
        raise ValueError(
            f"`run` must be a run folder. Received {path}, which does not "
            "exist."
        )
    file = path / RUN_FILE
    if not file.is_file():
        raise ValueError(
            f"`run` must be a folder that train.py wrote. Received {path}, "
            f"which holds no {RUN_FILE}."
        )
    return _parse_run(path, read_json(file))


def run_of_weights(builder, arguments, weights, classes=()):
    """Takes a file of weights for a run of which nothing else is known.

    Args:
        builder: the name of a function of `lambdanet_tf.models`.
        arguments: dict of its keyword arguments.
        weights: path of a file that `models.load_weights` takes.
        classes: a name per class; empty for "0", "1", ...
    """
    weights = local_path("weights", weights)
    return Run(
        path=weights.parent,
        weights=weights,
        status="finished",
        builder=builder,
        arguments=dict(arguments),
        classes=tuple(classes),
        image={},
        recipe={},
        metrics={},
        versions={},
        command="",
    )


def newest_finished_run(runs="runs"):
    """Returns the newest finished run below the folder `runs`."""
    runs = local_path("runs", runs)
    folders = sorted(
        (file.parent for file in runs.glob(f"*/{RUN_FILE}")), reverse=True
    )
    passed_over = []
    for folder in folders:
        try:
            run = read_run(folder)
        except ValueError as error:
            passed_over.append(f"{folder.name}: {error}")
            continue
        if run.status == "finished":
            return run
        passed_over.append(f"{folder.name}: {run.status}")
    found = "; ".join(passed_over) or "no run at all"
    raise ValueError(
        f"`runs` must hold a finished run. Received {runs}, which holds "
        f"{found}. Train one with `python train.py`, or name a run folder."
    )


def require_finished(run):
    """Raises unless the run came to its end."""
    if run.status != "finished":
        raise ValueError(
            f"`run` must be a finished run. Received {run.path}, which is "
            f"{run.status!r}. Let it finish or resume it, or export the best "
            "weights that it has so far with `--unfinished`."
        )


def trained_model(builder, arguments, weights):
    """Builds a network of this package and loads its weights.

    Args:
        builder: the name of a function of `lambdanet_tf.models`.
        arguments: dict of its keyword arguments.
        weights: path of a file that `models.load_weights` takes.

    Returns:
        A `tf.keras.Model` from images in [0, 255].

    Raises:
        ValueError: if there is no such network, it wants images that are
            normalised outside, or the weights do not fit.
    """
    builders = [name for name in models.__all__ if name[0].isupper()]
    if builder not in builders:
        near = difflib.get_close_matches(builder, builders, n=3)
        raise ValueError(
            "`builder` must be a function of lambdanet_tf.models. Received: "
            f"{builder!r}. Near: {near}."
        )
    if arguments.get("include_preprocessing") is False:
        raise ValueError(
            "`arguments` must leave normalising images to the model. Received:"
            " include_preprocessing=False."
        )
    if arguments.get("input_shape"):
        arguments = {**arguments, "input_shape": (*arguments["input_shape"],)}
    try:
        model = getattr(models, builder)(**arguments)
    except TypeError as error:
        raise ValueError(
            f"`arguments` must be those of {builder}. {error}."
        ) from error
    models.load_weights(model, weights)
    return model


def read_examples(run):
    """Returns held-out (images, labels) of `run`, or None if it kept none."""
    file = run.path / EXAMPLES_FILE
    if not file.is_file():
        return None
    with np.load(file) as arrays:
        return arrays["images"].astype("float32"), arrays["labels"]


def read_json(file):
    """Reads the JSON `file` of a run folder."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"`run` must hold a readable {RUN_FILE}. Received {file}: {error}"
        ) from error


def _parse_run(path, fields):
    """Turns the content of `run.json` into a `Run`."""
    version = fields.get("format") if isinstance(fields, dict) else None
    if version != RUN_FORMAT:
        raise ValueError(
            f"`run` must be a run folder of format {RUN_FORMAT}. Received "
            f"{path / RUN_FILE} with format {version!r}."
        )
    try:
        run = Run(
            path=path,
            weights=path / WEIGHTS_FILE,
            status=fields["status"],
            builder=fields["model"]["builder"],
            arguments=dict(fields["model"]["arguments"]),
            classes=tuple(fields["classes"]),
            image=dict(fields["image"]),
            recipe=dict(fields.get("recipe", {})),
            metrics=dict(fields.get("metrics", {})),
            versions=dict(fields.get("versions", {})),
            command=fields.get("command", ""),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"`run` must describe its model, classes and image. Received "
            f"{path / RUN_FILE}, where {error} is missing or malformed."
        ) from error
    if run.status not in STATUSES:
        raise ValueError(
            f"`status` must be one of {STATUSES}. Received {run.status!r} "
            f"from {path / RUN_FILE}."
        )
    return run
