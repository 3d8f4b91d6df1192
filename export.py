"""Exports a trained model for TF Serving, and proves the export.

python export.py              the newest finished run
python export.py --predict    held-out images through the newest export
"""

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from lambdanet_tf import serving


def parse_arguments(arguments):
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--run", help="the run folder to export (default: the newest finished)"
    )
    parser.add_argument(
        "--runs", default="runs", help="where the runs are (default: runs)"
    )
    parser.add_argument(
        "--to",
        default="exported",
        help="where <name>/<version> is written (default: exported)",
    )
    parser.add_argument(
        "--name", help="the name that clients ask for (default: the model's)"
    )
    parser.add_argument(
        "--version",
        type=int,
        help="a new version number (default: the one after the highest)",
    )
    parser.add_argument(
        "--unfinished",
        action="store_true",
        help="export the best weights so far of a run that did not finish",
    )
    parser.add_argument(
        "--predict",
        action="store_true",
        help="show predictions of the newest export instead of exporting",
    )
    return parser.parse_args(arguments)


def export(options):
    """Exports a run and compares the export with Keras."""
    if options.run:
        run = serving.read_run(options.run)
    else:
        run = serving.newest_finished_run(options.runs)
    print(f"Exporting {run.path}")
    place = serving.export_run(
        run, options.to, options.name, options.version, options.unfinished
    )
    print(f"Wrote {place}")
    model = serving.logits_model(run)
    images = serving.images_for(place, model.input_shape[1:])
    comparisons = serving.compare(place, model, images)
    print(f"{len(images)} images through Keras, and through the export in a")
    print("fresh process with TensorFlow alone:\n")
    print(serving.comparison_table(comparisons))
    return 0 if all(row.agrees for row in comparisons) else 1


def predict(options):
    """Sends held-out images through the newest export."""
    folder = serving.newest_export(options.to)
    print(f"Held-out images through {folder},")
    print("in a fresh process with TensorFlow alone:\n")
    print(serving.prediction_table(folder))
    return 0


def main(arguments=None):
    """Runs the command; returns its exit status."""
    options = parse_arguments(arguments)
    try:
        return predict(options) if options.predict else export(options)
    except (ValueError, OSError, RuntimeError) as error:
        print(f"export.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
