"""The commands `train` and `label`."""

import argparse
import importlib.util
import os
import sys

from lambdanet_tf import config
from lambdanet_tf import training
from lambdanet_tf.arguments import UserError
from lambdanet_tf.config import program
from lambdanet_tf.training.options import ON_TF_KERAS
from lambdanet_tf.training.options import LabelOptions
from lambdanet_tf.training.options import NotFinite
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import Stopped
from lambdanet_tf.training.options import strategy_kind
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.recipes import RECIPES
from lambdanet_tf.training.recipes import listing
from lambdanet_tf.training.recipes import resolve

_TRAIN = f"""\
Trains a lambda network.

  train.py                                  handwritten digits
  train.py --epochs 20 --learning-rate 0.1  with changes
  train.py --data folder:my/images          your own images
  train.py --recipe cifar10                 another recipe
  train.py --dry-run --recipe cifar10       what that would take
  train.py --recipe-file runs/<time>/run.json  a former run again
  train.py --run-dir runs/mine              in a folder of your choice; the same
                                            command resumes it
  train.py --run-dir runs/mine --epochs 80  more epochs for that run

exit codes: 0 finished; {config.EXIT_USAGE} wrong use;
{NotFinite.exit_code} the loss is no longer finite; {Stopped.exit_code} \
stopped by a signal, or a device
was lost: the same command resumes the run, if it names the folder by --run-dir
"""
_LABEL = """\
Labels images with the predictions of a run, for a student to train on.

  lambdanet label runs/NAME my/images pseudo
  train.py --data folder:my/labelled --pseudo-labels pseudo

If you stop it, the same command goes on where it was.
"""


def train_parser() -> config.Parser:
    """Returns the parser, with a flag for each field of recipe and options."""
    parser = config.Parser(
        prog=program("train"), usage="%(prog)s [flags]", description=_TRAIN
    )
    names = [f"  {line}" for line in listing()]
    what = parser.add_argument_group(
        "what to train",
        "\n".join(["the recipes:", *names]),
    )
    recipe = what.add_mutually_exclusive_group()
    recipe.add_argument(
        "--recipe",
        metavar="NAME",
        help="one of them (digits; images for --data of your own)",
    )
    recipe.add_argument(
        "--recipe-file",
        metavar="FILE",
        help="a JSON file of recipe fields, or the run.json of a run",
    )
    what.add_argument(
        "--dry-run",
        action="store_true",
        help="set all up, take two steps, and print size, speed and memory",
    )
    config.add_flags(parser.add_argument_group("where and how"), RunOptions)
    fields = parser.add_argument_group(
        "fields of the recipe (in brackets: those of digits)"
    )
    config.add_flags(fields, Recipe, defaults=RECIPES["digits"].to_dict())
    return parser


def train(given: argparse.Namespace) -> int:
    """Trains; returns the exit code."""
    options = RunOptions(**config.given(given, RunOptions))
    changes = config.given(given, Recipe)
    if not given.recipe_file and not options.run_dir:
        resolve(given.recipe, changes)  # A wrong value is reported at once.
    if "tensorflow" not in sys.modules:
        choose_keras(options)
    record = importlib.import_module("lambdanet_tf.training.record")
    recipe = record.recipe_to_train(
        options, given.recipe, given.recipe_file, changes
    )
    if recipe is None:
        return 0
    tensorflow = importlib.import_module("tensorflow")
    tensorflow.keras.utils.set_random_seed(recipe.seed)
    if options.deterministic:
        tensorflow.config.experimental.enable_op_determinism()
    try:
        if given.dry_run:
            training.dry_run(recipe, options)
        else:
            training.train(recipe, options)
    except (NotFinite, Stopped) as error:
        print(f"\n{program('train')}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def choose_keras(options: RunOptions) -> None:
    """Chooses tf_keras where Keras 3 fails: on TPUs and several machines.

    It must be chosen before TensorFlow is imported.
    """
    kind = strategy_kind(options)
    chosen = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
    if kind in ON_TF_KERAS and not chosen:
        if importlib.util.find_spec("tf_keras") is None:
            raise UserError(
                f"Strategy {kind} trains on tf_keras, which is not installed: "
                'pip install "lambdanet-tf[cluster]".'
            )
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        print(
            f"{program('train')}: strategy {kind}: training on tf_keras, not "
            "Keras 3."
        )


def label_parser() -> config.Parser:
    """Returns the parser of `label`."""
    parser = config.Parser(prog=program("label"), description=_LABEL)
    parser.add_argument("run", help="the folder of the teacher, a finished run")
    parser.add_argument(
        "images",
        help=f"{config.IMAGES}, whose training images are labelled anew",
    )
    parser.add_argument("folder", help="where the pseudo-labels will be")
    config.add_flags(parser, LabelOptions)
    return parser


def label(given: argparse.Namespace) -> int:
    """Labels images with a run's network; returns the exit code."""
    training.label_images(
        training.RunFolder(given.run).read(),
        given.images,
        given.folder,
        LabelOptions(**config.given(given, LabelOptions)),
    )
    print(f"Wrote {given.folder}")
    return 0
