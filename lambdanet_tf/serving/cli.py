"""The command line of `export.py` and `lambdanet-export`.

TensorFlow takes seconds to import, so nothing here imports it before the
flags are read.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import sys
from collections.abc import Sequence

from lambdanet_tf import serving

_DESCRIPTION = """\
Exports a trained model for TF Serving, and verifies the export.

  python export.py              the newest finished run
  python export.py --verify     the newest export again, with timings
  python export.py --predict    test images through the newest export
"""
_EPILOG = """\
exit status: 0, 1 if the export differs from the Keras model, 2 for an error
"""

# The flags that are fields of `ExportOptions`.
_OPTIONS = (
    "weights_dtype",
    "image_size",
    "evaluation_crop",
    "implementation",
    "xla",
    "formats",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: of the command line; None for those of the process.

    Returns:
        The exit status: 0, 1 if the export differs, 2 for an error.
    """
    flags = _parse(arguments)
    # TensorFlow's C++ reports, among others, an error for a missing GPU.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        if flags.predict is not None:
            return _predict(flags)
        if flags.verify is not None:
            return _verify(flags)
        return _export(flags)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parse(arguments):
    parser = argparse.ArgumentParser(
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    action = parser.add_mutually_exclusive_group()
    for flag, text in (
        ("--verify", "compare an export with Keras again and time it"),
        ("--predict", "print the predictions of an export"),
    ):
        action.add_argument(
            flag,
            nargs="?",
            const="",
            metavar="FOLDER",
            help=f"{text} (default: the newest)",
        )
    _add_source(parser.add_argument_group("model"))
    _add_destination(parser.add_argument_group("export"))
    flags = parser.parse_args(arguments)
    if (flags.weights is None) != (flags.model is None):
        parser.error("--weights and --model belong together")
    if flags.weights and flags.run:
        parser.error("give --run or --weights, not both")
    for flag in ("labels", "arguments"):
        if getattr(flags, flag) is not None and not flags.weights:
            parser.error(f"--{flag} belongs to --weights")
    if "tflite_int8" in flags.formats and "tflite" not in flags.formats:
        parser.error("--int8 belongs to --tflite")
    return flags


def _add_source(group):
    group.add_argument("--run", help="a run folder (default: the newest)")
    group.add_argument(
        "--runs", default="runs", help="folder of the runs (default: runs)"
    )
    group.add_argument(
        "--unfinished",
        action="store_true",
        help="export the best weights so far of a run that has not finished",
    )
    group.add_argument(
        "--weights",
        metavar="FILE",
        help="an .npz file of weights, or a run folder, instead of a run",
    )
    group.add_argument(
        "--model", help="the network of --weights, of lambdanet_tf.models"
    )
    group.add_argument(
        "--arguments",
        type=_json_object,
        metavar="JSON",
        help='arguments of that network, as {"classes": 10}',
    )
    group.add_argument(
        "--labels", metavar="FILE", help="its class names, one per line"
    )


def _json_object(text):
    try:
        fields = json.loads(text)
    except json.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict):
        raise argparse.ArgumentTypeError(f"not a JSON object: {text}")
    return fields


def _add_destination(group):
    group.add_argument(
        "--destination",
        default="exported",
        metavar="FOLDER",
        help="<FOLDER>/<name>/<version> is written (default: exported)",
    )
    group.add_argument(
        "--name", help="of the model on the server (default: the network's)"
    )
    group.add_argument(
        "--version", type=int, help="default: the one after the highest"
    )
    group.add_argument(
        "--weights-dtype",
        metavar="DTYPE",
        help="float32, or bfloat16 for half the size (default: float32)",
    )
    group.add_argument(
        "--image-size",
        type=int,
        nargs=2,
        metavar=("HEIGHT", "WIDTH"),
        help="of decoded images, for a model of any image size",
    )
    group.add_argument(
        "--evaluation-crop",
        type=float,
        metavar="FRACTION",
        help="central square that is cut from encoded images, as a fraction of "
        "the shorter side; 1 keeps the whole image (default: the run's, or 1)",
    )
    group.add_argument(
        "--implementation",
        help="algorithm of the lambda layers (default: planned)",
    )
    group.add_argument(
        "--xla",
        action="store_true",
        help="add serving_default_xla, for servers with XLA switched on",
    )
    for flag, name, text in (
        ("--tflite", "tflite", "for mobile and embedded devices"),
        ("--int8", "tflite_int8", "with --tflite: in 8-bit integers as well"),
        ("--onnx", "onnx", "for ONNX Runtime; needs the extra `onnx`"),
    ):
        group.add_argument(
            flag,
            dest="formats",
            action="append_const",
            const=name,
            default=[],
            help=f"write a file {text}",
        )
    group.add_argument(
        "--data",
        metavar="NAME",
        help="data set whose training images choose the ranges of --int8 and "
        "whose test images measure its accuracy (default: the run's)",
    )


def _export(flags):
    """Exports a run or a weights file, and verifies the export."""
    run = _run(flags)
    changes = {name: getattr(flags, name) for name in _OPTIONS}
    changes = {k: v for k, v in changes.items() if v not in (None, [])}
    options = serving.options_for(run, **changes)
    if importlib.util.find_spec("tensorflow_serving") is None:
        print("Without the extra `serving` there are no warm-up requests.")
    print(f"Exporting {run.weights}")
    model = run.load_model()
    folder = serving.export_run(
        run,
        flags.destination,
        flags.name,
        flags.version,
        options,
        flags.unfinished,
        model,
        flags.data,
    )
    print(f"Wrote {folder}")
    return _report(flags, folder, run, model, options)


def _verify(flags):
    """Compares an export with the model that it was made of, and times it."""
    folder = _folder(flags, flags.verify)
    options = serving.ExportOptions(**serving.read_metadata(folder)["options"])
    run = serving.exported_run(folder)
    print(f"Verifying {folder}")
    return _report(flags, folder, run, run.load_model(), options, (1, 8, 32))


def _predict(flags):
    """Prints predictions for the test images of an export."""
    folder = _folder(flags, flags.predict)
    table = serving.prediction_table(folder)
    print(f"Test images through {folder},")
    print(f"in a process with TensorFlow alone:\n\n{table}")
    return 0


def _folder(flags, name):
    return pathlib.Path(name or serving.newest_export(flags.destination))


def _run(flags):
    """The run or the weights file that the flags name."""
    from lambdanet_tf import runs  # noqa: PLC0415 TensorFlow, see above

    if flags.weights:
        return runs.Run(
            "finished",
            flags.model,
            flags.arguments or {},
            _read_labels(flags.labels),
            weights=flags.weights,
        )
    if not flags.run:
        return runs.newest_finished_run(flags.runs)
    run = runs.RunFolder(flags.run).read()
    if not flags.unfinished:
        run.require_finished()
    return run


def _read_labels(path):
    """The lines of a file of class names."""
    if path is None:
        return ()
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            "`--labels` must be a text file with a class name on each line. "
            f"Received {path}, which cannot be read: {error}."
        ) from error
    return tuple(text.splitlines())


def _report(flags, folder, run, model, options, batch_sizes=()):
    """Prints the comparison with Keras; returns the exit status."""
    shape = options.image_shape(model.input_shape[1:])
    images = serving.images_for(folder, shape)
    result = serving.verify_export(
        folder,
        model,
        options,
        images,
        _test_set(flags, run, model, options),
        batch_sizes,
    )
    print(
        f"{len(images)} images through Keras, and through the export in a "
        f"process with\nTensorFlow alone:\n\n{result}"
    )
    return 0 if result.agrees else 1


def _test_set(flags, run, model, options):
    """Images and labels to measure the accuracy of 8-bit integers with."""
    if "tflite_int8" not in options.formats:
        return None
    try:
        return serving.data_set_images(
            run, "test", options, model.input_shape[1:], flags.data, 512
        )
    except (ImportError, OSError, ValueError) as error:
        print(f"The accuracy is not measured: {error}")
        return None
