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
from lambdanet_tf.serving.options import FORMATS
from lambdanet_tf.serving.options import ExportOptions
from lambdanet_tf.serving.options import ExportTask
from lambdanet_tf.training.options import LabelOptions
from lambdanet_tf.training.options import NotFinite
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import Stopped
from lambdanet_tf.training.options import needs_tf_keras
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.recipes import RECIPES
from lambdanet_tf.training.recipes import listing
from lambdanet_tf.training.recipes import resolve

EXIT_BAD = 1
EXIT_NOT_FINITE = 3
EXIT_STOPPED = 75  # "Temporary failure, try again" in sysexits.h.

_OVERVIEW = """\
usage: lambdanet COMMAND [flags]

  train     trains a network by a recipe
  export    exports a trained network for TF Serving, and verifies the export
  verify    compares an export with Keras again
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
_EXPORT = f"""\
Exports a trained model for TF Serving, and verifies the export.

  export.py              the newest finished run
  export.py --verify     the newest export again
  export.py --predict    test images through the newest export

exit codes: 0 exported; {EXIT_BAD} the export differs from Keras;
{EXIT_USAGE} wrong use
"""
_LABEL = """\
Labels images with the predictions of a run, for a student to train on.

  lambdanet label runs/NAME my/images pseudo
  train.py --data folder:my/labelled --pseudo-labels pseudo

Stopped, the same command goes on where it was.
"""
_CHECK = f"""\
Names the images of a set that cannot be read, before or after a training.

  lambdanet check my/images
  lambdanet check records:/data/imagenet

exit codes: 0 all can be read; {EXIT_BAD} some cannot
"""
_SUMMARY = """\
Prints parameters, operations and memory of a network.

FLOPs are the paper's: 2 per multiply-add, the scope clipped to the map.
"executed" are those of the products that TensorFlow runs with the algorithm
chosen for each layer. "activations" are the outputs of all layers, and the
queries, keys, values and position lambdas of lambda layers. All for one image
in inference.
"""
_IMAGES = "a folder of image files, or an image set as for --data of train.py"


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
    return _run(name, rest)


def train(arguments: Sequence[str] | None = None) -> int:
    """Runs the command `train`; see `main`."""
    return _run("train", arguments)


def export(arguments: Sequence[str] | None = None) -> int:
    """Runs the command `export`; see `main`."""
    return _run("export", arguments)


def _run(name, arguments):
    return config.run(lambda: _COMMANDS[name](arguments), program(name))


def _module(name):
    """A module of the package that imports TensorFlow."""
    return importlib.import_module(f"lambdanet_tf.{name}")


# Training.


def train_parser() -> config.Parser:
    """Returns the parser, with a flag for each field of recipe and options."""
    parser = config.Parser(
        prog=program("train"), usage="%(prog)s [flags]", description=_TRAIN
    )
    names = [f"  {line}" for line in listing(brief=True)]
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
        help="set all up, take two steps, and print size, speed and memory",
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
    changes = config.given(given, Recipe)
    if not given.recipe_file and not options.run_dir:
        resolve(given.recipe, changes)  # What is wrong with it is said at once.
    if "tensorflow" not in sys.modules:
        choose_keras(options)
    recipe = _module("training.record").recipe_to_train(
        options, given.recipe, given.recipe_file, changes
    )
    if recipe is None:
        return 0
    name = "dry_run" if given.dry_run else "train"
    work = getattr(_module("training"), name)
    tensorflow = importlib.import_module("tensorflow")
    tensorflow.keras.utils.set_random_seed(recipe.seed)
    if options.deterministic:
        tensorflow.config.experimental.enable_op_determinism()
    try:
        work(recipe, options)
    except (NotFinite, Stopped) as error:
        print(f"\n{program('train')}: {error}", file=sys.stderr)
        return EXIT_STOPPED if isinstance(error, Stopped) else EXIT_NOT_FINITE
    return 0


def choose_keras(options: RunOptions) -> None:
    """Chooses tf_keras where Keras 3 fails: on TPUs and several machines.

    It must be chosen before TensorFlow is imported.
    """
    reason = needs_tf_keras(options)
    chosen = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
    if reason and not chosen:
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        print(
            f"{program('train')}: {reason}: training on tf_keras, not Keras 3."
        )


# Exports.


def export_parser() -> config.Parser:
    """Returns the parser of `export`."""
    parser = config.Parser(
        prog=program("export"), usage="%(prog)s [flags]", description=_EXPORT
    )
    action = parser.add_mutually_exclusive_group()
    for flag, text in (
        ("--verify", "compare an export with what Keras computed"),
        ("--predict", "print the predictions of an export"),
    ):
        action.add_argument(
            flag,
            nargs="?",
            const="",
            metavar="FOLDER",
            help=f"{text} (the newest)",
        )
    config.add_flags(
        parser.add_argument_group("what to export, and where"), ExportTask
    )
    how = parser.add_argument_group("how")
    config.add_flags(
        how, ExportOptions, defaults={"evaluation_crop": "the run's, or 1"}
    )
    how.add_argument(
        "--formats",
        nargs="+",
        choices=tuple(FORMATS),
        default=argparse.SUPPRESS,
        metavar="NAME",
        help="files for other runtimes: tflite, onnx (extra `onnx`)",
    )
    return parser


def _export(arguments):
    """Exports, verifies or predicts, as the flags say; the exit code."""
    given = export_parser().parse(arguments)
    _check_alone(given)
    task = ExportTask(**config.given(given, ExportTask))
    changes = config.given(given, ExportOptions)
    if "formats" in given:
        changes["formats"] = given.formats
    serving = _module("serving")
    if given.verify is not None or given.predict is not None:
        folder = given.verify or given.predict
        return _look_at(
            folder or serving.newest_export(task.destination),
            given.predict is not None,
        )
    run = _run_to_export(task)
    options = serving.options_for(run, **changes)
    if not _module("environment").is_there("tensorflow_serving"):
        print("Without the extra `serving` there are no warm-up requests.")
    print(f"Exporting {run.weights}")
    folder = serving.export_run(
        run,
        task.destination,
        task.name or None,
        task.version,
        options,
        unfinished=task.unfinished,
    )
    print(f"Wrote {folder}")
    return _verify(folder)


def _check_alone(given):
    """Raises if flags of an export were given to --verify or --predict."""
    if given.verify is None and given.predict is None:
        return
    names = vars(given).keys() - {
        *("verify", "predict", "destination", "runs_dir")
    }
    flags = [f"--{name.replace('_', '-')}" for name in sorted(names)]
    if flags:
        raise UserError(
            "--verify and --predict look at an export that is there: of the "
            "other flags they take --destination alone. Received: "
            f"{', '.join(flags)}."
        )


def _run_to_export(task):
    """The run of a task, or its weights file as if it were one."""
    runs = _module("runs")
    if task.run_dir:
        return runs.RunFolder(task.run_dir).read()
    if not task.weights:
        return runs.newest_run(task.runs_dir, task.unfinished)
    labels = ()
    if task.labels:
        labels = tuple(_module("files").read_text(task.labels).splitlines())
    return runs.Run(
        "finished",
        task.model,
        task.model_arguments,
        labels,
        weights=task.weights,
    )


def _look_at(folder, predict):
    """Verifies an export, or shows its predictions."""
    try:
        if not predict:
            print(f"Verifying {folder}")
            return _verify(folder)
        table = _module("serving").prediction_table(folder)
    except RuntimeError as error:  # It does not load.
        raise UserError(f"{error}") from error
    print(f"Test images through {folder},")
    print(f"in a process with TensorFlow alone:\n\n{table}")
    return 0


def _verify(folder):
    """Compares an export with its own examples; returns the exit code."""
    result = _module("serving").verify_export(folder)
    print(result)
    return 0 if result.agrees else EXIT_BAD


# Images and networks.


def _label(arguments):
    """Labels images with a run's network; returns the exit code."""
    parser = config.Parser(prog=program("label"), description=_LABEL)
    parser.add_argument("run", help="the folder of the teacher, a finished run")
    parser.add_argument(
        "images", help=f"{_IMAGES}, whose training images are labelled anew"
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
    """Reads all images of a set; returns the exit code."""
    parser = config.Parser(prog=program("check"), description=_CHECK)
    parser.add_argument("images", help=f"{_IMAGES}; nothing is downloaded")
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
    return EXIT_BAD if bad else 0


def _summary(arguments):
    """Prints what a network costs; returns the exit code."""
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
    "train": _train,
    "export": _export,
    "verify": lambda arguments: _export(["--verify", *arguments]),
    "label": _label,
    "check": _check,
    "summary": _summary,
}
