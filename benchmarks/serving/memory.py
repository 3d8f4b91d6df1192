"""Measures the memory of a served export.

    python -m benchmarks.serving.memory exported/LambdaResNetSmall/1

Records the resident memory of a process with TensorFlow alone: after the import
of TensorFlow, after the export is loaded, and after a request of each batch
size. A process of TF Serving, in C++, needs less for the first line.
"""

import importlib
import os
import pathlib
import re
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks import records
from lambdanet_tf.serving import standalone

BATCHES = (1, 8, 32)
ANY_SIZE = 224


def resident_mebibytes():
    status = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024


def main(arguments=None):
    parser = records.parser(__doc__)
    parser.add_argument("folder", help="a version folder")
    options = parser.parse_args(arguments)
    recorder = records.Recorder("serving_memory", options)
    name = pathlib.Path(options.folder).resolve().parent.name
    sys.modules.update(dict.fromkeys(("keras", "tf_keras")))
    tf = importlib.import_module("tensorflow")

    def record(moment):
        used = resident_mebibytes()
        recorder.append({"export": name, "moment": moment}, mebibytes=used)
        print(f"{moment:28} {used:7.0f} MiB", flush=True)

    record(f"TensorFlow {tf.__version__}")
    session = standalone.Session(tf, options.folder)
    record("loaded")
    info = session.signatures["serving_default"].inputs["images"]
    sizes = [dim.size for dim in info.tensor_shape.dim][1:]
    shape = [ANY_SIZE if size < 0 else size for size in sizes]
    for batch in BATCHES:
        images = np.zeros((batch, *shape), np.float32)
        session.run("serving_default", {"images": images})
        record(f"after a batch of {batch}")


if __name__ == "__main__":
    main()
