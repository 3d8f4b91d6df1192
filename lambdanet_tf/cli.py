"""The command line: `lambdanet train`, or `python -m lambdanet_tf train`.

`train.py` and `export.py`, or `lambdanet-train` and `lambdanet-export`, are two
of its commands. Nothing here imports TensorFlow, which takes seconds, before
the flags are read.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from lambdanet_tf import config
from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.arguments import users_input
from lambdanet_tf.config import EXIT_USAGE
from lambdanet_tf.config import program
from lambdanet_tf.config import run
from lambdanet_tf.training.options import LabelOptions
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import number_of_workers
from lambdanet_tf.training.preemption import NotFinite
from lambdanet_tf.training.preemption import Stopped
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.recipe import differences
from lambdanet_tf.training.recipe import from_dict
from lambdanet_tf.training.recipes import RECIPES
from lambdanet_tf.training.recipes import listing
from lambdanet_tf.training.recipes import read_recipe
from lambdanet_tf.training.recipes import resolve

EXIT_NOT_FINITE = 3
EXIT_STOPPED = 75  # "Temporary failure, try again" in sysexits.h.

_OVERVIEW = """\
usage: lambdanet COMMAND [flags]

  train     trains a network by a recipe
  export    exports a trained network for TF Serving, and verifies the export
  verify    compares an export with Keras again, with timings
  label     labels images with a trained network, for a student to train on
  check     names the images of a set that cannot be read
  summary   prints what a network costs

lambdanet COMMAND --help has the flags.
"""
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

exit codes: 0 finished; {EXIT_USAGE} wrong use; {EXIT_NOT_FINITE} the loss is \
no longer finite;
{EXIT_STOPPED} stopped by a signal, or a device was lost: the same command \
resumes it,
if it names the folder by --run-dir
"""
_LABEL = """\
Labels images with the predictions of a run, for a student to train on.

  lambdanet label runs/NAME my/images pseudo
  train.py --data folder:my/labelled --pseudo-labels pseudo

Stopped, the same command goes on where it was.
"""
_CHECK = """\
Names the images of a set that cannot be read, before or after a training.

  lambdanet check my/images
  lambdanet check records:/data/imagenet

exit codes: 0 all can be read; 1 some cannot
"""
_SUMMARY = """\
Prints parameters, operations and memory of a network.

FLOPs are the paper's: 2 per multiply-add, the scope clipped to the map.
"executed" are those of the products that TensorFlow runs with the algorithm
chosen for each layer. "activations" are the outputs of all layers, and the
queries, keys, values and position lambdas of lambda layers; "embeddings" those
of all pairs of positions, which only some algorithms hold; "table" the learned
ones. All for one image in inference.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the first argument names.

    Args:
        arguments: None for those of this process.

    Returns:
        The exit code.
    """
    name, *rest = list(sys.argv[1:] if arguments is None else arguments) or [""]
    if name in ("", "-h", "--help"):
        print(_OVERVIEW, end="")
        return EXIT_USAGE if not name else 0
    if name not in _COMMANDS:
        hint = did_you_mean(name, _COMMANDS)
        print(f"lambdanet: No command {name!r}.{hint}", file=sys.stderr)
        return EXIT_USAGE
    return _COMMANDS[name](rest)


def train(arguments: Sequence[str] | None = None) -> int:
    """Runs the command `train`; see `main`."""
    return run(lambda: _train(arguments), program("train"))


def export(arguments: Sequence[str] | None = None) -> int:
    """Runs the command `export`; see `main`."""
    return _module("serving.cli").main(arguments)


def _module(name):
    """A module of the package that imports TensorFlow."""
    return importlib.import_module(f"lambdanet_tf.{name}")


# The command `train`.


def train_parser() -> config.Parser:
    """Returns the parser, with a flag for each field of recipe and options."""
    parser = config.Parser(
        prog=program("train"), usage="%(prog)s [flags]", description=_TRAIN
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
    config.add_flags(parser.add_argument_group("where and how"), RunOptions)
    fields = parser.add_argument_group(
        "fields of the recipe (in brackets: those of digits)"
    )
    config.add_flags(fields, Recipe, defaults=RECIPES["digits"].to_dict())
    return parser


def _train(arguments):
    """Trains, reports or lists, as the flags say; returns the exit code."""
    given = train_parser().parse(arguments)
    if given.list_recipes:
        print("\n".join(listing()))
        return 0
    if given.recipe and given.recipe_file:
        raise UserError("Give either --recipe or --recipe-file, not both.")
    options = RunOptions(**config.given(given, RunOptions))
    if not given.recipe_file and not options.run_dir:
        new_recipe(given)  # What is wrong with it is said at once.
    if "tensorflow" not in sys.modules:
        choose_keras(options)
    recipe = _recipe_to_train(given, options)
    if recipe is None:
        return 0
    module, name = ("dry_run",) * 2 if given.dry_run else ("loop", "train")
    module = _module(f"training.{module}")
    try:
        getattr(module, name)(recipe, options)
    except Stopped as stopped:
        print(f"\n{program('train')}: {stopped}", file=sys.stderr)
        return EXIT_STOPPED
    except NotFinite as error:
        print(f"\n{program('train')}: {error}", file=sys.stderr)
        return EXIT_NOT_FINITE
    return 0


def _recipe_to_train(given, options):
    """The recipe of the flags or of the run to resume; None if it is done."""
    files = _module("files")
    files.check_file_system(options.run_dir)
    folder = _module("runs").RunFolder(options.run_dir)
    if options.resume or (options.run_dir and folder.exists()):
        run = folder.read()
        recorded = from_dict(run.recipe)
        recipe = _changed_recipe(given, recorded)
        if run.status == "finished" and not differences(recorded, recipe):
            print(
                f"{options.run_dir} is finished; there is nothing to resume. "
                f"For more epochs: --epochs, above {recorded.epochs}."
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


def _changed_recipe(given, recorded=None):
    """The recipe of the flags; without a name, the recorded one changed."""
    changes = config.given(given, Recipe)
    if given.recipe_file:
        files = _module("files")
        text = files.read_text(given.recipe_file)
        return config.replace(read_recipe(given.recipe_file, text), changes)
    if recorded is None or given.recipe:
        return new_recipe(given)
    return config.replace(recorded, changes)


def new_recipe(given: argparse.Namespace) -> Recipe:
    """Returns the recipe of a new run that the flags ask for."""
    changes = config.given(given, Recipe)
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
        print(
            f"{program('train')}: {reason}: training on tf_keras, not Keras 3."
        )


# The commands without a script of their own.


def _label(arguments):
    parser = config.Parser(prog="lambdanet label", description=_LABEL)
    parser.add_argument("run", help="the folder of the teacher, a finished run")
    parser.add_argument(
        "images",
        help="a folder of image files, or an image set as for --data of "
        "train.py, whose training images are labelled anew",
    )
    parser.add_argument("folder", help="where the pseudo-labels will be")
    config.add_flags(parser, LabelOptions)
    given = parser.parse(arguments)
    teacher = _module("training.teacher")
    report = teacher.label_images(
        _module("runs").RunFolder(given.run).read(),
        given.images,
        given.folder,
        LabelOptions(**config.given(given, LabelOptions)),
    )
    print(f"\n{teacher.table(report)}\n\nWrote {given.folder}")
    return 0


def _check(arguments):
    parser = config.Parser(prog="lambdanet check", description=_CHECK)
    parser.add_argument(
        "images",
        help="a folder of image files, or an image set as for --data of "
        "train.py; nothing is downloaded",
    )
    parser.add_argument(
        "--data-dir",
        metavar="FOLDER",
        help="where TensorFlow Datasets keeps its sets",
    )
    given = parser.parse(arguments)
    data, name = _module("data"), given.images
    if not data.is_image_set(name):
        name = f"folder:{name}"
    images = data.load_images(name, data_dir=given.data_dir, download=False)
    print(images.description)
    bad = 0
    for line in data.check_images(images):
        bad += 1
        print(line)
    number = sum(part.num_images for part in images.parts.values())
    print(f"{bad:,} of {number:,} images cannot be read.")
    return int(bad > 0)


def _summary(arguments):
    parser = config.Parser(prog="lambdanet summary", description=_SUMMARY)
    parser.add_argument(
        "model", help="a network of lambdanet_tf.models, or a .keras file"
    )
    parser.add_argument(
        "--model-arguments",
        type=config.json_object,
        default={},
        metavar="JSON",
        help='keyword arguments of its builder, as {"classes": 10}',
    )
    parser.add_argument(
        "--size",
        type=config.integer,
        metavar="N",
        help="height and width of the images, or length of the sequences",
    )
    parser.add_argument(
        "--layers", action="store_true", help="a row for every layer"
    )
    given = parser.parse(arguments)
    with users_input():
        print(_counted(given).table(every_layer=given.layers))
    return 0


def _counted(given):
    """The analysis of the network that the flags name."""
    analyze = _module("analysis").analyze
    if given.model.endswith(".keras"):
        keras = importlib.import_module("tensorflow").keras
        return analyze(keras.models.load_model(given.model), given.size)
    changes: dict[str, Any] = dict(given.model_arguments)
    if given.size is not None:
        changes.setdefault("input_shape", (given.size, given.size, 3))
    return analyze(_module("models").build(given.model, **changes))


_COMMANDS = {
    "train": train,
    "export": export,
    "verify": lambda arguments: export(["--verify", *arguments]),
    "label": lambda arguments: run(
        lambda: _label(arguments), "lambdanet label"
    ),
    "check": lambda arguments: run(
        lambda: _check(arguments), "lambdanet check"
    ),
    "summary": lambda arguments: run(
        lambda: _summary(arguments), "lambdanet summary"
    ),
}
