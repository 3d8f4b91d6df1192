"""Puts a served export under load, and prints how it fares.

    python -m examples.serving.load MODEL IMAGE...
    python -m examples.serving.load MODEL IMAGE... --clients 1 4 --batch 1 8

Each client sends its next request when it has the answer to the last one.
Latency is what a client waits, from the built request to the whole response;
building and reading them is not counted. Ctrl-C ends the test early and
prints what was measured. The exit status is 0, 1 if requests failed, 2 if the
test could not begin, or 130 after Ctrl-C.
"""

import argparse
import collections
import contextlib
import dataclasses
import importlib
import itertools
import sys
import threading
import time

from examples.serving import command_line
from examples.serving.errors import ServingError

PROTOCOLS = {"grpc": "GrpcClient", "rest": "RestClient"}
# After an error that came at once, a client waits, as a good one would.
PAUSE = 0.1  # seconds


@dataclasses.dataclass
class Measurement:
    """What a number of clients met together.

    Attributes:
        protocol: "grpc" or "rest".
        clients: how many asked at the same time.
        batch: images of a request.
        seconds: from the first counted request to the last answer.
        latencies: seconds that each answered request took.
        errors: how many requests failed, by kind.
        example: what one of them said.
    """

    protocol: str
    clients: int
    batch: int
    seconds: float = 0.0
    latencies: list = dataclasses.field(default_factory=list)
    errors: collections.Counter = dataclasses.field(
        default_factory=collections.Counter
    )
    example: str = ""

    @property
    def images_per_second(self):
        """Answered images per second, of all clients together."""
        answered = len(self.latencies) * self.batch
        return answered / self.seconds if self.seconds else 0.0

    def percentile(self, percent):
        """The latency that so many percent of the requests kept, seconds."""
        if not self.latencies:
            return float("nan")
        ordered = sorted(self.latencies)
        rank = -(-len(ordered) * percent // 100)  # the ceiling: nearest rank
        return ordered[max(rank, 1) - 1]


def measure(client_of, request, measurement, duration, warm_up, stop):
    """Lets clients ask until the time is over or `stop` is set.

    Args:
        client_of: function that returns a new client.
        request: what each of them sends, again and again.
        measurement: the `Measurement` to fill.
        duration: seconds that count.
        warm_up: seconds before, which do not.
        stop: `threading.Event`; Ctrl-C sets it.
    """
    begin = time.perf_counter() + warm_up
    end = begin + duration
    lock = threading.Lock()
    starts = []

    def ask():
        client = client_of()
        start = time.perf_counter()
        while start < end and not stop.is_set():
            error = None
            try:
                client.send(request)
            except ServingError as failure:
                error = failure
            now = time.perf_counter()
            if start >= begin:
                with lock:
                    starts.append(start)
                    _count(measurement, now - start, error)
                    measurement.seconds = now - min(starts[: len(threads)])
            if error:
                stop.wait(PAUSE)
            start = time.perf_counter()
        client.close()

    threads = [threading.Thread(target=ask) for _ in range(measurement.clients)]
    for thread in threads:
        thread.start()
    try:
        stop.wait(warm_up + duration)
    except KeyboardInterrupt:
        stop.set()
    for thread in threads:
        thread.join()


def _count(measurement, seconds, error):
    if error is None:
        measurement.latencies.append(seconds)
    else:
        measurement.errors[error.kind] += 1
        measurement.example = str(error)


HEAD = (
    f"{'protocol':8} {'clients':>7} {'batch':>5} {'requests':>8} "
    f"{'errors':>6} {'images/s':>8} {'p50 ms':>8} {'p95 ms':>8} "
    f"{'p99 ms':>8} {'max ms':>8}"
)


def line(measurement):
    """One line of the table."""
    counted = measurement
    requests = len(counted.latencies) + counted.errors.total()
    times = [1e3 * counted.percentile(p) for p in (50, 95, 99, 100)]
    return (
        f"{counted.protocol:8} {counted.clients:7} {counted.batch:5} "
        f"{requests:8} {counted.errors.total():6} "
        f"{counted.images_per_second:8.1f} "
        + " ".join(f"{milliseconds:8.1f}" for milliseconds in times)
    )


def parse(arguments):
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command_line.add_server(parser)
    parser.add_argument(
        "images", nargs="+", help="JPEG or PNG files; a batch repeats them"
    )
    parser.add_argument("--grpc-port", type=int, default=8500)
    parser.add_argument("--rest-port", type=int, default=8501)
    parser.add_argument(
        "--protocol", nargs="+", choices=tuple(PROTOCOLS), default=["grpc"]
    )
    for name, default in (("--clients", [1, 4]), ("--batch", [1])):
        parser.add_argument(
            name,
            type=_positive,
            nargs="+",
            default=default,
            metavar="N",
            help=f"one line each (default: {default})",
        )
    parser.add_argument("--duration", type=float, default=10.0, help="seconds")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds")
    return parser.parse_args(arguments)


def _positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be positive: {text}")
    return number


def client_function(protocol, options):
    """A function that returns a new client; gRPC is imported if asked for."""
    module = importlib.import_module(f"examples.serving.{protocol}_client")
    kind = getattr(module, PROTOCOLS[protocol])
    port = getattr(options, f"{protocol}_port")
    return lambda: kind(
        f"{options.host}:{port}",
        options.model,
        options.version,
        options.label,
        options.timeout,
    )


def request_of(client, options, size):
    """The request of a batch: the images, repeated to its size."""
    files = itertools.islice(itertools.cycle(options.images), size)
    options = argparse.Namespace(**{**vars(options), "images": [*files]})
    return client.request(
        options.signature, command_line.batch_of(client, options)
    )


def main(arguments=None):
    """Runs the test; returns the exit status."""
    options = parse(arguments)
    stop = threading.Event()
    failed = False
    print(f"{options.model}, {options.signature}: {options.duration:g} s each")
    print(HEAD, flush=True)
    for protocol, batch, clients in itertools.product(
        options.protocol, options.batch, options.clients
    ):
        measurement = Measurement(protocol, clients, batch)
        try:
            client_of = client_function(protocol, options)
            with contextlib.closing(client_of()) as client:
                request = request_of(client, options, batch)
                client.answer(client.send(request))  # it can begin
            measure(
                client_of,
                request,
                measurement,
                options.duration,
                options.warm_up,
                stop,
            )
        except ServingError as error:
            print(f"Error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            stop.set()
        print(line(measurement), flush=True)
        for kind, number in measurement.errors.items():
            failed = True
            print(f"  {number} x {kind}, such as: {measurement.example}")
        if stop.is_set():
            print("Stopped early.")
            return 130
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
