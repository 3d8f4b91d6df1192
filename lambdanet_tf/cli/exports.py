"""The commands `export`, `predict` and `verify`."""

import argparse
import importlib.util
import sys

from lambdanet_tf import config
from lambdanet_tf import serving
from lambdanet_tf.arguments import UserError
from lambdanet_tf.config import program
from lambdanet_tf.serving.options import FORMATS
from lambdanet_tf.serving.options import ExportOptions
from lambdanet_tf.serving.options import ExportTask

_EXPORT = f"""\
Exports a trained model for TF Serving, and verifies the export.

  export.py                          the newest finished run
  export.py --run-dir runs/mine      another run
  export.py --formats tflite onnx    with files for other runtimes

exit codes: 0 exported; {config.EXIT_BAD} the export differs from Keras;
{config.EXIT_USAGE} wrong use
"""
_PREDICT = f"""\
Names the most likely classes of image files, with an export.

  lambdanet predict exported/NAME/1 cat.jpg dog.png
  lambdanet predict exported/NAME/1 my/images --csv > classes.csv
  lambdanet predict     the test images that the newest export holds

exit codes: 0 all were read; {config.EXIT_BAD} some cannot be read
"""
_VERIFY = f"""\
Compares an export with what Keras computed when it was made.

exit codes: 0 the same; {config.EXIT_BAD} it differs
"""
_NEWEST = "its version folder, exported/NAME/VERSION (the newest)"


def export_parser() -> config.Parser:
    """Returns the parser of `export`."""
    parser = config.Parser(
        prog=program("export"), usage="%(prog)s [flags]", description=_EXPORT
    )
    what = parser.add_argument_group("what to export, and where")
    config.add_flags(what, ExportTask)
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


def export(given: argparse.Namespace) -> int:
    """Exports a run and verifies the export; returns the exit code."""
    task = ExportTask(**config.given(given, ExportTask))
    changes = config.given(given, ExportOptions)
    if "formats" in given:
        changes["formats"] = given.formats
    run = _run_to_export(task)
    options = serving.options_for(run, **changes)
    if importlib.util.find_spec("tensorflow_serving") is None:
        print("No warm-up requests: install the extra `serving` to add them.")
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
    return _compare(folder)


def _run_to_export(task):
    """Returns the run of a task, or its weights file as if it were one."""
    runs = importlib.import_module("lambdanet_tf.runs")
    if task.run_dir:
        return runs.RunFolder(task.run_dir).read()
    if not task.weights:
        return runs.newest_run(task.runs_dir, task.unfinished)
    labels = ()
    if task.labels:
        files = importlib.import_module("lambdanet_tf.files")
        labels = tuple(files.read_text(task.labels).splitlines())
    return runs.Run(
        "finished",
        task.model,
        task.model_arguments,
        labels,
        weights=task.weights,
    )


def _compare(folder):
    """Compares an export with Keras; returns the exit code."""
    result = serving.verify_export(folder)
    print(result)
    return 0 if result.agrees else config.EXIT_BAD


def verify_parser() -> config.Parser:
    """Returns the parser of `verify`."""
    parser = config.Parser(prog=program("verify"), description=_VERIFY)
    parser.add_argument("export", nargs="?", help=_NEWEST)
    return parser


def verify(given: argparse.Namespace) -> int:
    """Compares an export with Keras again; returns the exit code."""
    folder = given.export or serving.newest_export("exported")
    print(f"Verifying {folder}")
    try:
        return _compare(folder)
    except RuntimeError as error:  # It does not load.
        raise UserError(f"{error}") from error


def predict_parser() -> config.Parser:
    """Returns the parser of `predict`."""
    parser = config.Parser(prog=program("predict"), description=_PREDICT)
    parser.add_argument("export", nargs="?", help=_NEWEST)
    parser.add_argument(
        "files", nargs="*", help="image files, or folders of them"
    )
    parser.add_argument(
        "--top",
        type=config.integer,
        default=5,
        metavar="N",
        help="the number of classes to name (default: 5)",
    )
    parser.add_argument(
        "--csv",
        action="store_true",
        help="print lines of a file, then each class and its probability",
    )
    return parser


def predict(given: argparse.Namespace) -> int:
    """Prints the classes of images; returns the exit code."""
    folder = given.export or serving.newest_export("exported")
    if not given.files:
        print(f"Test images through {folder}:\n")
        print(serving.prediction_table(folder))
        return 0
    bad = 0
    files = serving.image_files(given.files)
    for found in serving.predict_files(folder, files, given.top):
        if found.error:
            bad += 1
            print(f"{found.file}: {found.error}", file=sys.stderr)
        else:
            print(found.csv() if given.csv else found)
    return config.EXIT_BAD if bad else 0
