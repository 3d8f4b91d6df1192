"""The commands `export`, `predict`, `serve` and `verify`."""

import importlib
import os
import sys
from collections.abc import Sequence

from lambdanet_tf import config
from lambdanet_tf import serving
from lambdanet_tf.serving.options import FORMATS
from lambdanet_tf.serving.options import ExportOptions


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
