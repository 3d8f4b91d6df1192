"""The command line: `lambdanet train`, or `python -m lambdanet_tf train`.

`train.py` and `export.py` are two of its commands. Each command is a function
of a parser, to which it adds its flags, and of the words to parse; its
docstring is its help. We read the flags before we import TensorFlow, which
takes seconds.
"""

import argparse
import inspect
import os
import sys
from collections.abc import Sequence

from lambdanet_tf import config
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.cli import exports
from lambdanet_tf.cli import training

_COMMANDS = {
    command.__name__: command
    for command in (
        *(training.train, exports.export, exports.predict, exports.serve),
        *(exports.verify, training.label, training.check, training.summary),
    )
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the first argument names.

    Args:
        arguments: the words; None for the arguments of this process.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words.pop(0) if words else ""
    if name in _COMMANDS:
        command, script = _COMMANDS[name], os.path.basename(sys.argv[0])
        parser = config.Parser(
            script if script == f"{name}.py" else f"lambdanet {name}",
            description=inspect.getdoc(command),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        return config.run(lambda: command(parser, words), parser.prog)
    if name not in ("", "-h", "--help"):
        hint = did_you_mean(name, _COMMANDS)
        print(f"lambdanet: no command {name!r}.{hint}", file=sys.stderr)
        return config.EXIT_USAGE
    print("usage: lambdanet COMMAND [flags]\n")
    for each, command in _COMMANDS.items():
        print(f"  {each:10}{f'{command.__doc__}'.splitlines()[0]}")
    print("\nTo list the flags: lambdanet COMMAND --help")
    return 0 if name else config.EXIT_USAGE
