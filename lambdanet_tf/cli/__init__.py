"""The command line: `lambdanet train`, or `python -m lambdanet_tf train`.

`train.py` and `export.py`, or `lambdanet-train` and `lambdanet-export`, are two
of its commands. Nothing here imports TensorFlow, which takes seconds, before
the flags are read.
"""

import sys
from collections.abc import Sequence

from lambdanet_tf import config
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.cli import exports
from lambdanet_tf.cli import inspection
from lambdanet_tf.cli import training
from lambdanet_tf.config import EXIT_USAGE
from lambdanet_tf.config import program

_OVERVIEW = """\
usage: lambdanet COMMAND [flags]

  train     trains a network by a recipe
  export    exports a trained network for TF Serving, and verifies the export
  predict   names the classes of image files, with an export
  verify    compares an export with Keras again
  label     labels images with a trained network, for a student to train on
  check     names the images of a set that cannot be read
  summary   prints what a network costs

lambdanet COMMAND --help has the flags.
"""
# The parser of each command, and what it does with what was parsed.
_COMMANDS = {
    "train": (training.train_parser, training.train),
    "export": (exports.export_parser, exports.export),
    "predict": (exports.predict_parser, exports.predict),
    "verify": (exports.verify_parser, exports.verify),
    "label": (training.label_parser, training.label),
    "check": (inspection.check_parser, inspection.check),
    "summary": (inspection.summary_parser, inspection.summary),
}


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
        return 0 if name else EXIT_USAGE
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
    parser, action = _COMMANDS[name]
    return config.run(lambda: action(parser().parse(arguments)), program(name))
