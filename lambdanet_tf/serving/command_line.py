"""The command line of `export.py`."""

import argparse
import json
import pathlib
import sys

from lambdanet_tf.serving import exporting
from lambdanet_tf.serving import run_folder
from lambdanet_tf.serving import warmup
from lambdanet_tf.serving.checking import check_export
from lambdanet_tf.serving.checking import images_for
from lambdanet_tf.serving.options import WEIGHTS_DTYPES
from lambdanet_tf.serving.options import ServingOptions
from lambdanet_tf.serving.predicting import prediction_table
from lambdanet_tf.serving.version_folders import newest_export

DESCRIPTION = """\
Exports a trained model for TF Serving, and proves the export.

  python export.py              the newest finished run
  python export.py --check      the newest export again, with timings
  python export.py --predict    held-out images through the newest export
"""

# The flags that are `ServingOptions`.
_OPTIONS = (
    "weights_dtype",
    "image_size",
    "evaluation_crop",
    "implementation",
    "xla",
    "formats",
)


def main(arguments=None, facts_about=None):
    """Runs the command.

    Args:
        arguments: list of str; None for those of the process.
        facts_about: function of a model and (height, width) that returns
            more for the model card, see there.

    Returns:
        The exit status: 0, 1 if outputs differ, 2 for an error.
    """
    options = parse(arguments)
    try:
        if options.predict is not None:
            return _predict(options)
        if options.check is not None:
            return _check(options)
        return _export(options, facts_about)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        print(f"export.py: {error}", file=sys.stderr)
        return 2


def parse(arguments):
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="export.py",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group()
    for flag, text in (
        ("--check", "compare a version folder with Keras again and time it"),
        ("--predict", "show predictions of a version folder"),
    ):
        what.add_argument(
            flag,
            nargs="?",
            const="",
            metavar="FOLDER",
            help=f"{text} (default: the newest)",
        )
    _add_source(parser.add_argument_group("what is exported"))
    _add_target(parser.add_argument_group("where, and how"))
    options = parser.parse_args(arguments)
    if (options.weights is None) != (options.model is None):
        parser.error("--weights and --model belong together")
    if options.weights and options.run:
        parser.error("give --run or --weights, not both")
    return options


def _add_source(group):
    group.add_argument("--run", help="a run folder (default: the newest)")
    group.add_argument(
        "--runs", default="runs", help="where the runs are (default: runs)"
    )
    group.add_argument(
        "--unfinished",
        action="store_true",
        help="take the best weights so far of a run that did not finish",
    )
    group.add_argument(
        "--weights", metavar="FILE", help="a weights file instead of a run"
    )
    group.add_argument(
        "--model", help="its network, a function of lambdanet_tf.models"
    )
    group.add_argument(
        "--arguments",
        type=_json_object,
        default={},
        metavar="JSON",
        help='keyword arguments of that function, as {"classes": 10}',
    )
    group.add_argument(
        "--labels", metavar="FILE", help="its class names, one per line"
    )


def _json_object(text):
    """Reads keyword arguments."""
    try:
        fields = json.loads(text)
    except json.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict):
        raise argparse.ArgumentTypeError(f"not a JSON object: {text}")
    return fields


def _add_target(group):
    group.add_argument(
        "--to",
        default="exported",
        help="<to>/<name>/<version> is written (default: exported)",
    )
    group.add_argument("--name", help="what clients ask for")
    group.add_argument(
        "--version", type=int, help="default: the one after the highest"
    )
    group.add_argument(
        "--weights-dtype",
        choices=WEIGHTS_DTYPES,
        default="float32",
        help="bfloat16 halves what weights take on disk and in memory",
    )
    group.add_argument(
        "--image-size",
        type=int,
        nargs=2,
        metavar=("HEIGHT", "WIDTH"),
        help="of encoded images, for a model of any image size",
    )
    group.add_argument(
        "--evaluation-crop",
        type=float,
        metavar="SHARE",
        help="take the central square of an encoded image, its side this "
        "share of the shorter side; 1: all (default: the run's, or 1)",
    )
    group.add_argument(
        "--implementation",
        help="the algorithm of the lambda layers (default: planned)",
    )
    group.add_argument(
        "--xla",
        action="store_true",
        help="add serving_default_xla, for servers with XLA switched on",
    )
    for name, text in (
        ("tflite", "for telephones and small computers"),
        ("onnx", "for ONNX Runtime and others; needs the extra `onnx`"),
    ):
        group.add_argument(
            f"--{name}",
            dest="formats",
            action="append_const",
            const=name,
            help=f"write assets.extra/model.{name} as well, {text}",
        )


def _export(options, facts_about):
    """Exports a run or a weights file, and checks the export."""
    run = _run(options)
    changes = {name: getattr(options, name) for name in _OPTIONS}
    changes = {k: v for k, v in changes.items() if v is not None}
    settings = exporting.options_of(run, **changes)
    model = run.model()
    facts = exporting.facts_of(run)
    if facts_about is not None:
        shape = settings.image_shape(model.inputs[0].shape[1:])
        facts |= facts_about(model, shape[:2])
    print(f"Exporting {run.weights}")
    folder = exporting.export_model(
        model,
        options.to,
        options.name or model.name,
        options.version,
        settings,
        facts,
        run_folder.read_examples(run),
    )
    print(f"Wrote {folder}")
    if not warmup.can_write():
        print("It has no warm-up requests: they need the extra `serving`.")
    return _show_check(folder, model, settings)


def _check(options):
    """Compares an export with the model it was made of, and times it."""
    folder = pathlib.Path(options.check or newest_export(options.to))
    description = exporting.read_description(folder)
    settings = ServingOptions(**description["options"])
    model = exporting.source_of(folder).model()
    print(f"Checking {folder}")
    return _show_check(folder, model, settings, warmup.BATCH_SIZES)


def _predict(options):
    """Shows predictions for the held-out images of an export."""
    folder = pathlib.Path(options.predict or newest_export(options.to))
    table = prediction_table(folder)
    print(f"Held-out images through {folder},")
    print(f"in a fresh process with TensorFlow alone:\n\n{table}")
    return 0


def _run(options):
    """The run, or the weights file, that the options name."""
    if options.weights:
        classes = ()
        if options.labels:
            text = pathlib.Path(options.labels).read_text(encoding="utf-8")
            classes = text.splitlines()
        return run_folder.run_of_weights(
            options.model, options.arguments, options.weights, classes
        )
    if not options.run:
        return run_folder.newest_finished_run(options.runs)
    run = run_folder.read_run(options.run)
    if not options.unfinished:
        run_folder.require_finished(run)
    return run


def _show_check(folder, model, settings, batch_sizes=()):
    """Prints the comparison with Keras; returns the exit status."""
    shape = settings.image_shape(model.inputs[0].shape[1:])
    images = images_for(folder, shape)
    check = check_export(folder, model, settings, images, batch_sizes)
    print(
        f"{len(images)} images through Keras, and through the export in a "
        "fresh process with\nTensorFlow alone:\n"
    )
    print(check)
    return 0 if check.agrees else 1
