"""From the flags of train.py to a run: which recipe, and how it ends."""

import argparse
import os
import sys

import tensorflow as tf

from lambdanet_tf import flags
from lambdanet_tf import runs
from lambdanet_tf.files import check_file_system
from lambdanet_tf.training.cli import EXIT_NOT_FINITE
from lambdanet_tf.training.cli import EXIT_STOPPED
from lambdanet_tf.training.cli import new_recipe
from lambdanet_tf.training.cli import program
from lambdanet_tf.training.dry_run import dry_run
from lambdanet_tf.training.loop import train
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import number_of_workers
from lambdanet_tf.training.preemption import NotFinite
from lambdanet_tf.training.preemption import Stopped
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.recipe import differences
from lambdanet_tf.training.recipes import read_recipe
from lambdanet_tf.training.record import recorded_recipe

_RESTARTS = "LAMBDANET_TF_RESTARTS"
_MOST_RESTARTS = 100
# What TensorFlow raises in the others when a worker is lost depends on what
# they were waiting for.
_LOST_WORKER = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
    tf.errors.UnknownError,
)


def launch(given: argparse.Namespace, options: RunOptions) -> int:
    """Trains, or reports what that would take; returns the exit code.

    Args:
        given: the flags.
        options: those of them that are not fields of the recipe.

    Raises:
        ValueError: if the flags contradict each other or the run to resume.
        ImportError: if an optional package is missing.
        OSError: if a folder cannot be written.
    """
    recipe = chosen_recipe(given, options)
    if recipe is None:
        return 0
    try:
        (dry_run if given.dry_run else train)(recipe, options)
    except Stopped as stopped:
        print(f"\n{program()}: {stopped}", file=sys.stderr)
        return EXIT_STOPPED
    except NotFinite as error:
        print(f"\n{program()}: {error}", file=sys.stderr)
        return EXIT_NOT_FINITE
    except _LOST_WORKER as error:
        if number_of_workers() < 2:
            raise
        start_again(error)
    return 0


def chosen_recipe(
    given: argparse.Namespace, options: RunOptions
) -> Recipe | None:
    """Returns the recipe that the flags ask for, or that of the run to resume.

    Returns:
        None if the run is finished and nothing more is asked for.

    Raises:
        ValueError: if the flags are wrong.
    """
    check_file_system(options.run)
    folder = runs.RunFolder(options.run)
    if options.resume or (options.run and folder.exists()):
        run = folder.read()
        recorded = recorded_recipe(run)
        recipe = _changed_recipe(given, recorded)
        if run.status == "finished" and not differences(recorded, recipe):
            print(
                f"{options.run} is finished; there is nothing to resume. For "
                f"more epochs: --epochs, above {recorded.epochs}."
            )
            return None
        return recipe
    recipe = _changed_recipe(given)
    if recipe.name == "images" and not given.recipe and not given.recipe_file:
        print(
            "Images of your own: the recipe images, at "
            f"{recipe.image_size} pixels. Another one: --recipe."
        )
    return recipe


def start_again(error: Exception) -> None:
    """Replaces this process by a new one with the same command line.

    When one of several workers is lost, TensorFlow cannot go on without it in
    the same process. The new one resumes from the last checkpoint as soon as
    the lost worker is back.

    Args:
        error: what TensorFlow said.

    Raises:
        OSError: if this has happened too often.
    """
    count = int(os.environ.get(_RESTARTS, "0")) + 1
    if count > _MOST_RESTARTS:
        raise OSError(
            f"Other workers were lost {_MOST_RESTARTS} times. The last error: "
            f"{error}"
        ) from error
    os.environ[_RESTARTS] = str(count)
    reason = str(error).split("Additional", maxsplit=1)[0].strip()
    print(
        f"\n{program()}: starting again: {reason}", file=sys.stderr, flush=True
    )
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _changed_recipe(given, recorded=None):
    """The recipe of the flags; without a name, the recorded one changed."""
    changes = flags.given(given, Recipe)
    if given.recipe_file:
        path = given.recipe_file
        check_file_system(path)
        if not tf.io.gfile.exists(path):
            raise ValueError(f"There is no file {path!r}.")
        with tf.io.gfile.GFile(path, "rb") as stream:
            text = stream.read().decode()
        return flags.replace(read_recipe(path, text), changes)
    if recorded is None or given.recipe:
        return new_recipe(given)
    return flags.replace(recorded, changes)
