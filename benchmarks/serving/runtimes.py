"""Times an export on a CPU in TensorFlow, ONNX Runtime and OpenVINO.

    python -m benchmarks.serving.runtimes       ten minutes

One export a network, as `export.py --formats onnx` writes it, in a process for
each runtime; they take turns. TensorFlow runs the SavedModel in a session, as
TF Serving does. The probabilities of the same images are compared first.
"""

import functools
import os
import pathlib
import tempfile

import numpy as np

from benchmarks import records
from benchmarks import timing
from lambdanet_tf.serving.options import FORMATS

THREADS = len(os.sched_getaffinity(0))
NETWORKS = {
    "CCCC": ("ResNet50", 224, {"pattern": "CCCC"}),
    "LLLL": ("ResNet50", 224, {"pattern": "LLLL"}),
    "LambdaResNet50": ("LambdaResNet50", 224, {}),
    "LambdaResNet26T": ("LambdaResNet26T", 256, {}),
    "LambdaResNet50TS": ("LambdaResNet50TS", 256, {}),
    "LambdaResNet26RPT256": ("LambdaResNet26RPT256", 256, {}),
}
BATCHES = (1, 8, 32)
TOLERANCE = 1e-3  # of probabilities
PLAIN = "TensorFlow"


def tensorflow(folder, batch):
    """A function from images to probabilities: the SavedModel in a session."""
    import tensorflow as tf  # noqa: PLC0415

    from lambdanet_tf.serving import standalone  # noqa: PLC0415

    session, name = standalone.Session(tf, folder), "serving_default"
    return lambda x: session.run(name, {"images": x})["probabilities"]


def onnx_runtime(folder, batch):
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(
        str(folder / FORMATS["onnx"]),
        options,
        providers=["CPUExecutionProvider"],
    )
    return lambda x: session.run(["probabilities"], {"images": x})[0]


def open_vino(folder, batch):
    """The same by OpenVINO, in float32 and for one batch size."""
    import openvino  # noqa: PLC0415

    core = openvino.Core()
    model = core.read_model(str(folder / FORMATS["onnx"]))
    _, *image = model.input("images").partial_shape
    model.reshape({"images": openvino.PartialShape([batch, *image])})
    options = {"INFERENCE_NUM_THREADS": THREADS}
    options |= {"INFERENCE_PRECISION_HINT": "f32"}
    options |= {"PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(model, "CPU", options)
    return lambda x: compiled({"images": x})["probabilities"]


RUNTIMES = {
    PLAIN: tensorflow,
    "ONNX Runtime": onnx_runtime,
    "OpenVINO": open_vino,
}


def export(name, folder):
    import tensorflow as tf  # noqa: PLC0415

    from lambdanet_tf import models  # noqa: PLC0415
    from lambdanet_tf import serving  # noqa: PLC0415

    tf.keras.utils.set_random_seed(0)
    builder, size, arguments = NETWORKS[name]
    shape = (size, size, 3)
    model = models.build(builder, weights=None, input_shape=shape, **arguments)
    options = serving.ExportOptions(formats=("onnx",))
    place = serving.export_model(model, folder, name, options=options)
    tf.keras.backend.clear_session()
    return place


def some_images(batch, shape):
    """The same ones whenever asked, of uniform noise."""
    images = np.random.default_rng(0).uniform(0, 255, (batch, *shape))
    return images.astype(np.float32)


def measure(name, folder, batch, seconds):
    outputs = folder.parent / "outputs"
    outputs.mkdir(exist_ok=True)
    child, commands = "benchmarks.serving.runtimes:worker", {}
    for runtime in RUNTIMES:
        place = outputs / f"{runtime}.npy"
        commands[runtime] = child, runtime, folder, name, batch, place
    times = timing.worker_turns(commands, seconds)
    arrays = {runtime: np.load(outputs / f"{runtime}.npy") for runtime in times}
    difference = max(
        float(np.abs(array - arrays[PLAIN]).max()) for array in arrays.values()
    )
    if not difference < TOLERANCE:
        raise ValueError(f"Probabilities of {name} differ by {difference}.")
    return {"difference": difference, "seconds": times}


def worker(runtime, folder, name, batch, output):
    run = RUNTIMES[runtime](pathlib.Path(folder), batch)
    size = NETWORKS[name][1]
    images = some_images(batch, (size, size, 3))
    np.save(output, run(images))
    return lambda request: lambda: run(images)


@records.script("runtimes", seconds=20.0, batch=BATCHES)
def main(recorder, options):
    with tempfile.TemporaryDirectory() as scratch:
        place = functools.cache(lambda name: export(name, scratch))

        def measured(case):
            name, batch = case.values()
            return measure(name, place(name), batch, options.seconds)

        cases = records.cases(network=NETWORKS, batch=options.batch)
        recorder.fill(cases, measured)
