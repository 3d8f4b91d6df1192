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
from lambdanet_tf.data.names import split_options
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import number_of_workers
from lambdanet_tf.training.progress import count
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.recipe import differences
from lambdanet_tf.training.recipe import from_dict
from lambdanet_tf.training.recipes import read_recipe
from lambdanet_tf.training.recipes import resolve

_MAIN = os.path.join("lambdanet_tf", "__main__.py")


def run_record(
    status: str,
    recipe: Recipe,
    options: RunOptions,
    images: data.ImageSet,
    arguments: Mapping[str, Any],
    metrics: Mapping[str, Any],
) -> runs.Run:
    """Returns what run.json holds about a run.

    Args:
        status: one of `runs.STATUSES`.
        recipe: of the run.
        options: of the run.
        images: the image set.
        arguments: of the network's builder.
        metrics: what it has reached.
    """
    size = {"height": recipe.image_size, "width": recipe.image_size}
    pixels = {"channels": images.channels, "minimum": 0, "maximum": 255}
    versions = {
        "lambdanet_tf": lambdanet_tf.__version__,
        **environment.versions(),
    }
    return runs.Run(
        status=status,
        model=recipe.model,
        arguments=arguments,
        classes=tuple(images.classes),
        image={**size, **pixels},
        parts=runs.part_sizes(images),
        recipe=recipe.to_dict(),
        options=dataclasses.asdict(options),
        metrics=metrics,
        versions=versions,
        command=_command(),
    )


def check_prerequisites(
    recipe: Recipe,
    options: RunOptions,
    needs_data: bool = True,
    print_fn: Callable[[str], Any] = print,
) -> None:
    """Raises unless the packages and file systems of a run are there.

    Without matplotlib a run makes no pictures, which is said.

    Args:
        recipe: of the run.
        options: of the run.
        needs_data: whether the images must be there; a dry run does without.
        print_fn: shows a line of text.

    Raises:
        ImportError: naming all packages that are missing, and their extras.
        ValueError: naming a path whose file system TensorFlow does not know, or
            what is wrong with TF_CONFIG.
    """
    number_of_workers()  # Where TF_CONFIG is wrong, that is said at once.
    needed = {}
    if needs_data and recipe.data == "digits":
        needed["sklearn"] = "data"
    if needs_data and recipe.data.startswith("tfds:"):
        needed["tensorflow_datasets"] = "tfds"
    if recipe.randaugment_layers:
        needed["official"] = "garden"
    environment.require_all(needed)
    _, _, place = recipe.data.partition(":")
    for path in (
        options.run_dir,
        options.runs_dir,
        options.data_dir,
        recipe.initial_weights,
        recipe.pseudo_labels,
        place,
    ):
        files.check_file_system(path)
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
    folder, run, recorded = runs.RunFolder(options.run_dir), None, None
    if options.resume or (options.run_dir and folder.exists()):
        run = folder.read()
        recorded = from_dict(run.recipe)
    if file:
        recipe = read_recipe(file, files.read_text(file), changes)
    elif recorded and not name:
        recipe = config.replace(recorded, changes)
    else:
        recipe = resolve(name, changes)
        if not name and recipe.name == "images":
            print_fn(
                "Images of your own: the recipe images, at "
                f"{recipe.image_size} pixels. Another one: --recipe."
            )
    is_finished = run is not None and run.status == "finished"
    if recorded and is_finished and not differences(recorded, recipe):
        print_fn(
            f"{folder.path} is finished; there is nothing to resume. "
            f"For more epochs: --epochs, above {recorded.epochs}."
        )
        return None
    return recipe


def check_resumable(
    folder: runs.RunFolder,
    recipe: Recipe,
    print_fn: Callable[[str], Any] = print,
) -> None:
    """Raises unless a folder has no run, or one that can be resumed.

    Args:
        folder: of the run.
        recipe: the recipe that was asked for; it may have more epochs.
        print_fn: is told how the learning rate goes on then.

    Raises:
        ValueError: if the run is of another recipe or Keras, or has failed.
    """
    if not folder.exists():
        return
    run = folder.read()
    changed = differences(from_dict(run.recipe), recipe)
    before, after = changed.pop("epochs", (0, 0))
    if _may_be_moved(*changed.get("data", ("", ""))):
        del changed["data"]  # `check_same_images` compares the images.
    if after < before:
        changed["epochs"] = (before, after)
    if changed:
        texts = [
            f"{name} is {old!r}, not {new!r}"
            for name, (old, new) in changed.items()
        ]
        raise UserError(
            f"{folder.path} was begun with another recipe: {'; '.join(texts)}. "
            "Resume it without these changes, or choose another folder. (Only "
            "`epochs` can grow.)"
        )
    _check_same_keras(run)
    _check_not_failed(run)
    if after > before:
        print_fn(
            f"Resuming {folder.path} with {count(after, 'epoch')} in place of "
            f"{before}: from here on the learning rate is that of a run of "
            f"{count(after, 'epoch')} ({recipe.schedule})."
        )


def check_same_images(folder: runs.RunFolder, images: data.ImageSet) -> None:
    """Raises if the images are not those that a run was begun with.

    The network's outputs would belong to other classes, or images that were
    tested would be trained on.

    Args:
        folder: of the run; nothing is checked where it is new.
        images: as they are now.

    Raises:
        ValueError: if the classes or the sizes of the parts differ.
    """
    if not folder.exists():
        return
    what = runs.changed_images(folder.read(), images)
    if what:
        raise UserError(
            f"{folder.path} was begun with other images than {images.name} has "
            f"now. What differs is the {what}. Resume it with the former "
            "images, or choose another folder. --initial-weights takes its "
            "weights there, but images that it was trained on may be test "
            "images then."
        )


def _may_be_moved(before, after):
    """Whether two names of image sets differ in their places alone."""
    (kind, place), (now, new) = (x.partition(":")[::2] for x in (before, after))
    options = split_options(kind, place)[1], split_options(now, new)[1]
    return kind == now and bool(new) and options[0] == options[1]


def _check_same_keras(run):
    """A checkpoint is of one Keras; only its weights move to the other."""
    theirs = str(run.versions.get("keras", ""))
    if theirs.startswith("keras 3") != environment.KERAS_3:
        value = "0" if theirs.startswith("keras 3") else "1"
        raise UserError(
            f"{run.folder} was begun with {theirs}; this is "
            f"{environment.keras_version()}. Resume it with the environment "
            f"variable TF_USE_LEGACY_KERAS={value}."
        )


def _check_not_failed(run):
    """A run whose loss was not finite would fail again."""
    if run.status == "failed":
        raise UserError(
            f"{run.folder} has failed and would fail again. "
            f"{run.metrics.get('reason', '')} Begin a new run: --recipe-file "
            f"{os.path.join(run.folder, runs.RUN_FILE)}"
        )


def _command():
    """The command line of this process, as a person would type it."""
    folder, name = os.path.split(sys.argv[0])
    if name == "train.py":
        return shlex.join(["python", name, *sys.argv[1:]])
    if name.startswith("lambdanet"):
        return shlex.join([name, *sys.argv[1:]])
    if os.path.join(os.path.basename(folder), name) == _MAIN:
        return shlex.join(["python", "-m", "lambdanet_tf", *sys.argv[1:]])
    return "lambdanet_tf.training.train"
