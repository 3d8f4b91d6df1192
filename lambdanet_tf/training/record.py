"""The record of a run, run.json, and the checks before a run resumes."""

import dataclasses
import os
import shlex
import sys
from collections.abc import Mapping
from typing import Any

import lambdanet_tf
from lambdanet_tf import data
from lambdanet_tf import environment
from lambdanet_tf import files
from lambdanet_tf import runs
from lambdanet_tf.analysis import trainable_parameters
from lambdanet_tf.arguments import UserError
from lambdanet_tf.training.batches import InputPipeline
from lambdanet_tf.training.network import network_arguments
from lambdanet_tf.training.options import PrintFn
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.recipe import differences
from lambdanet_tf.training.recipe import from_dict
from lambdanet_tf.training.recipe import read_recipe
from lambdanet_tf.training.recipe import resolve
from lambdanet_tf.training.recipe import with_changes
from lambdanet_tf.training.report import describe
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.state import newest_checkpoint


def run_record(
    recipe: Recipe,
    options: RunOptions,
    images: data.ImageSet,
    former: runs.Run | None = None,
) -> runs.Run:
    """Returns the content of run.json for a run that begins or resumes."""
    if former:
        _check_same_images(former, images)
    own = {"lambdanet_tf": lambdanet_tf.__version__}
    name = os.path.basename(sys.argv[0])
    command = ["python", name] if name.endswith(".py") else [name]
    if name == "__main__.py":
        command = ["lambdanet"]
    return runs.Run(
        status="running",
        model=recipe.model,
        arguments=network_arguments(recipe, images),
        classes=images.classes,
        image={"channels": images.channels, "bits": images.bits},
        splits=images.sizes,
        recipe=recipe.to_dict(),
        options=dataclasses.asdict(options),
        metrics=former.metrics if former else {},
        versions={**own, **environment.versions()},
        command=shlex.join([*command, *sys.argv[1:]]),
    )


def final_metrics(
    state: TrainState, pipeline: InputPipeline, tested: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the results of the best weights for run.json."""
    best, images = state.best or {}, pipeline.images
    bad = images.test.num_images - tested["test_images"]
    if images.validation:
        bad += images.validation.num_images - best["validation_images"]
    return {
        "best_epoch": best["epoch"],
        **tested,
        **{k: v for k, v in best.items() if k.startswith("validation")},
        "bad_images": bad,
        "parameters": trainable_parameters(state.model),
        "seconds": state.seconds,
        "images_per_second": state.rows[-1]["images_per_second"],
        "device": describe(pipeline.strategy),
    }


def recipe_to_train(
    options: RunOptions,
    name: str | None,
    file: str | None,
    changes: Mapping[str, Any],
    print_fn: PrintFn = print,
) -> Recipe | None:
    """Returns the recipe for a command: of a new run, or of one to resume.

    If the run has finished with this recipe, it prints that and returns None.
    """
    folder, run = runs.RunFolder(options.run_dir), None
    if options.run_dir and folder.exists():
        run = folder.read()
    if file:
        recipe = read_recipe(file, files.read_text(file), changes)
    elif run and not name:
        recipe = with_changes(from_dict(run.recipe), changes)
    else:
        recipe = resolve(name or None, changes)
    if run and run.status == "finished" and not differences(run.recipe, recipe):
        print_fn(
            f"{folder.path} has finished, so there is nothing to resume. To "
            f"train more epochs, set --epochs above {recipe.epochs}."
        )
        return None
    return recipe


def former_run(
    recipe: Recipe, options: RunOptions
) -> tuple[runs.Run | None, str]:
    """Returns the run to resume and its newest checkpoint: None and "" if new.

    Only the number of epochs, and the place of the data, may differ from the
    recipe with which the run began.
    """
    folder = runs.RunFolder(options.run_dir)
    if not options.run_dir or not folder.exists():
        return None, ""
    run = folder.read()
    changed = differences(run.recipe, recipe)
    if len({x.partition(":")[0] for x in changed.get("data", ())}) == 1:
        del changed["data"]
    if "epochs" in changed and changed["epochs"][0] < recipe.epochs:
        del changed["epochs"]
    theirs = str(run.versions.get("keras"))
    checkpoint = newest_checkpoint(folder.file(runs.CHECKPOINTS))
    reason = ""
    if changed:
        texts = (f"{k} is {v!r}, not {w!r}" for k, (v, w) in changed.items())
        reason = (
            f"another recipe: {'; '.join(texts)}. Resume it without these "
            "changes, or choose another folder. (You can only add `epochs`.)"
        )
    elif theirs.startswith("keras 3") != environment.KERAS_3:
        reason = (
            f"{theirs}: set the environment variable TF_USE_LEGACY_KERAS="
            f"{int(environment.KERAS_3)}."
        )
    elif not checkpoint and folder.exists(runs.WEIGHTS_FILE):
        reason = (
            f"weights, but has no checkpoint now. Restore "
            f"{folder.file(runs.CHECKPOINTS)}, or start another run with "
            f"--initial-weights {folder.path}."
        )
    if reason:
        raise UserError(f"The run {folder.path} began with {reason}")
    return run, checkpoint


def _check_same_images(run: runs.Run, images: data.ImageSet) -> None:
    """Raises a ValueError unless classes and sizes are those of a run.

    Otherwise outputs could belong to other classes, or the run could train on
    test images.
    """
    before = [*run.classes], dict(run.splits)
    if before != ([*images.classes], images.sizes):
        raise UserError(
            f"The run {run.folder} began with other images, with the classes "
            f"and numbers {before}. Resume it with those images. (With its "
            "weights as --initial-weights, you may test on training images.)"
        )
