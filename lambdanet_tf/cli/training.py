"""The commands `train`, `label`, `check` and `summary`."""

import importlib.util
import os
import sys
from collections.abc import Sequence

from lambdanet_tf import config
from lambdanet_tf import training
from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import users_input
from lambdanet_tf.training.options import ON_TF_KERAS
from lambdanet_tf.training.options import LabelOptions
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import strategy_kind
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.recipes import RECIPES
from lambdanet_tf.training.recipes import listing

_IMAGES = "a folder of image files, or an image set as in train.py --data"


def train(parser: config.Parser, words: Sequence[str] | None) -> int:
    """Trains a network by a recipe.

      train.py                                  handwritten digits
      train.py --epochs 20 --learning-rate 0.1  with other settings
      train.py --data folder:my/images          your own images
      train.py --recipe cifar10                 another recipe
      train.py --dry-run --recipe cifar10       time and memory it would take
      train.py --recipe-file runs/<time>/run.json  repeat an earlier run
      train.py --run-dir runs/mine              in a folder of your choice; the
                                                same command resumes the run
      train.py --run-dir runs/mine --epochs 80  more epochs for that run

    exit codes: 0 finished; 2 usage error; 3 the loss is no longer finite;
    75 stopped by a signal, or a device was lost. To resume the run, repeat the
    command with its folder as --run-dir.
    """
    _add_flags(parser)
    given = parser.parse_args(words)
    options = RunOptions(**config.given(given, RunOptions))
    if "tensorflow" not in sys.modules:
        choose_keras(options)
    record = importlib.import_module("lambdanet_tf.training.record")
    recipe = record.recipe_to_train(
        options, given.recipe, given.recipe_file, config.given(given, Recipe)
    )
    if recipe is None:
        return 0
    tensorflow = importlib.import_module("tensorflow")
    tensorflow.keras.utils.set_random_seed(recipe.seed)
    if options.deterministic:
        tensorflow.config.experimental.enable_op_determinism()
    run = training.dry_run if given.dry_run else training.train
    run(recipe, options)
    return 0


def _add_flags(parser):
    """Adds a flag for each field of the recipe and the options."""
    parser.usage = "%(prog)s [flags]"
    names = [f"  {line}" for line in listing()]
    what = parser.add_argument_group(
        "what to train", "\n".join(["the recipes:", *names])
    )
    either = what.add_mutually_exclusive_group()
    for group, name, default, text in (
        (either, "recipe", "", "recipe (default: digits; images with --data)"),
        (either, "recipe_file", "", "JSON file of its fields, or a run.json"),
        (what, "dry_run", False, "take two steps; print size, speed, memory"),
    ):
        config.add_flag(group, name, default, text)
    config.add_flags(parser.add_argument_group("where and how"), RunOptions)
    fields = parser.add_argument_group(
        "fields of the recipe (the defaults are those of digits)"
    )
    config.add_flags(fields, Recipe, RECIPES["digits"].to_dict())


def choose_keras(options: RunOptions) -> None:
    """Chooses tf_keras where Keras 3 fails: on TPUs and several machines.

    We must choose it before we import TensorFlow.
    """
    kind = strategy_kind(options)
    chosen = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
    if kind in ON_TF_KERAS and not chosen:
        if importlib.util.find_spec("tf_keras") is None:
            raise UserError(
                f"The strategy {kind} needs tf_keras, which is not installed: "
                'pip install "lambdanet-tf[cluster]".'
            )
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        print(f"Using tf_keras, which the strategy {kind} needs, not Keras 3.")


def label(parser: config.Parser, words: Sequence[str] | None) -> int:
    """Labels images with a trained network, to train a student on them.

      lambdanet label runs/NAME my/images pseudo
      train.py --data folder:my/labelled --pseudo-labels pseudo

    If you stop it, the same command continues.
    """
    for name, text in (
        ("run", "folder of the teacher, a finished run"),
        ("images", f"{_IMAGES}, whose training images get new labels"),
        ("folder", "folder in which to write the pseudo-labels"),
    ):
        parser.add_argument(name, help=text)
    config.add_flags(parser, LabelOptions)
    given = parser.parse_args(words)
    training.label_images(
        training.RunFolder(given.run).read(),
        given.images,
        given.folder,
        LabelOptions(**config.given(given, LabelOptions)),
    )
    print(f"Wrote {given.folder}")
    return 0


def check(parser: config.Parser, words: Sequence[str] | None) -> int:
    """Lists the images of a set that cannot be read.

      lambdanet check my/images
      lambdanet check records:/data/imagenet

    exit codes: 0 all can be read; 1 some cannot; 2 usage error
    """
    parser.add_argument("images", help=_IMAGES)
    text = "folder in which TensorFlow Datasets keeps its sets"
    config.add_flag(parser, "data_dir", "", text)
    given = parser.parse_args(words)
    data, name = importlib.import_module("lambdanet_tf.data"), given.images
    if not data.is_image_set(name):
        name = f"folder:{name}"
    images = data.load_images(name, 0.0, given.data_dir or None)
    print(images.description)
    bad = 0
    for line in data.check_images(images):
        bad += 1
        print(line)
    number = sum(images.sizes.values())
    print(f"{bad:,} of {number:,} images cannot be read.")
    return config.EXIT_BAD if bad else 0


def summary(parser: config.Parser, words: Sequence[str] | None) -> int:
    """Prints parameters, operations and memory of a network.

    It counts FLOPs as the paper does: 2 per multiply-add, with the scope
    clipped to the map.
    """
    parser.add_argument(
        "model", help="a network of lambdanet_tf.models, or a .keras file"
    )
    text = 'keyword arguments of the network, such as {"classes": 10}'
    config.add_flag(parser, "model_arguments", {}, text)
    text = "height and width of the images, or length of sequences"
    config.add_flag(parser, "size", None, text, kind=int)
    config.add_flag(parser, "layers", False, "print a row for every layer")
    given = parser.parse_args(words)
    with users_input():
        print(_counted(given).table(every_layer=given.layers))
    return 0


def _counted(given):
    """Returns the analysis of the network that the flags name."""
    analyze = importlib.import_module("lambdanet_tf.analysis").analyze
    if given.model.endswith(".keras"):
        keras = importlib.import_module("tensorflow").keras
        return analyze(keras.models.load_model(given.model), given.size)
    arguments = given.model_arguments
    if given.size is not None:
        arguments = {"input_shape": (given.size, given.size, 3), **arguments}
    models = importlib.import_module("lambdanet_tf.models")
    return analyze(models.build(given.model, **arguments))
