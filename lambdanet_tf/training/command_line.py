"""The command line of train.py: flags to a recipe and its options."""

import argparse
import dataclasses
import os
import sys

import tensorflow as tf

from lambdanet_tf.training import overrides
from lambdanet_tf.training.continuing import check_not_failed
from lambdanet_tf.training.continuing import check_same_keras
from lambdanet_tf.training.continuing import check_same_recipe
from lambdanet_tf.training.devices import number_of_workers
from lambdanet_tf.training.loop import train
from lambdanet_tf.training.options import STRATEGIES
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.recipes import RECIPES
from lambdanet_tf.training.recipes import Recipe
from lambdanet_tf.training.recipes import field_type
from lambdanet_tf.training.runs import RunFolder
from lambdanet_tf.training.stopping import EXIT_NOT_FINITE
from lambdanet_tf.training.stopping import EXIT_STOPPED
from lambdanet_tf.training.stopping import EXIT_USAGE
from lambdanet_tf.training.stopping import NotFinite
from lambdanet_tf.training.stopping import Stopped
from lambdanet_tf.training.trial import dry_run

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

_DESCRIPTION = """\
Trains a lambda network.

  python train.py                                  handwritten digits
  python train.py --epochs 20 --learning-rate 0.1  with changes
  python train.py --recipe cifar10                 another recipe
  python train.py --dry-run --recipe cifar10       what that would take
  python train.py --recipe-file runs/<time>/run.json  a former run again
  python train.py --run runs/mine                  in a folder of your choice;
                                                   the same command continues
                                                   it after an interruption
"""
_EPILOG = f"""\
exit codes: 0 finished; {EXIT_USAGE} wrong use; {EXIT_NOT_FINITE} the loss is no
longer a number; {EXIT_STOPPED} stopped by a signal, to be continued by --run
"""

# The flags that are no recipe fields: name, type, metavar, help.
_FLAGS = (
    ("runs", str, "FOLDER", "the folder in which every run gets its own"),
    ("run", str, "FOLDER", "the folder of this run; continued if it is there"),
    ("data-dir", str, "FOLDER", "where TensorFlow Datasets keeps its sets"),
    ("strategy", str, "KIND", f"the devices: {', '.join(STRATEGIES)}"),
    ("tpu", str, "NAME", "name or address of a TPU, or local"),
    ("replicas", int, "N", "parts of the CPU to train on, to try mirrored"),
    ("steps-per-execution", int, "N", "steps of one call to the device"),
    ("checkpoint-steps", int, "N", "steps between checkpoints (0: by epochs)"),
    ("checkpoint-epochs", int, "N", "epochs between checkpoints"),
)
_SWITCHES = (
    ("resume", "refuse to begin a new run: --run must be there"),
    ("jit-compile", "compile the step with XLA (one device)"),
    ("deterministic", "make equal runs give equal bits; slower"),
)


def main(arguments=None):
    """Runs train.py.

    Args:
        arguments: list of str, or None for those of this process.

    Returns:
        The exit code.
    """
    parser = make_parser()
    try:
        flags, unknown = parser.parse_known_args(arguments)
        refuse_unknown(parser, unknown)
        options = chosen_options(flags)
        recipe = chosen_recipe(flags, options)
        if recipe is not None:
            (dry_run if flags.dry_run else train)(recipe, options)
    except Stopped as stopped:
        print(f"\ntrain.py: {stopped}", file=sys.stderr)
        return EXIT_STOPPED
    except NotFinite as error:
        print(f"\ntrain.py: {error}", file=sys.stderr)
        return EXIT_NOT_FINITE
    except _LOST_WORKER as error:
        if number_of_workers() < 2:
            raise
        start_again(error)
    except (ValueError, ImportError, OSError) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return EXIT_USAGE
    return 0


def start_again(error):
    """Replaces this process by a new one with the same command line.

    When one of several workers is lost, TensorFlow cannot go on without it in
    the same process. The new one continues from the last checkpoint as soon as
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
    print(f"\ntrain.py: starting again: {reason}", file=sys.stderr, flush=True)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def make_parser():
    """The flags of train.py, one for each recipe field among them."""
    parser = argparse.ArgumentParser(
        prog="train.py",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = parser.add_argument_group("what to train")
    what.add_argument(
        "--recipe",
        metavar="NAME",
        help=f"one of {', '.join(RECIPES)} (digits)",
    )
    what.add_argument(
        "--recipe-file",
        metavar="FILE",
        help="a JSON file of recipe fields, or the run.json of a run",
    )
    what.add_argument(
        "--dry-run",
        action="store_true",
        help="say how large and how fast it would be; take one step; no run",
    )
    where = parser.add_argument_group("where and how")
    defaults = RunOptions()
    for name, kind, metavar, text in _FLAGS:
        value = getattr(defaults, name.replace("-", "_"))
        shown = f" ({value})" if value not in ("", 0) else ""
        where.add_argument(
            f"--{name}",
            type=kind,
            default=value,
            metavar=metavar,
            help=text + shown,
        )
    for name, text in _SWITCHES:
        where.add_argument(f"--{name}", action="store_true", help=text)
    fields = parser.add_argument_group(
        "fields of the recipe (in brackets: those of digits)"
    )
    digits = RECIPES["digits"].to_dict()
    for field in _overridable():
        fields.add_argument(
            "--" + field.name.replace("_", "-"),
            metavar=field_type(field).__name__.upper(),
            help=f"{field.metadata['help']} ({digits[field.name]})",
        )
    return parser


def refuse_unknown(parser, unknown):
    """Raises a ValueError about unknown flags, with the nearest known one."""
    if not unknown:
        return
    known = [
        option for action in parser._actions for option in action.option_strings
    ]
    given = unknown[0].split("=")[0]
    raise ValueError(
        f"Unknown argument {given!r}."
        f"{overrides.nearest(given.replace('_', '-'), known)} "
        "See: python train.py --help"
    )


def chosen_options(flags):
    """The options that the flags describe."""
    names = [field.name for field in dataclasses.fields(RunOptions)]
    return RunOptions(**{name: getattr(flags, name) for name in names})


def chosen_recipe(flags, options):
    """The recipe that the flags describe, or that of the run to continue.

    Args:
        flags: what the parser returns.
        options: `RunOptions`.

    Returns:
        A `Recipe`, or None if the run is already finished.

    Raises:
        ValueError: if the flags contradict each other or the run.
    """
    given = {
        field.name: getattr(flags, field.name)
        for field in _overridable()
        if getattr(flags, field.name) is not None
    }
    if flags.recipe and flags.recipe_file:
        raise ValueError("Give either --recipe or --recipe-file, not both.")
    recorded = _recorded(options)
    if recorded is None:
        return _fresh_recipe(flags, given)
    record, recipe = recorded
    if flags.recipe or flags.recipe_file or given:
        check_same_recipe(recipe, _fresh_recipe(flags, given), options.run)
    if record["status"] == "finished":
        print(f"{options.run} is finished; there is nothing to continue.")
        return None
    check_same_keras(record, options.run)
    check_not_failed(record, options.run)
    return recipe


def _recorded(options):
    """run.json and recipe of the run to continue, or None."""
    if not options.run:
        return None
    folder = RunFolder(options.run)
    if not folder.exists("run.json") and not options.resume:
        return None
    record = folder.read_record()
    return record, overrides.replace(Recipe(), record["recipe"])


def _fresh_recipe(flags, given):
    if not flags.recipe_file:
        return overrides.resolve(flags.recipe or "digits", given)
    if not tf.io.gfile.exists(flags.recipe_file):
        raise ValueError(f"There is no file {flags.recipe_file!r}.")
    with tf.io.gfile.GFile(flags.recipe_file, "rb") as stream:
        text = stream.read().decode()
    recipe = overrides.read_recipe(flags.recipe_file, text)
    return overrides.replace(recipe, given)


def _overridable():
    return [f for f in dataclasses.fields(Recipe) if f.name != "name"]
