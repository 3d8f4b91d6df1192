"""The record of a run, run.json, and what must hold before a run begins."""

import dataclasses
import os
import shlex
import sys
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import lambdanet_tf
from lambdanet_tf import config
from lambdanet_tf import data
from lambdanet_tf import environment
from lambdanet_tf import files
from lambdanet_tf import runs
from lambdanet_tf.arguments import UserError
from lambdanet_tf.training.network import network_arguments
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.recipe import differences
from lambdanet_tf.training.recipe import from_dict
from lambdanet_tf.training.recipes import read_recipe
from lambdanet_tf.training.recipes import resolve
from lambdanet_tf.training.state import newest_checkpoint


def run_record(
    status: str,
    recipe: Recipe,
    options: RunOptions,
    images: data.ImageSet,
    metrics: Mapping[str, Any],
) -> runs.Run:
    """Returns what run.json holds about a run.

    Args:
        status: one of `runs.STATUSES`.
        recipe: of the run.
        options: of the run.
        images: the image set.
        metrics: that the run has reached.
    """
    size = {"height": recipe.image_size, "width": recipe.image_size}
    pixels = {"channels": images.channels, "minimum": 0, "maximum": 255}
    versions = {"lambdanet_tf": lambdanet_tf.__version__}
    return runs.Run(
        status=status,
        model=recipe.model,
        arguments=network_arguments(recipe, images),
        classes=tuple(images.classes),
        image={**size, **pixels},
        splits={name: part.num_images for name, part in images.parts.items()},
        recipe=recipe.to_dict(),
        options=dataclasses.asdict(options),
        metrics=metrics,
        versions={**versions, **environment.versions()},
        command=_command(),
    )


def _command():
    """Returns the command line of this process."""
    name = os.path.basename(sys.argv[0])
    python = ["python"] * name.endswith(".py")
    return shlex.join([*python, name, *sys.argv[1:]])


def check_prerequisites(
    recipe: Recipe, options: RunOptions, print_fn: Callable[[str], Any] = print
) -> None:
    """Raises unless the packages and file systems of a run are there.

    Without matplotlib a run makes no pictures, which is said.

    Raises:
        ImportError: naming all packages that are missing, and their extras.
        ValueError: naming a path whose file system TensorFlow does not know.
    """
    needed = {}
    if recipe.data == "digits":
        needed["sklearn"] = "data"
    if recipe.data.startswith("tfds:"):
        needed["tensorflow_datasets"] = "tfds"
    if recipe.randaugment_layers:
        needed["official"] = "garden"
    environment.require_all(needed)
    places = options.run_dir, options.runs_dir, options.data_dir
    for path in (*places, recipe.initial_weights, recipe.pseudo_labels):
        files.check_file_system(path)
    files.check_file_system(recipe.data.partition(":")[2])
    if not environment.is_there("matplotlib"):
        print_fn(
            "matplotlib is not installed: the run makes no pictures. It comes "
            f"with the extra `plot`: {environment.install_command('plot')}."
        )


def recipe_to_train(
    options: RunOptions,
    name: str | None,
    file: str | None,
    changes: Mapping[str, Any],
    print_fn: Callable[[str], Any] = print,
) -> Recipe | None:
    """Returns the recipe of a new run, or of a run to resume with changes.

    Args:
        options: which run, if it is there.
        name: of the recipe, if it was given.
        file: of the recipe, if it was given.
        changes: fields to replace.
        print_fn: is told which recipe was chosen, or that there is nothing to
            do.

    Returns:
        The recipe; None if the run has finished with it.

    Raises:
        ValueError: if there is no such run, file or recipe.
    """
    files.check_file_system(options.run_dir)
    folder, run = runs.RunFolder(options.run_dir), None
    if options.resume or (options.run_dir and folder.exists()):
        run = folder.read()
    if file:
        recipe = read_recipe(file, files.read_text(file), changes)
    elif run and not name:
        recipe = config.replace(from_dict(run.recipe), changes)
    else:
        recipe = resolve(name, changes)
        if not name and recipe.name == "images":
            print_fn(
                "Images of your own: the recipe images, at "
                f"{recipe.image_size} pixels. Another one: --recipe."
            )
    if run and run.status == "finished" and not differences(run.recipe, recipe):
        print_fn(
            f"{folder.path} is finished; there is nothing to resume. "
            f"For more epochs: --epochs, above {recipe.epochs}."
        )
        return None
    return recipe


def checkpoint_to_resume(folder: runs.RunFolder, recipe: Recipe) -> str:
    """Returns the newest checkpoint of a run, or "" if it begins.

    Args:
        folder: of the run.
        recipe: the recipe that was asked for; it may have more epochs, and its
            data another place.

    Raises:
        ValueError: if the run is of another recipe or Keras, has failed, or has
            weights, but no checkpoint.
    """
    if not folder.exists():
        return ""
    run = folder.read()
    changed = differences(run.recipe, recipe)
    if recipe.epochs > run.recipe.get("epochs", 0):
        changed.pop("epochs", None)
    before, after = (x.partition(":") for x in changed.get("data", (":", ":")))
    if before[0] == after[0]:
        changed.pop("data", None)
    if changed:
        texts = [f"{k} is {v!r}, not {w!r}" for k, (v, w) in changed.items()]
        raise UserError(
            f"{folder.path} was begun with another recipe: {'; '.join(texts)}. "
            "Resume it without these changes, or choose another folder. (Only "
            "`epochs` can grow.)"
        )
    theirs, value = str(run.versions.get("keras")), int(environment.KERAS_3)
    if theirs.startswith("keras 3") != environment.KERAS_3:
        raise UserError(
            f"{run.folder} was begun with {theirs}; this is "
            f"{environment.keras_version()}. Resume it with the environment "
            f"variable TF_USE_LEGACY_KERAS={value}."
        )
    if run.status == "failed":
        raise UserError(
            f"{run.folder} has failed and would fail again. "
            f"{run.metrics.get('reason', '')} Begin a new run: --recipe-file "
            f"{folder.file(runs.RUN_FILE)}"
        )
    checkpoint = newest_checkpoint(folder.file(runs.CHECKPOINTS))
    if not checkpoint and folder.exists(runs.WEIGHTS_FILE):
        raise UserError(
            f"{folder.path} has weights, but no checkpoint to resume from. Put "
            f"back {folder.file(runs.CHECKPOINTS)}, or begin a run in another "
            f"folder with --initial-weights {folder.path}."
        )
    return checkpoint


def check_same_images(run: runs.Run, images: data.ImageSet) -> None:
    """Raises a ValueError unless classes and sizes are those of a run.

    Else outputs would belong to other classes, or images that were tested would
    be trained on.
    """
    sizes = {name: part.num_images for name, part in images.parts.items()}
    for what, before, now in (
        ("classes", run.classes, tuple(images.classes)),
        ("numbers of images", dict(run.splits), sizes),
    ):
        if before != now:
            raise UserError(
                f"{run.folder} was begun with other {what}: {before}, not "
                f"{now}. Resume it with the former images, or choose another "
                "folder. --initial-weights takes its weights there, but images "
                "that it was trained on may be test images then."
            )
