"""The command `python -m lambdanet_tf.training.pseudo_label`."""

import importlib
import sys
from collections.abc import Sequence

from lambdanet_tf import flags

PROGRAM = "python -m lambdanet_tf.training.pseudo_label"
_DESCRIPTION = f"""\
Labels images with the predictions of a run, for a student to train on.

  {PROGRAM} runs/NAME my/images pseudo
  train.py --data folder:my/labelled --pseudo-labels pseudo

Stopped, the same command goes on where it was.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return flags.run(lambda: _label(arguments), PROGRAM)


def _label(arguments):
    parser = flags.Parser(prog=PROGRAM, description=_DESCRIPTION)
    parser.add_argument("run", help="the folder of the teacher, a finished run")
    parser.add_argument(
        "images",
        help="a folder of image files, or an image set as for --data of "
        "train.py, whose training images are labelled anew",
    )
    parser.add_argument("folder", help="where the pseudo-labels will be")
    # The options are a dataclass of a module that imports TensorFlow.
    teacher = importlib.import_module("lambdanet_tf.training.teacher")
    flags.add(parser, teacher.LabelOptions)
    given = parser.parse(arguments)
    runs = importlib.import_module("lambdanet_tf.runs")
    report = teacher.label_images(
        runs.RunFolder(given.run).read(),
        given.images,
        given.folder,
        teacher.LabelOptions(**flags.given(given, teacher.LabelOptions)),
    )
    print(f"\n{teacher.table(report)}\n\nWrote {given.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
