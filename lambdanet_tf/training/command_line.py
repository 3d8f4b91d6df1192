"""The command line of train.py: flags to a recipe and its options."""

import argparse
import dataclasses
import sys

import tensorflow as tf

from lambdanet_tf.training import recipes
from lambdanet_tf.training.loop import RunOptions
from lambdanet_tf.training.loop import train

_DESCRIPTION = """\
Trains a lambda network.

  python train.py                                  handwritten digits
  python train.py --epochs 20 --learning-rate 0.1  with changes
  python train.py --recipe-file runs/<time>/run.json  a former run again
"""


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
        train(chosen_recipe(flags), chosen_options(flags))
    except (ValueError, ImportError, OSError) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    return 0


def make_parser():
    """The flags of train.py, one for each recipe field among them."""
    parser = argparse.ArgumentParser(
        prog="train.py",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = parser.add_argument_group("what to train")
    what.add_argument(
        "--recipe",
        metavar="NAME",
        help=f"one of {', '.join(recipes.RECIPES)} (digits)",
    )
    what.add_argument(
        "--recipe-file",
        metavar="FILE",
        help="a JSON file of recipe fields, or the run.json of a run",
    )
    where = parser.add_argument_group("where and how")
    where.add_argument(
        "--runs", default="runs", metavar="FOLDER", help="folder of all runs"
    )
    where.add_argument(
        "--steps-per-execution",
        type=int,
        default=1,
        metavar="N",
        help="steps of one call to the device (1)",
    )
    where.add_argument(
        "--jit-compile", action="store_true", help="compile the step with XLA"
    )
    fields = parser.add_argument_group(
        "fields of the recipe (in brackets: the default recipe's)"
    )
    defaults = recipes.resolve("digits").to_dict()
    for field in dataclasses.fields(recipes.Recipe):
        if field.name != "name":
            fields.add_argument(
                _flag(field.name),
                metavar=recipes.field_type(field).__name__.upper(),
                help=f"{field.metadata['help']} ({defaults[field.name]})",
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
        f"{recipes.nearest(given.replace('_', '-'), known)} "
        "See: python train.py --help"
    )


def chosen_recipe(flags):
    """The recipe that the flags describe."""
    overrides = {
        field.name: getattr(flags, field.name)
        for field in dataclasses.fields(recipes.Recipe)
        if getattr(flags, field.name, None) is not None
    }
    if flags.recipe_file is None:
        return recipes.resolve(flags.recipe or "digits", overrides)
    if flags.recipe is not None:
        raise ValueError("Give either --recipe or --recipe-file, not both.")
    if not tf.io.gfile.exists(flags.recipe_file):
        raise ValueError(f"There is no file {flags.recipe_file!r}.")
    with tf.io.gfile.GFile(flags.recipe_file, "rb") as stream:
        text = stream.read().decode()
    return recipes.replace(recipes.read(flags.recipe_file, text), overrides)


def chosen_options(flags):
    """The options that the flags describe."""
    return RunOptions(
        runs=flags.runs,
        steps_per_execution=flags.steps_per_execution,
        jit_compile=flags.jit_compile,
    )


def _flag(name):
    return "--" + name.replace("_", "-")
