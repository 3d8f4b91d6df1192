"""Measures the memory of a served export.

    python -m benchmarks.serving.memory exported/LambdaResNetSmall/1

Records the resident memory of a process with TensorFlow alone: after the import
of TensorFlow, after the export is loaded, and after a request of each batch
size. A process of TF Serving, in C++, needs less for the first line.
"""

import importlib
import pathlib
import sys

import numpy as np

from benchmarks import records
from benchmarks import timing
from lambdanet_tf.serving import standalone

BATCHES = (1, 8, 32)
ANY_SIZE = 224


def main(arguments=None):
    recorder, options = records.start(
        "serving_memory", __doc__, arguments, folder=...
    )
    name = pathlib.Path(options.folder).resolve().parent.name
    sys.modules.update(dict.fromkeys(("keras", "tf_keras")))
    tf = importlib.import_module("tensorflow")

    def record(moment):
        used = timing.status("VmRSS")
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
