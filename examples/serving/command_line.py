"""The command line of both clients."""

import argparse
import sys

from examples.serving import pictures
from examples.serving.errors import ServingError


def add_server(parser):
    """Adds what says which server, model and version is asked."""
    parser.add_argument("model", help="the name of the model on the server")
    parser.add_argument("--host", default="localhost")
    version = parser.add_mutually_exclusive_group()
    version.add_argument(
        "--version", type=int, help="of the model (default: the newest)"
    )
    version.add_argument("--label", help="of a version, such as stable")
    parser.add_argument(
        "--signature", choices=tuple(pictures.INPUTS), default="serving_bytes"
    )
    parser.add_argument(
        "--size",
        type=int,
        nargs=2,
        metavar=("HEIGHT", "WIDTH"),
        help="of pixels that are sent (default: what the server says)",
    )
    parser.add_argument(
        "--evaluation-crop",
        type=float,
        default=1.0,
        help="of pixels that are sent: that of the export (default: 1)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=10.0,
        help="seconds that an answer may take (default: 10)",
    )


def batch_of(client, options):
    """The images of the command line as the signature wants them."""
    if options.signature not in pictures.OF_PIXELS:
        return pictures.read(options.images)
    *size, channels = client.image_shape(options.signature)
    if options.size:
        size = options.size
    if -1 in size:
        raise ServingError(
            "image", "the model takes images of any size: choose a --size"
        )
    shape = *size, channels
    return pictures.pixels(options.images, shape, options.evaluation_crop)


def main(client_of, port, description, arguments=None):
    """Sends the images and prints the answer.

    Args:
        client_of: `GrpcClient` or `RestClient`.
        port: int. The default port.
        description: text for `--help`.
        arguments: list of str; None for those of the process.

    Returns:
        The exit status: 0, or 2 for an error.
    """
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_server(parser)
    parser.add_argument("images", nargs="+", help="JPEG or PNG files")
    parser.add_argument("--port", type=int, default=port)
    options = parser.parse_args(arguments)
    client = client_of(
        f"{options.host}:{options.port}",
        options.model,
        options.version,
        options.label,
        options.timeout,
    )
    try:
        request = client.request(options.signature, batch_of(client, options))
        answer = client.answer(client.send(request))
    except ServingError as error:
        print(f"Error: {error}", file=sys.stderr)
        if "by index" in str(error):
            for index, file in enumerate(options.images):
                print(f"  image {index} is {file}", file=sys.stderr)
        return 2
    finally:
        client.close()
    for row, file in enumerate(options.images):
        print(f"{file}: {_line(answer, row)}")
    return 0


def _line(answer, row):
    """One image's answer."""
    if "features" in answer:
        numbers = answer["features"][row]
        shown = ", ".join(f"{number:.4f}" for number in numbers[:4])
        return f"{len(numbers)} features: {shown}, ..."
    pairs = zip(
        answer["top_labels"][row],
        answer["top_probabilities"][row],
        strict=True,
    )
    return ", ".join(f"{label} {score:.4f}" for label, score in pairs)
