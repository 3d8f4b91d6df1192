"""The command line of export.py and lambdanet-export.

TensorFlow takes seconds to import, so nothing here imports it before the
flags are read.
"""

import importlib
import importlib.util
import pathlib
from collections.abc import Sequence

from lambdanet_tf import config
from lambdanet_tf import serving
from lambdanet_tf.arguments import UserError

EXIT_DIFFERENT = 1

_DESCRIPTION = """\
Exports a trained model for TF Serving, and verifies the export.

  export.py              the newest finished run
  export.py --verify     the newest export again, with timings
  export.py --predict    test images through the newest export
"""
_EPILOG = f"""\
exit codes: 0 exported; {EXIT_DIFFERENT} the export differs from Keras;
{config.EXIT_USAGE} wrong use
"""

# The flags that are fields of `ExportOptions`.
_OPTIONS = (
    "weights_dtype",
    "image_size",
    "evaluation_crop",
    "classifier_activation",
    "implementation",
    "device",
    "xla",
    "formats",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: None for those of this process.

    Returns:
        The exit code.
    """
    return config.run(lambda: _run_command(arguments), program())


def make_parser() -> config.Parser:
    """Returns the parser."""
    parser = config.Parser(
        prog=program(),
        usage="%(prog)s [flags]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    action = parser.add_mutually_exclusive_group()
    for flag, text in (
        ("--verify", "compare an export with what Keras computed, and time it"),
        ("--predict", "print the predictions of an export"),
    ):
        action.add_argument(
            flag,
            nargs="?",
            const="",
            metavar="FOLDER",
            help=f"{text} (the newest)",
        )
    _add_model(parser.add_argument_group("what to export"))
    _add_export(parser.add_argument_group("where and how"))
    return parser


def program() -> str:
    """Returns what this command is called by."""
    return config.program("export")


def _run_command(arguments):
    """Exports, verifies or predicts, as the flags say."""
    given = make_parser().parse(arguments)
    _check(given)
    if given.predict is not None:
        return _predict(given)
    if given.verify is not None:
        return _verify(given)
    return _export(given)


def _check(given):
    """Raises a ValueError if flags contradict each other."""
    if (given.weights is None) != (given.model is None):
        raise UserError("--weights and --model belong together.")
    if given.weights and given.run_dir:
        raise UserError("Give either --run-dir or --weights, not both.")
    for flag in ("labels", "model_arguments"):
        if getattr(given, flag) is not None and not given.weights:
            raise UserError(f"--{flag.replace('_', '-')} belongs to --weights.")
    if "tflite_int8" in given.formats and "tflite" not in given.formats:
        raise UserError("--int8 belongs to --tflite.")


def _add_model(group):
    group.add_argument(
        "--run-dir", metavar="FOLDER", help="a run (the newest finished one)"
    )
    group.add_argument(
        "--runs-dir",
        default="runs",
        metavar="FOLDER",
        help="the folder of all runs (runs)",
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
        "--model",
        metavar="NAME",
        help="the network of --weights, of lambdanet_tf.models",
    )
    group.add_argument(
        "--model-arguments",
        type=config.json_object,
        metavar="JSON",
        help='arguments of that network, as {"classes": 10}',
    )
    group.add_argument(
        "--labels", metavar="FILE", help="its class names, one per line"
    )


def _add_export(group):
    group.add_argument(
        "--destination",
        default="exported",
        metavar="FOLDER",
        help="<FOLDER>/<name>/<version> is written (exported)",
    )
    group.add_argument(
        "--name",
        metavar="NAME",
        help="of the model on the server (the network's)",
    )
    group.add_argument(
        "--version",
        type=int,
        metavar="N",
        help="of the export (the one after the highest)",
    )
    group.add_argument(
        "--weights-dtype",
        metavar="DTYPE",
        help="float32, or bfloat16 for half the size (float32)",
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
        "the shorter side; 1 keeps the whole image (the run's, or 1)",
    )
    group.add_argument(
        "--classifier-activation",
        metavar="NAME",
        help="what makes probabilities of logits: softmax, or sigmoid for one "
        "output or several labels at once (the network's)",
    )
    group.add_argument(
        "--implementation",
        metavar="NAME",
        help="algorithm of the lambda layers (planned)",
    )
    group.add_argument(
        "--device",
        metavar="NAME",
        help="what the export will run on: cpu, gpu or tpu (cpu)",
    )
    group.add_argument(
        "--xla",
        action="store_true",
        help="add serving_default_xla, for servers with XLA switched on",
    )
    for flag, name, text in (
        ("--tflite", "tflite", "write a file for mobile and embedded devices"),
        ("--int8", "tflite_int8", "with --tflite: a file in 8-bit integers"),
        ("--onnx", "onnx", "write a file for ONNX Runtime (extra `onnx`)"),
    ):
        group.add_argument(
            flag,
            dest="formats",
            action="append_const",
            const=name,
            default=[],
            help=text,
        )
    group.add_argument(
        "--data",
        metavar="NAME",
        help="data set whose training images choose the ranges of --int8 and "
        "whose test images measure its accuracy (the run's)",
    )


def _export(given):
    """Exports a run or a weights file, and verifies the export."""
    run = _run(given)
    changes = {name: getattr(given, name) for name in _OPTIONS}
    changes = {k: v for k, v in changes.items() if v not in (None, [])}
    options = serving.options_for(run, **changes)
    if importlib.util.find_spec("tensorflow_serving") is None:
        print("Without the extra `serving` there are no warm-up requests.")
    print(f"Exporting {run.weights}")
    folder = serving.export_run(
        run,
        given.destination,
        given.name,
        given.version,
        options,
        unfinished=given.unfinished,
        data_set=given.data,
    )
    print(f"Wrote {folder}")
    return _report(serving.verify_export(folder))


def _verify(given):
    """Compares an export with its own examples, and times it."""
    folder = given.verify or serving.newest_export(given.destination)
    print(f"Verifying {folder}")
    return _report(serving.verify_export(folder, (1, 8, 32)))


def _report(result):
    """Prints a verification; returns the exit code."""
    print(result)
    return 0 if result.agrees else EXIT_DIFFERENT


def _predict(given):
    """Prints predictions for the test images of an export."""
    folder = given.predict or serving.newest_export(given.destination)
    table = serving.prediction_table(folder)
    print(f"Test images through {folder},")
    print(f"in a process with TensorFlow alone:\n\n{table}")
    return 0


def _run(given):
    """The run or the weights file that the flags name."""
    runs = importlib.import_module("lambdanet_tf.runs")
    if given.weights:
        return runs.Run(
            "finished",
            given.model,
            given.model_arguments or {},
            _read_labels(given.labels),
            weights=given.weights,
        )
    if not given.run_dir:
        return runs.newest_finished_run(given.runs_dir)
    run = runs.RunFolder(given.run_dir).read()
    if not given.unfinished:
        run.require_finished()
    return run


def _read_labels(path):
    """The lines of a file of class names."""
    if path is None:
        return ()
    try:
        # Notepad of Windows begins with a byte order mark.
        text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            "`--labels` must be a text file with a class name on each line. "
            f"Received {path}, which cannot be read: {error}."
        ) from error
    return tuple(text.splitlines())
