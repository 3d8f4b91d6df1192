"""Times exports against Keras, and against an exported ResNet-RS-50.

    python -m benchmarks.serving.exports                 ten minutes
    python -m benchmarks.serving.exports --only digits --seconds 0.5

Everything in one run, on the CPU: latency and throughput of an export, of the
Keras model that it was made from, and of other exports of that model; then
clients at the same time, of the Keras model and of the export in this process,
and of the export through gRPC. The export runs in the session of TensorFlow 1,
as in TF Serving. For gRPC the example's mock server takes the place of
TF Serving, in a process of its own: what its Python costs is part of its
figures.
"""

import contextlib
import functools
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from benchmarks.serving import runtimes
from benchmarks.views.serving import BASELINE
from benchmarks.views.serving import EXPORT
from benchmarks.views.serving import LAMBDA
from benchmarks.views.serving import PLAIN
from benchmarks.views.serving import REMOTE
from examples.serving import load
from examples.serving.grpc_client import GrpcClient
from lambdanet_tf import models
from lambdanet_tf import serving
from lambdanet_tf.serving import standalone

DIGITS = "digits"
NETWORKS = {
    LAMBDA: (models.LambdaResNet50, {"input_shape": (224, 224, 3)}),
    PLAIN: (models.ResNetRS50, {"input_shape": (224, 224, 3)}),
    DIGITS: (
        models.LambdaResNetSmall,
        {"input_shape": (8, 8, 1), "classes": 10},
    ),
}
BATCHES = (1, 8, 32)
CLIENTS = (1, 2, 4)
# However long they take: calls of each, and about as many for each client.
LEAST = 5


def load_export(place, images):
    """Loads an export; a function that classifies images, and its figures."""
    start = time.perf_counter()
    session = standalone.Session(tf, place)
    loaded = time.perf_counter()

    def answer(images):
        return session.run("serving_default", {"images": images})

    answer(images)
    answered = time.perf_counter()
    files = [file for file in place.rglob("*") if file.is_file()]
    return answer, {
        "load": loaded - start,
        "first": answered - loaded,
        "bytes": sum(file.stat().st_size for file in files),
    }


def _save_as_it_is(model, place):
    """A SavedModel of the Keras model with nothing done to it."""
    module = tf.Module()
    spec = tf.TensorSpec((None, *model.input_shape[1:]), tf.float32, "images")
    module.infer = tf.function(
        lambda images: {"logits": model(images, training=False)},
        input_signature=[spec],
    )
    module.weights = module.infer.get_concrete_function().graph.variables
    tf.saved_model.save(
        module, str(place), signatures={"serving_default": module.infer}
    )
    return place


class InProcess:
    """A client of the load test that calls a function in this process."""

    def __init__(self, answer):
        self.send = answer

    def request(self, signature, images):
        return images

    def close(self):
        pass


def record_load(recorder, case, client_of, images, seconds):
    """Records how a case's number of clients at the same time fares."""
    request = client_of().request("serving_default", images)
    measurement = load.Measurement("", case["clients"], case["batch"])
    stop, warm_up = load.threading.Event(), seconds / 4
    load.measure(client_of, request, measurement, seconds, warm_up, stop)
    if measurement.errors:
        raise RuntimeError(measurement.example)
    recorder.note(
        case,
        answers=len(measurement.latencies),
        images_per_second=measurement.images_per_second,
        percentiles={p: measurement.percentile(p) for p in (50, 95)},
    )


@contextlib.contextmanager
def mock_server(folder):
    """The address of a server process."""
    server = [sys.executable, "-m", "examples.serving.mock_server", str(folder)]
    process = subprocess.Popen(
        [*server, "--port", "0", "--rest_api_port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        port = re.search(r"gRPC on port (\d+)", process.stdout.readline())[1]
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate()


def main(arguments=None):
    recorder, options = records.start(
        "exports", __doc__, arguments, seconds=6.0
    )
    tf.get_logger().setLevel("ERROR")
    tf.keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        for name in (name for name in NETWORKS if options.only in name):
            measure(recorder, name, pathlib.Path(scratch), options.seconds)
            tf.keras.backend.clear_session()


def measure(recorder, name, scratch, seconds):
    """Exports a network, and records all figures of it."""
    builder, arguments = NETWORKS[name]
    shape = arguments["input_shape"]
    model = builder(weights=None, **arguments)
    images = {batch: runtimes.some_images(batch, shape) for batch in BATCHES}
    compiled = tf.function(
        functools.partial(model, training=False),
        input_signature=[tf.TensorSpec((None, *shape), tf.float32)],
    )
    answers = {
        "Keras, predict_on_batch": model.predict_on_batch,
        BASELINE: lambda images: compiled(images).numpy(),
    }
    half = serving.ExportOptions(weights_dtype="bfloat16")
    folders = {
        EXPORT: serving.export_model(model, scratch, name),
        "export, bfloat16 weights": serving.export_model(
            model, scratch, f"{name}-bfloat16", options=half
        ),
        "export, not folded": _save_as_it_is(
            model, scratch / f"{name}-unfolded"
        ),
    }
    for what, place in folders.items():
        answers[what], figures = load_export(place, images[1])
        recorder.append({"network": name, "loading": what}, **figures)
    alone = {}
    for batch in BATCHES:
        functions = {
            what: functools.partial(answer, images[batch])
            for what, answer in answers.items()
        }
        taken = timing.turns(functions, seconds, least=LEAST)
        alone[batch] = timing.median(taken[EXPORT])
        recorder.note({"network": name, "batch": batch}, seconds=taken)

    def record(what, client_of):
        for batch, clients in itertools.product(BATCHES, CLIENTS):
            case = {"network": name, "batch": batch}
            case |= {"what": what, "clients": clients}
            enough = max(seconds / 2, LEAST * clients * alone[batch])
            record_load(recorder, case, client_of, images[batch], enough)

    for what in (BASELINE, EXPORT):
        record(what, functools.partial(InProcess, answers[what]))
    with mock_server(folders[EXPORT].parent) as address:
        record(
            REMOTE,
            functools.partial(GrpcClient, address, name, timeout=60.0),
        )


if __name__ == "__main__":
    main()
