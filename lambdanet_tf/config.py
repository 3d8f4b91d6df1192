"""Command lines from dataclasses: a field is declared once and becomes a flag.

    @dataclasses.dataclass(frozen=True)
    class Options:
        epochs: int = config.field(90, "passes over the images", low=1)

        def __post_init__(self):
            config.check(self)

Nothing here imports TensorFlow.
"""

import argparse
import dataclasses
import json
import math
import os
import re
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NoReturn

from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import check_types
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import users_input

EXIT_BAD = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141

IMAGES = "a folder of image files, or an image set as for --data of train.py"
MODEL_ARGUMENTS = 'keyword arguments of the network, as {"classes": 10}'


def field(
    default: Any,
    help: str,  # noqa: A002
    *,
    low: float | None = None,
    high: float | None = None,
    below: float | None = None,
    choices: Sequence[str] = (),
    metavar: str | tuple[str, ...] | None = None,
    kind: type | None = None,
) -> Any:
    """Declares a field of a dataclass that is a flag, too.

    Args:
        default: an int, a float, a bool, a str, a dict or None.
        help: the description that `--help` shows.
        low: the least allowed number.
        high: the largest allowed number.
        below: the number that the value must stay below.
        choices: the allowed texts.
        metavar: the placeholder of the value in the help; a tuple of them for
            a field of several integers.
        kind: the type of the value, if the default is None.

    Returns:
        What `dataclasses.field` returns.
    """
    metadata = {
        "help": help,
        "low": low,
        "high": high,
        "below": below,
        "choices": choices,
        "metavar": metavar,
        "kind": kind or type(default),
    }
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@users_input()
def check(instance: Any) -> None:
    """Raises a `UserError` unless all declared fields have allowed values.

    Dictionaries and NumPy's numbers become what JSON returns for them.
    """
    check_types(instance)
    for each in _declared(type(instance)):
        value = getattr(instance, each.name)
        if value is None or each.metadata["kind"] is tuple:
            continue
        text = json.dumps(value, default=lambda number: number.tolist())
        object.__setattr__(instance, each.name, json.loads(text))
        if each.metadata["choices"]:
            one_of(each.name, value, each.metadata["choices"])
        _check_bounds(each.name, value, each.metadata)


def replace(instance: Any, changes: Mapping[str, Any]) -> Any:
    """Returns a copy of a dataclass with some declared fields changed.

    Raises:
        UserError: if there is no such field, or its value is not allowed.
    """
    known = [each.name for each in _declared(type(instance))]
    for name in changes:
        if name not in known:
            raise UserError(
                f"Unknown field {name!r}.{did_you_mean(str(name), known)}"
            )
    return dataclasses.replace(instance, **changes)


def add_flags(
    group: Any, cls: type, defaults: Mapping[str, Any] | None = None
) -> None:
    """Adds a flag for each declared field of a dataclass.

    A flag that is not given is not in the namespace: see `given`.

    Args:
        group: an `ArgumentParser` or an argument group of one.
        cls: the dataclass.
        defaults: values to show in the help in place of the fields' own.
    """
    for each in _declared(cls):
        kind, text = each.metadata["kind"], each.metadata["help"]
        default = {each.name: each.default, **(defaults or {})}[each.name]
        if isinstance(default, int | float | str) and f"{default}":
            text = f"{text} (default: {default})"
        how: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        if kind is not bool:
            reader, metavar = _READERS[kind]
            how = {"type": reader, "metavar": each.metadata["metavar"]}
            how["metavar"] = how["metavar"] or metavar
        if kind is tuple:
            how["nargs"] = len(how["metavar"])
        group.add_argument(
            "--" + each.name.replace("_", "-"),
            default=argparse.SUPPRESS,
            help=text.replace("%", "%%"),
            **how,
        )


def given(namespace: argparse.Namespace, cls: type) -> dict[str, Any]:
    """Returns the fields of a dataclass whose flags were given."""
    names = [each.name for each in _declared(cls)]
    return {k: v for k, v in vars(namespace).items() if k in names}


class Parser(argparse.ArgumentParser):
    """An argument parser that raises errors, and names the nearest flag.

    Args:
        **options: as for `argparse.ArgumentParser`.
    """

    def __init__(self, **options: Any):
        options.setdefault(
            "formatter_class", argparse.RawDescriptionHelpFormatter
        )
        super().__init__(allow_abbrev=False, **options)

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Parses a command line, that of this process if None is given.

        Raises:
            UserError: if it is wrong.
        """
        namespace, unknown = self.parse_known_args(arguments)
        if unknown:
            flag = unknown[0].split("=", maxsplit=1)[0]
            hint = nearest_flag(
                flag, re.findall("--[a-z-]+", self.format_help())
            )
            raise UserError(f"Unknown argument {flag!r}.{hint}")
        return namespace

    def error(self, message: str) -> NoReturn:
        """Raises a `UserError` with argparse's message."""
        raise UserError(message.removeprefix("argument "))


def nearest_flag(flag: str, flags: Iterable[str]) -> str:
    """Returns " Did you mean ...?" for a flag, also for its initials, or ""."""
    name = "--" + flag.lstrip("-").replace("_", "-")
    for known in flags:
        initials = "".join(word[0] for word in known.strip("-").split("-"))
        if name == f"--{initials}" and len(initials) > 1:
            return f" Did you mean {known!r}?"
    return did_you_mean(name, flags)


def program(command: str) -> str:
    """Returns what a command of this process is called by."""
    name = os.path.basename(sys.argv[0])
    own = (f"{command}.py", f"lambdanet-{command}")
    return name if name in own else f"lambdanet {command}"


def run(action: Callable[[], int], prog: str) -> int:
    """Runs a command; a `UserError` becomes one line.

    Args:
        action: the command. It returns its exit code.
        prog: what the line begins with.

    Returns:
        The exit code: the action's, or one of those above.
    """
    # TensorFlow's C++ reports, among others, an error for a missing GPU.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        return action()
    except BrokenPipeError:  # The reader of the output, as `head`, has gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except KeyboardInterrupt:
        print(f"\n{prog}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except UserError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return EXIT_USAGE


def integer(text: str) -> int:
    """Reads a whole number, also one like 1e3."""
    if float(text) % 1:
        raise ValueError(text)
    return int(float(text))


def json_object(text: str) -> dict[str, Any]:
    """Reads a JSON object."""
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError):
        raise argparse.ArgumentTypeError(
            f"must be a JSON object. Received: {text!r}."
        ) from None


# A shell leaves the "~" of `--run-dir=~/x` alone.
_READERS: dict[type, tuple[Callable[[str], Any], str]] = {
    int: (integer, "N"),
    float: (float, "X"),
    str: (os.path.expanduser, "TEXT"),
    dict: (json_object, "JSON"),
    tuple: (integer, ""),
}


def _declared(cls):
    return [f for f in dataclasses.fields(cls) if "help" in f.metadata]


def _check_bounds(name, value, bounds):
    """Raises a `ValueError` for a number that is too small or too large."""
    low, high, below = (bounds[key] for key in ("low", "high", "below"))
    if high is not None:
        fits, allowed = low <= value <= high, f"lie between {low} and {high}"
    elif below is not None:
        fits = low <= value < below
        allowed = f"be at least {low} and below {below}"
    else:
        fits = low is None or low <= value < math.inf
        allowed = f"be a finite number of at least {low}"
    if not fits:
        raise ValueError(
            f"`{name}` must {allowed}. Received: {name}={value!r}."
        )
