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

import functools
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


def export(model, folder, name):
    """Exports a model in all ways; dict from way to version folder."""
    half = serving.ExportOptions(weights_dtype="bfloat16")
    return {
        EXPORT: serving.export_model(model, folder, name),
        "export, bfloat16 weights": serving.export_model(
            model, folder, f"{name}-bfloat16", options=half
        ),
        "export, not folded": _save_as_it_is(
            model, folder / f"{name}-unfolded"
        ),
    }


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
    """What the load test takes for a client: a call in this process."""

    def send(self, function):
        function()

    def close(self):
        pass


def under_load(client_of, request, clients, batch, seconds):
    """A `load.Measurement` of so many clients at the same time."""
    measurement = load.Measurement("", clients, batch)
    load.measure(
        client_of,
        request,
        measurement,
        seconds,
        warm_up=seconds / 4,
        stop=load.threading.Event(),
    )
    if measurement.errors:
        raise RuntimeError(measurement.example)
    return measurement


def concurrent(answers, images, alone, folder, seconds):
    """Measurements of clients at the same time.

    Args:
        answers: dict from what classifies to a function of images.
        images: dict from batch to images.
        alone: dict from batch to the seconds that the export took for one
            client, from which follows how long many need.
        folder: of the export of all versions, named as the network.
        seconds: of a measurement; longer where that is `LEAST` answers.

    Yields:
        What classifies, batch, and a `load.Measurement` of some clients.
    """
    cells = [
        (batch, clients, max(seconds, LEAST * clients * alone[batch]))
        for batch in BATCHES
        for clients in CLIENTS
    ]
    for what in (BASELINE, EXPORT):
        for batch, clients, enough in cells:
            request = functools.partial(answers[what], images[batch])
            place = request, clients, batch, enough
            yield what, batch, under_load(InProcess, *place)
    process, port = _mock_server(folder)
    try:
        client_of = functools.partial(
            GrpcClient, f"127.0.0.1:{port}", folder.name, timeout=60.0
        )
        for batch, clients, enough in cells:
            request = client_of().request("serving_default", images[batch])
            place = request, clients, batch, enough
            yield REMOTE, batch, under_load(client_of, *place)
    finally:
        process.terminate()
        process.communicate()


def _mock_server(folder):
    """A server process; returns it and its port."""
    server = [sys.executable, "-m", "examples.serving.mock_server", str(folder)]
    process = subprocess.Popen(
        [*server, "--port", "0", "--rest_api_port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    port = re.search(r"gRPC on port (\d+)", process.stdout.readline())[1]
    return process, port


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
    folders, alone = export(model, scratch, name), {}
    for what, place in folders.items():
        answers[what], figures = load_export(place, images[1])
        recorder.append({"network": name, "loading": what}, **figures)
    for batch in BATCHES:
        functions = {
            what: functools.partial(answer, images[batch])
            for what, answer in answers.items()
        }
        taken = timing.turns(functions, seconds, least=LEAST)
        alone[batch] = timing.median(taken[EXPORT])
        recorder.append({"network": name, "batch": batch}, seconds=taken)
        print(f"{name}, batch {batch}: {alone[batch]:.4f} s", flush=True)
    folder = folders[EXPORT].parent
    for what, batch, measurement in concurrent(
        answers, images, alone, folder, seconds / 2
    ):
        case = {"network": name, "batch": batch}
        case |= {"what": what, "clients": measurement.clients}
        recorder.append(
            case,
            answers=len(measurement.latencies),
            images_per_second=measurement.images_per_second,
            percentiles={p: measurement.percentile(p) for p in (50, 95)},
        )
        rate = f"{measurement.images_per_second:.1f} images/s"
        print(*case.values(), rate, flush=True)


if __name__ == "__main__":
    main()
