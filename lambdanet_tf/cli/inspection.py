"""The commands `check` and `summary`."""

import argparse
import importlib
from typing import Any

from lambdanet_tf import config
from lambdanet_tf.arguments import users_input
from lambdanet_tf.config import program

_CHECK = f"""\
Names the images of a set that cannot be read, before or after a training.

  lambdanet check my/images
  lambdanet check records:/data/imagenet

exit codes: 0 all can be read; {config.EXIT_BAD} some cannot
"""
_SUMMARY = """\
Prints parameters and operations of a network, and its memory for one image.

FLOPs are the paper's: 2 per multiply-add, the scope clipped to the map.
"""


def check_parser() -> config.Parser:
    """Returns the parser of `check`."""
    parser = config.Parser(prog=program("check"), description=_CHECK)
    parser.add_argument("images", help=config.IMAGES)
    parser.add_argument(
        "--data-dir",
        metavar="FOLDER",
        help="where TensorFlow Datasets keeps its sets",
    )
    return parser


def check(given: argparse.Namespace) -> int:
    """Reads all images of a set; returns the exit code."""
    data, name = importlib.import_module("lambdanet_tf.data"), given.images
    if not data.is_image_set(name):
        name = f"folder:{name}"
    images = data.load_images(name, 0.0, given.data_dir)
    print(images.description)
    bad = 0
    for line in data.check_images(images):
        bad += 1
        print(line)
    number = sum(split.num_images for split in images.splits.values())
    print(f"{bad:,} of {number:,} images cannot be read.")
    return config.EXIT_BAD if bad else 0


def summary_parser() -> config.Parser:
    """Returns the parser of `summary`."""
    parser = config.Parser(prog=program("summary"), description=_SUMMARY)
    parser.add_argument(
        "model", help="a network of lambdanet_tf.models, or a .keras file"
    )
    parser.add_argument(
        "--model-arguments",
        type=config.json_object,
        default={},
        metavar="JSON",
        help=config.MODEL_ARGUMENTS,
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
    return parser


def summary(given: argparse.Namespace) -> int:
    """Prints what a network costs; returns the exit code."""
    with users_input():
        print(_counted(given).table(every_layer=given.layers))
    return 0


def _counted(given):
    """Returns the analysis of the network that the flags name."""
    analyze = importlib.import_module("lambdanet_tf.analysis").analyze
    if given.model.endswith(".keras"):
        keras = importlib.import_module("tensorflow").keras
        return analyze(keras.models.load_model(given.model), given.size)
    changes: dict[str, Any] = dict(given.model_arguments)
    if given.size is not None:
        changes.setdefault("input_shape", (given.size, given.size, 3))
    models = importlib.import_module("lambdanet_tf.models")
    return analyze(models.build(given.model, **changes))
