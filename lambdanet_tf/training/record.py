"""The record of a run, run.json, and what must hold before a run begins."""

import contextlib
import dataclasses
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

import lambdanet_tf
from lambdanet_tf import config
from lambdanet_tf import data
from lambdanet_tf import environment
from lambdanet_tf import files
from lambdanet_tf import runs
from lambdanet_tf.analysis import trainable_parameters
from lambdanet_tf.arguments import UserError
from lambdanet_tf.training import devices
from lambdanet_tf.training.batches import InputPipeline
from lambdanet_tf.training.network import network_arguments
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.progress import count
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.recipe import differences
from lambdanet_tf.training.recipe import from_dict
from lambdanet_tf.training.recipes import read_recipe
from lambdanet_tf.training.recipes import resolve
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.state import newest_checkpoint


@contextlib.contextmanager
def written_folder(options: RunOptions) -> Iterator[runs.RunFolder]:
    """Yields the folder of this process: only the chief has the run folder."""
    if not devices.is_chief():
        with tempfile.TemporaryDirectory() as temporary:
            yield runs.RunFolder(temporary)
        return
    folder = runs.RunFolder(options.run_dir)
    if not options.run_dir:
        folder = runs.RunFolder.new(options.runs_dir)
    with folder.claim():
        yield folder


def run_record(
    status: str,
    recipe: Recipe,
    options: RunOptions,
    images: data.ImageSet,
    metrics: Mapping[str, Any],
) -> runs.Run:
    """Returns what run.json holds about a run."""
    size = {"height": recipe.image_size, "width": recipe.image_size}
    pixels = {"channels": images.channels, "minimum": 0, "maximum": 255}
    own = {"lambdanet_tf": lambdanet_tf.__version__}
    return runs.Run(
        status=status,
        model=recipe.model,
        arguments=network_arguments(recipe, images),
        classes=tuple(images.classes),
        image={**size, **pixels},
        splits={name: x.num_images for name, x in images.splits.items()},
        recipe=recipe.to_dict(),
        options=dataclasses.asdict(options),
        metrics=metrics,
        versions={**own, **environment.versions()},
        command=_command(),
    )


def plan(
    recipe: Recipe, pipeline: InputPipeline, model: tf.keras.Model, folder: str
) -> str:
    """Returns the first lines of a run."""
    images = pipeline.images
    height, width = model.get_layer("pool").input.shape[1:3]
    largest = ""
    if isinstance(images.train, data.IndexedSource):
        counts = np.bincount(images.train.columns["label"])
        name = images.classes[counts.argmax()]
        largest = f" The largest class, {name}, has "
        largest += f"{counts.max() / counts.sum():.1%} of them."
    return (
        f"Recipe {recipe.name}, {recipe.model} at {recipe.image_size} pixels: "
        f"{trainable_parameters(model):,} trainable parameters, last map "
        f"{height}x{width}; {environment.keras_version()}, TensorFlow "
        f"{tf.__version__}, {devices.describe(pipeline.strategy)}\n"
        f"{images.description}{largest}\n{count(recipe.epochs, 'epoch')} of "
        f"{count(pipeline.steps_per_epoch, 'step')}, "
        f"{count(recipe.batch_size, 'image')} each; run folder {folder}"
    )


def final_metrics(
    state: TrainState, pipeline: InputPipeline, test: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns what run.json says of the best weights, from a test of them."""
    best, splits = dict(state.best or {}), pipeline.images.splits
    seen = {"test": test["images"], "validation": best.get("validation_images")}
    return {
        "best_epoch": best["epoch"],
        **{("test_images" if k == "images" else k): v for k, v in test.items()},
        **{k: v for k, v in best.items() if k.startswith("validation")},
        "bad_images": sum(
            splits[name].num_images - images
            for name, images in seen.items()
            if images is not None
        ),
        "parameters": trainable_parameters(state.model),
        "seconds": state.seconds,
        "images_per_second": state.rows[-1]["images_per_second"],
        "device": devices.describe(pipeline.strategy),
    }


def _command():
    """Returns the command line of this process."""
    name = os.path.basename(sys.argv[0])
    if name == "__main__.py":
        name = "lambdanet"
    python = ["python"] * name.endswith(".py")
    return shlex.join([*python, name, *sys.argv[1:]])


def check_prerequisites(
    recipe: Recipe, options: RunOptions, print_fn: Callable[[str], Any] = print
) -> None:
    """Raises unless TensorFlow knows the file systems of a run.

    Without matplotlib a run makes no pictures, which is said.
    """
    places = options.run_dir, options.runs_dir, options.data_dir
    place = recipe.data.partition(":")[2]
    for path in (*places, recipe.initial_weights, recipe.pseudo_labels, place):
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
    """Returns the recipe of a command: of a new run, or of one to resume.

    It returns None, and says so, if the run has finished with this recipe.
    """
    files.check_file_system(options.run_dir)
    folder, run = runs.RunFolder(options.run_dir), None
    if options.resume or (options.run_dir and folder.exists()):
        run = folder.read()
    if file:
        recipe = read_recipe(file, files.read_text(file), changes)
    elif run and not name:
        recipe = from_dict(run.recipe)
        # What the flags leave out is what the run has.
        arguments = changes.get("model_arguments", {})
        arguments = {**recipe.model_arguments, **arguments}
        changes = {**changes, "model_arguments": arguments}
        recipe = config.replace(recipe, changes)
    else:
        recipe = resolve(name, changes)
    if run and run.status == "finished" and not differences(run.recipe, recipe):
        print_fn(
            f"{folder.path} is finished; there is nothing to resume. "
            f"For more epochs: --epochs, above {recipe.epochs}."
        )
        return None
    return recipe


def checkpoint_to_resume(folder: runs.RunFolder, recipe: Recipe) -> str:
    """Returns the newest checkpoint of a run, or "" if it begins.

    Only the number of epochs may differ from the recipe that the run was begun
    with, and the place of its data.
    """
    if not folder.exists():
        return ""
    run = folder.read()
    changed = differences(run.recipe, recipe)
    kinds = [x.partition(":")[0] for x in changed.get("data", ())]
    if len(set(kinds)) == 1:
        del changed["data"]
    if "epochs" in changed and changed["epochs"][0] < recipe.epochs:
        del changed["epochs"]
    theirs = str(run.versions.get("keras"))
    checkpoint = newest_checkpoint(folder.file(runs.CHECKPOINTS))
    reason = ""
    if changed:
        texts = (f"{k} is {v!r}, not {w!r}" for k, (v, w) in changed.items())
        reason = (
            f"was begun with another recipe: {'; '.join(texts)}. Resume it "
            "without these changes, or choose another folder. (Only `epochs` "
            "can grow.)"
        )
    elif theirs.startswith("keras 3") != environment.KERAS_3:
        reason = (
            f"was begun with {theirs}; this is {environment.keras_version()}. "
            "Resume it with the environment variable TF_USE_LEGACY_KERAS="
            f"{int(environment.KERAS_3)}."
        )
    elif not checkpoint and folder.exists(runs.WEIGHTS_FILE):
        reason = (
            "has weights, but no checkpoint to resume from. Put back "
            f"{folder.file(runs.CHECKPOINTS)}, or begin a run in another "
            f"folder with --initial-weights {folder.path}."
        )
    if reason:
        raise UserError(f"{folder.path} {reason}")
    return checkpoint


def check_same_images(run: runs.Run, images: data.ImageSet) -> None:
    """Raises a ValueError unless classes and sizes are those of a run.

    Else outputs would belong to other classes, or images that were tested would
    be trained on.
    """
    sizes = {name: x.num_images for name, x in images.splits.items()}
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
