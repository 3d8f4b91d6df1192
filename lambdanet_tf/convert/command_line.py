"""The command `python -m lambdanet_tf.convert`."""

import argparse
from collections.abc import Sequence

from lambdanet_tf import config
from lambdanet_tf.convert.timm import export_to_timm
from lambdanet_tf.convert.timm import import_from_timm
from lambdanet_tf.convert.timm import table

_EPILOG = """\
examples:
  python -m lambdanet_tf.convert from-timm lambda_resnet26t weights.npz
  python -m lambdanet_tf.convert from-timm model.safetensors weights.npz
  python -m lambdanet_tf.convert to-timm runs/NAME model.safetensors \\
      --network LambdaResNet26T --changes '{"scope": 7}'

Only axes are permuted: there and back gives the same bits. Networks that timm
cannot express are refused with the reason.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lambdanet_tf.convert",
        description="Convert weights between timm's networks and ours.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    ours = "an .npz file of `save_weights`"
    theirs = "a .safetensors file of timm"
    for name, source, destination in (
        ("from-timm", f"{theirs}, or the name of published weights", ours),
        ("to-timm", f"{ours}, or the folder of a run", theirs),
    ):
        command = commands.add_parser(name, help=f"{source} -> {destination}")
        command.add_argument("source", help=source)
        command.add_argument("destination", help=destination)
        command.add_argument(
            "--network",
            required=name == "to-timm",
            help="the network of the weights, such as LambdaResNet26T",
        )
        command.add_argument(
            "--changes",
            type=config.json_object,
            default={},
            metavar="JSON",
            help="attributes of the network that differ, as an object",
        )
    given = parser.parse_args(arguments)
    return config.run(lambda: _convert(given), parser.prog)


def _convert(given):
    """Converts a file, and prints what went where; returns the exit code."""
    convert = (
        import_from_timm if given.command == "from-timm" else export_to_timm
    )
    converted = convert(
        given.source, given.destination, given.network, given.changes
    )
    print(table(converted))
    print(f"Wrote {given.destination}")
    return 0
