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

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141

MODEL_ARGUMENTS = 'keyword arguments of the network, as {"classes": 10}'

# What flags of former versions are called now.
_RENAMED = {
    "--arguments": "--model-arguments",
    "--changes": "--model-arguments",
    "--channels": """--model-arguments '{"input_shape": [H, W, C]}'""",
    "--classes": """--model-arguments '{"classes": N}'""",
    "--network": "--model",
    "--run": "--run-dir",
    "--runs": "--runs-dir",
}


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
        help: what `--help` says.
        low: least allowed number.
        high: largest allowed number.
        below: number that the value must stay below.
        choices: the allowed texts.
        metavar: what stands for the value in the help; one of each int for
            the kind tuple.
        kind: type of the values, if the default is None.

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
    """Raises a `UserError` unless all fields have allowed values.

    Numbers of NumPy become Python's, and tuples in dictionaries lists: what
    JSON gives back is equal.
    """
    check_types(instance)
    for each in _declared(type(instance)):
        value = _plain(getattr(instance, each.name))
        if value is None:
            continue
        object.__setattr__(instance, each.name, value)
        if each.metadata["choices"]:
            one_of(each.name, value, each.metadata["choices"])
        _check_bounds(each.name, value, each.metadata)


def _plain(value):
    """A value with numbers, lists and texts as JSON gives them back."""
    if isinstance(value, Mapping):
        return {key: _listed(x) for key, x in value.items()}
    return getattr(value, "tolist", lambda: value)()


def _listed(value):
    if isinstance(value, (list, tuple)):
        return [_listed(x) for x in value]
    return _plain(value)


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
        is_explained = not default and "(0:" in text
        is_shown = isinstance(default, int | float | str) and default != ""
        if is_shown and not is_explained:
            default = str(default).lower() if kind is bool else default
            text = f"{text} ({default})"
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


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--model-arguments` to the flags of a command without a recipe."""
    parser.add_argument(
        "--model-arguments",
        type=json_object,
        default={},
        metavar="JSON",
        help=MODEL_ARGUMENTS,
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
        """Parses a command line.

        Args:
            arguments: None for that of this process.

        Raises:
            UserError: if it is wrong.
        """
        words = sys.argv[1:] if arguments is None else arguments
        for word in words:
            if not _is_utf8(word):
                raise UserError(
                    "Names of files must be UTF-8: TensorFlow reads no others. "
                    f"Received: {ascii(word)}."
                )
        namespace, unknown = self.parse_known_args(words)
        for word in unknown:
            if word.startswith("-"):
                flag = word.split("=", maxsplit=1)[0]
                if flag in _RENAMED:
                    raise UserError(f"{flag} is {_RENAMED[flag]} now.")
                hint = nearest_flag(flag, self._option_string_actions)
                raise UserError(f"Unknown argument {flag!r}.{hint}")
        if unknown:
            raise UserError(f"Unexpected argument {unknown[0]!r}.")
        return namespace

    def error(self, message: str) -> NoReturn:
        """Raises a `UserError` with argparse's message."""
        raise UserError(message.removeprefix("argument "))


def nearest_flag(flag: str, flags: Iterable[str]) -> str:
    """Returns " Did you mean ...?" for a flag, also for its initials, or ""."""
    name = flag.lstrip("-").replace("_", "-")
    known = [f for f in flags if f.startswith("--") and f[:5] != "--no-"]
    for candidate in reversed(known) if len(name) > 1 else ():
        initials = "".join(part[0] for part in candidate[2:].split("-"))
        if name.replace("-", "") == initials:
            return f" Did you mean {candidate!r}?"
    return did_you_mean("--" + name, known)


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
    _prepare_output()
    try:
        return action()
    except BrokenPipeError:  # Who read the output, as `head`, has gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except KeyboardInterrupt:
        print(f"\n{prog}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except UserError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return EXIT_USAGE


def _prepare_output():
    """Gives output a place where it was closed, and letters that it lacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            nothing = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, nothing)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def integer(text: str) -> int:
    """Reads a whole number, also one like 1e3."""
    if float(text) % 1 or abs(float(text)) >= 2**63:
        raise ValueError(text)
    return int(float(text))


def words(text: str) -> str:
    """Reads a text; a shell leaves the "~" of `--run-dir=~/x` alone."""
    return os.path.expanduser(text) if text.startswith("~/") else text


def json_object(text: str) -> dict[str, Any]:
    """Reads a JSON object."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(
            f"must be a JSON object. Received: {text!r}."
        )
    return value


_READERS = {
    int: (integer, "N"),
    float: (float, "X"),
    str: (words, "TEXT"),
    dict: (json_object, "JSON"),
    tuple: (integer, None),
}


def _is_utf8(word):
    """Whether a word was UTF-8; Python keeps other bytes as surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def _declared(cls):
    return [f for f in dataclasses.fields(cls) if "help" in f.metadata]


def _check_bounds(name, value, bounds):
    low, high, below = (bounds[key] for key in ("low", "high", "below"))
    fits = (
        (low is None or value >= low)
        and (high is None or value <= high)
        and (below is None or value < below)
    )
    is_finite = not isinstance(value, float) or math.isfinite(value)
    if fits and is_finite:
        return
    if not is_finite:
        allowed = "be finite"
    elif high is not None:
        allowed = f"lie between {low} and {high}"
    elif below is not None:
        allowed = f"be at least {low} and below {below}"
    else:
        allowed = f"be at least {low}"
    raise UserError(f"`{name}` must {allowed}. Received: {name}={value!r}.")
