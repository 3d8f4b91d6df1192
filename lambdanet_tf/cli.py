"""The command line: `lambdanet train`, or `python -m lambdanet_tf train`.

`train.py` and `export.py` are two of its commands. Each command is a function
of a parser, to which it adds its flags, and of the words to parse; its
docstring is its help. Nothing here imports TensorFlow, which takes seconds,
before the flags are read.
"""

import argparse
import dataclasses
import importlib
import inspect
import os
import signal
import sys
from collections.abc import Sequence

from lambdanet_tf import config
from lambdanet_tf import serving
from lambdanet_tf import training
from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.arguments import users_input
from lambdanet_tf.serving.options import FORMATS
from lambdanet_tf.serving.options import ExportOptions
from lambdanet_tf.training.options import LabelOptions
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import choose_keras

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
        options,
        given.recipe,
        given.recipe_file,
        config.given(given, training.Recipe),
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
    recipes = training.RECIPES
    width = max(map(len, recipes)) + 2
    lines = [f"  {x.name:{width}}{x.summary}" for x in recipes.values()]
    what = parser.add_argument_group(
        "what to train", "\n".join(["the recipes:", *lines])
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
    config.add_flags(fields, training.Recipe, recipes["digits"].to_dict())


def export(parser: config.Parser, words: Sequence[str] | None) -> int:
    """Exports a trained network for TF Serving, and verifies the export.

      export.py                          the newest finished run
      export.py --run-dir runs/mine      another run
      export.py --formats tflite onnx    also files for other runtimes

    exit codes: 0 exported; 1 the export differs from Keras; 2 usage error
    """
    for name, default, text in (
        ("run_dir", "", "folder of the run (default: the newest finished)"),
        ("runs_dir", "runs", "folder that contains all runs"),
        ("unfinished", False, "export a run that has not finished"),
        ("destination", "exported", "folder in which to write NAME/VERSION"),
        ("name", "", "name on the server (default: the network's)"),
    ):
        config.add_flag(parser, name, default, text)
    text = "version of the export (default: the next one)"
    config.add_flag(parser, "version", None, text, kind=int)
    config.add_flags(parser, ExportOptions)
    parser.add_argument(
        "--formats",
        nargs="+",
        choices=tuple(FORMATS),
        default=(),
        metavar="NAME",
        help="files for other runtimes: tflite, onnx (extra `onnx`)",
    )
    given = parser.parse_args(words)
    changes = config.given(given, ExportOptions) | {"formats": given.formats}
    runs = importlib.import_module("lambdanet_tf.runs")
    if given.run_dir:
        run = runs.RunFolder(given.run_dir).read()
    else:
        run = runs.newest_run(given.runs_dir, given.unfinished)
    print(f"Exporting {run.weights}")
    folder = serving.export_run(
        run,
        given.destination,
        given.name or None,
        given.version,
        serving.options_for(run, **changes),
        given.unfinished,
    )
    print(f"Wrote {folder}")
    return _compare(folder)


def _compare(folder):
    """Compares an export with Keras; returns the exit code."""
    result = serving.verify_export(folder)
    print(result)
    return 0 if result.agrees else config.EXIT_BAD


def _add_export(parser):
    parser.add_argument(
        "export",
        nargs="?",
        default="exported",
        help="folder exported/NAME/VERSION, or a folder above it for its "
        "newest export (default: exported)",
    )


def verify(parser: config.Parser, words: Sequence[str] | None) -> int:
    """Compares an export with the outputs that Keras computed for it.

    exit codes: 0 the same; 1 it differs; 2 it does not load, or usage error
    """
    _add_export(parser)
    given = parser.parse_args(words)
    folder = serving.newest_export(given.export)
    print(f"Verifying {folder}")
    return _compare(folder)


def predict(parser: config.Parser, words: Sequence[str] | None) -> int:
    """Prints the most likely classes of image files, by an export.

      lambdanet predict exported/NAME/1 cat.jpg dog.png
      lambdanet predict exported/NAME/1 my/images --csv > classes.csv
      lambdanet predict     the test image in the newest export

    exit codes: 0 all were read; 1 some cannot be read; 2 usage error
    """
    _add_export(parser)
    parser.add_argument(
        "files", nargs="*", help="image files, or folders of image files"
    )
    config.add_flag(parser, "top", 5, "number of classes to print")
    text = "print CSV: the file, then each class and its probability"
    config.add_flag(parser, "csv", False, text)
    given = parser.parse_args(words)
    folder, bad = serving.newest_export(given.export), False
    example = os.path.join(folder, serving.EXAMPLE_IMAGE)
    files = serving.image_files(given.files or [example])
    for found in serving.predict_files(folder, files, given.top):
        if found.error:
            bad = True
            print(f"{found.file}: {found.error}", file=sys.stderr)
        else:
            print(found.csv() if given.csv else found)
    return config.EXIT_BAD if bad else 0


def serve(parser: config.Parser, words: Sequence[str] | None) -> int:
    """Serves an export on this machine with TF Serving's REST API, for trials.

      lambdanet serve exported/NAME/1
      curl http://localhost:8501/v1/models/NAME

    Press Ctrl-C to stop it.
    """
    _add_export(parser)
    config.add_flag(parser, "port", 8501, "port of the server")
    given = parser.parse_args(words)
    serving.serve(serving.newest_export(given.export), given.port)
    return 0


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
    print(f"Wrote {given.folder}. To find test images of DATA in it:")
    print(f"lambdanet check DATA --pseudo-labels {given.folder}")
    return 0


def check(parser: config.Parser, words: Sequence[str] | None) -> int:
    """Lists images of a set that cannot be read, or are in two splits.

      lambdanet check my/images
      lambdanet check records:/data/imagenet
      lambdanet check my/labelled --pseudo-labels my/pseudo

    exit codes: 0 there are none; 1 there are some; 2 usage error
    """
    parser.add_argument("images", help=_IMAGES)
    text = "pseudo-labels to check in place of the training images"
    config.add_flag(parser, "pseudo_labels", "", text)
    config.add_flag(parser, "validation_split", 0.1, "as in train.py")
    given = parser.parse_args(words)
    data, name = importlib.import_module("lambdanet_tf.data"), given.images
    if not data.is_image_set(name):
        name = f"folder:{name}"
    images = data.load_images(name, given.validation_split)
    if given.pseudo_labels:
        known = images.classes, images.channels
        labelled = data.read_pseudo_labels(given.pseudo_labels, *known)
        images = dataclasses.replace(images, train=labelled)
    print(images.description)
    bad = 0
    for line in data.check_images(images):
        bad += 1
        print(line)
    number = sum(images.sizes.values())
    print(f"{bad:,} of {number:,} images cannot be read, or are in two splits.")
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
        load = importlib.import_module("tensorflow").keras.models.load_model
        return analyze(load(given.model, compile=False), given.size)
    arguments = given.model_arguments
    if given.size is not None:
        arguments = {"input_shape": (given.size, given.size, 3), **arguments}
    models = importlib.import_module("lambdanet_tf.models")
    return analyze(models.build(given.model, **arguments))


_COMMANDS = {
    command.__name__: command
    for command in (
        train,
        export,
        predict,
        serve,
        verify,
        label,
        check,
        summary,
    )
}


def start(*command: str) -> int:
    """Runs a command, by default the one in the arguments of this process.

    SIGTERM ends a training with exit code 75, also before there is a run to
    save. Once the exit code is known, SIGTERM is ignored.
    """
    words = [*command, *sys.argv[1:]]
    if words[:1] != ["train"]:
        return main(words)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(75))
    try:
        return main(words)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def main(words: Sequence[str]) -> int:
    """Runs the command that the first word names; returns the exit code."""
    words = list(words)
    name = words.pop(0) if words else ""
    if name not in _COMMANDS:
        return config.run(lambda: _listing(name), "lambdanet")
    command, script = _COMMANDS[name], os.path.basename(sys.argv[0])
    parser = config.Parser(
        script if script == f"{name}.py" else f"lambdanet {name}",
        description=inspect.getdoc(command),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return config.run(lambda: command(parser, words), parser.prog)


def _listing(name):
    """Prints all commands, or refuses the name of none."""
    if name not in ("", "-h", "--help"):
        hint = did_you_mean(name, _COMMANDS)
        raise UserError(f"no command {name!r}.{hint}")
    print("usage: lambdanet COMMAND [flags]\n")
    for each, command in _COMMANDS.items():
        print(f"  {each:10}{f'{command.__doc__}'.splitlines()[0]}")
    print("\nTo list the flags: lambdanet COMMAND --help")
    return 0 if name else config.EXIT_USAGE
