"""The command `python -m lambdanet_tf.convert`: timm's weights and ours."""

import sys
from collections.abc import Sequence

from lambdanet_tf import config
from lambdanet_tf.arguments import UserError
from lambdanet_tf.models.timm import export_to_timm
from lambdanet_tf.models.timm import import_from_timm
from lambdanet_tf.models.timm import table

_EPILOG = """\
examples:
  python -m lambdanet_tf.convert from-timm lambda_resnet26t weights.npz
  python -m lambdanet_tf.convert from-timm model.safetensors weights.npz
  python -m lambdanet_tf.convert to-timm runs/NAME model.safetensors \\
      --model LambdaResNet26T --model-arguments '{"scope": 7}'

Only axes are permuted: there and back gives the same bits. Networks that timm
cannot express are refused with the reason.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    prog = "python -m lambdanet_tf.convert"
    return config.run(lambda: _convert(_parser(prog).parse(arguments)), prog)


def _parser(prog):
    parser = config.Parser(
        prog=prog,
        description="Convert weights between timm's networks and ours.",
        epilog=_EPILOG,
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
            "--model",
            required=name == "to-timm",
            help="the network of the weights, such as LambdaResNet26T",
        )
        config.add_model_arguments(command)
    return parser


def _convert(given):
    """Converts a file, and prints what went where; returns the exit code."""
    convert = (
        import_from_timm if given.command == "from-timm" else export_to_timm
    )
    try:
        converted = convert(
            given.source, given.destination, given.model, given.model_arguments
        )
    except ValueError as error:  # Of the function: the flag has another name.
        reason = str(error).replace("`network`", "--model")
        raise UserError(reason.replace("network=", "--model=")) from error
    print(table(converted))
    print(f"Wrote {given.destination}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
