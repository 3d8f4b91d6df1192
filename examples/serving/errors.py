"""What goes wrong between a client and a server, in words for people."""

import re

# Before and after what an operation complained about, TensorFlow names how
# many complained, and nodes of the graph.
NOISE = re.compile(r"\d+ root error\(s\) found\.|\[\[.*")


class ServingError(Exception):
    """A request that got no answer.

    Attributes:
        kind: "absent" (nobody there, or no such protocol), "timeout",
            "not found" (the model or the version), "refused" (the request),
            "failed" (the server) or "image" (an input file).
    """

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def absent(address, reason):
    """Nobody answers at an address."""
    return ServingError(
        "absent",
        f"no answer from {address}: {reason}. Is the server running, and is "
        "this the right port? (8500 is gRPC, 8501 is REST.)",
    )


def timeout(address, seconds):
    """The answer took too long."""
    return ServingError(
        "timeout",
        f"no answer from {address} within {seconds:g} s. The server may be "
        "loading the model, or be overloaded; --timeout waits longer.",
    )


def of_status(kind, details):
    """The server answered with an error; `details` are its own words."""
    beginnings = {
        "not found": "the server does not have this model or version",
        "refused": "the server refused the request",
        "failed": "the server failed",
    }
    lines = [line.strip() for line in details.splitlines()]
    said = [line for line in lines if line and not NOISE.fullmatch(line)]
    return ServingError(kind, f"{beginnings[kind]}: {' '.join(said[:1])}")
