"""Measures the accuracy and the size of the files for other runtimes.

    python -m benchmarks.serving.formats                      two minutes
    python -m benchmarks.serving.formats --epochs 1           a first look

Trains the default recipe on handwritten digits, and exports it as
`export.py --tflite --int8` does.
"""

import dataclasses
import pathlib
import tempfile

from benchmarks import records
from benchmarks.studies import digits
from lambdanet_tf import serving
from lambdanet_tf import training

EPOCHS = 8
FORMATS = {"TFLite": "tflite", "TFLite, int8": "tflite_int8"}


def measure(case):
    """Accuracy on the test images, and bytes, of Keras and of each file."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch, "run")
        digits.command(folder, **case)
        run = training.RunFolder(folder).read()
        formats = tuple(FORMATS.values())
        options = dataclasses.replace(serving.options_for(run), formats=formats)
        exported = serving.export_run(run, scratch, options=options)
        found = serving.verify_export(exported)
    return {
        "accuracies": dict(found.accuracies),
        "bytes": {name: found.bytes_on_disk[name] for name in formats},
        "test_images": found.test_images,
    }


def main(arguments=None):
    recorder, options = records.start(
        "formats", __doc__, arguments, epochs=EPOCHS
    )
    recorder.fill([{"epochs": options.epochs, "seed": 0}], measure)


if __name__ == "__main__":
    main()
