"""The command line of train.py and lambdanet-train.

Nothing here imports TensorFlow, which takes seconds: what follows is in
`lambdanet_tf.training.launch`.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from lambdanet_tf import flags
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import number_of_workers
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.recipes import RECIPES
from lambdanet_tf.training.recipes import listing
from lambdanet_tf.training.recipes import resolve

EXIT_NOT_FINITE = 3
EXIT_STOPPED = 75  # "Temporary failure, try again" in sysexits.h.

_DESCRIPTION = """\
Trains a lambda network.

  train.py                                  handwritten digits
  train.py --epochs 20 --learning-rate 0.1  with changes
  train.py --data folder:my/images          your own images
  train.py --recipe cifar10                 another recipe
  train.py --dry-run --recipe cifar10       what that would take
  train.py --recipe-file runs/<time>/run.json  a former run again
  train.py --run runs/mine                  in a folder of your choice; the same
                                            command resumes it
  train.py --run runs/mine --epochs 80      more epochs for that run
"""
_EPILOG = f"""\
exit codes: 0 finished; {flags.EXIT_USAGE} wrong use; {EXIT_NOT_FINITE} \
the loss is no
longer finite; {EXIT_STOPPED} stopped by a signal, to be resumed with --run
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: None for those of this process.

    Returns:
        The exit code.
    """
    return flags.run(lambda: _train(arguments), program())


def make_parser() -> flags.Parser:
    """Returns the parser, with a flag for each field of recipe and options."""
    parser = flags.Parser(
        prog=program(),
        usage="%(prog)s [flags]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    names = [f"  {r.name:15}{r.summary}" for r in RECIPES.values()]
    what = parser.add_argument_group(
        "what to train",
        "\n".join(["the recipes (more with --list-recipes):", *names]),
    )
    what.add_argument(
        "--recipe",
        metavar="NAME",
        help="one of them (digits; images for --data of your own)",
    )
    what.add_argument(
        "--recipe-file",
        metavar="FILE",
        help="a JSON file of recipe fields, or the run.json of a run",
    )
    what.add_argument(
        "--list-recipes",
        action="store_true",
        help="print the commands and the results of the recipes, and exit",
    )
    what.add_argument(
        "--dry-run",
        action="store_true",
        help="report size, memory and speed without training",
    )
    flags.add(parser.add_argument_group("where and how"), RunOptions)
    fields = parser.add_argument_group(
        "fields of the recipe (in brackets: those of digits)"
    )
    flags.add(fields, Recipe, defaults=RECIPES["digits"].to_dict())
    return parser


def _train(arguments):
    """Trains, reports or lists, as the flags say; returns the exit code."""
    given = make_parser().parse(arguments)
    if given.list_recipes:
        print("\n".join(listing()))
        return 0
    if given.recipe and given.recipe_file:
        raise ValueError("Give either --recipe or --recipe-file, not both.")
    options = RunOptions(**flags.given(given, RunOptions))
    if not given.recipe_file and not options.run:
        new_recipe(given)  # What is wrong with it is said at once.
    if "tensorflow" not in sys.modules:
        choose_keras(options)
    launch = importlib.import_module("lambdanet_tf.training.launch")
    return launch.launch(given, options)


def new_recipe(given: argparse.Namespace) -> Recipe:
    """Returns the recipe of a new run that the flags ask for.

    Raises:
        ValueError: if there is no such recipe, or a value is not allowed.
    """
    changes = flags.given(given, Recipe)
    name = given.recipe or "digits"
    if not given.recipe and changes.get("data", "digits") != "digits":
        name = "images"
    return resolve(name, changes)


def choose_keras(options: RunOptions) -> None:
    """Chooses tf_keras where Keras 3 fails: on TPUs and several machines.

    It must be chosen before TensorFlow is imported.
    """
    if options.strategy in ("tpu", "multiworker"):
        reason = f"--strategy {options.strategy}"
    elif options.strategy == "auto" and options.tpu:
        reason = f"--tpu {options.tpu}"
    elif options.strategy == "auto" and number_of_workers() > 1:
        reason = "TF_CONFIG names several workers"
    else:
        return
    if os.environ.get("TF_USE_LEGACY_KERAS") not in ("1", "true", "True"):
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        print(f"{program()}: {reason}: training on tf_keras, not Keras 3.")


def program() -> str:
    """Returns what this command is called by."""
    return flags.program("train.py", "lambdanet-train")


if __name__ == "__main__":
    sys.exit(main())
