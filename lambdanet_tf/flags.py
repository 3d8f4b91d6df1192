"""Command lines from dataclasses: a field is declared once and becomes a flag.

    @dataclasses.dataclass(frozen=True)
    class Options:
        epochs: int = flags.field(90, "passes over the images", low=1)

        def __post_init__(self):
            flags.check(self)

Nothing here imports TensorFlow.
"""

import argparse
import dataclasses
import json
import os
import sys
import typing
from collections.abc import Callable
from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NoReturn

from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.arguments import one_of

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    dict: "a JSON object",
}


def field(
    default: Any,
    help: str,  # noqa: A002
    *,
    low: float | None = None,
    high: float | None = None,
    below: float | None = None,
    choices: Sequence[str] = (),
    metavar: str = "",
) -> Any:
    """Declares a field of a dataclass that is a flag, too.

    Args:
        default: an int, a float, a bool, a str or a dict.
        help: what `--help` says.
        low: least allowed number.
        high: largest allowed number.
        below: number that the value must stay below.
        choices: the allowed texts.
        metavar: what stands for the value in the help.

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
    }
    if isinstance(default, dict):
        return dataclasses.field(
            default_factory=lambda: dict(default), metadata=metadata
        )
    return dataclasses.field(default=default, metadata=metadata)


def check(instance: Any) -> None:
    """Raises a ValueError unless all declared fields have allowed values."""
    for each in _declared(type(instance)):
        name, value = each.name, getattr(instance, each.name)
        if not _is_a(kind_of(type(instance), each), value):
            kind = _KINDS[kind_of(type(instance), each)]
            raise ValueError(
                f"`{name}` must be {kind}. Received: {name}={value!r}."
            )
        if each.metadata["choices"]:
            one_of(name, value, each.metadata["choices"])
        _check_bounds(name, value, each.metadata)


def replace(instance: Any, changes: Mapping[str, Any]) -> Any:
    """Returns a copy of a dataclass with some declared fields changed.

    Raises:
        ValueError: if there is no such field, or its value is not allowed.
    """
    known = [each.name for each in _declared(type(instance))]
    for name in changes:
        if name not in known:
            raise ValueError(
                f"Unknown field {name!r}.{did_you_mean(str(name), known)}"
            )
    return dataclasses.replace(instance, **changes)


def add(
    group: Any,
    cls: type,
    defaults: Mapping[str, Any] | None = None,
    skip: Container[str] = (),
) -> None:
    """Adds a flag for each declared field of a dataclass.

    A flag that is not given is not in the namespace: see `given`.

    Args:
        group: an `ArgumentParser` or an argument group of one.
        cls: the dataclass.
        defaults: values to show in the help in place of the fields' own.
        skip: names of fields without a flag.
    """
    for each in _declared(cls):
        if each.name in skip:
            continue
        kind = kind_of(cls, each)
        shown = {**_defaults(cls), **(defaults or {})}[each.name]
        help_text = each.metadata["help"]
        is_explained = not shown and "(0:" in help_text
        if shown not in ("", {}) and not is_explained:
            text = str(shown).lower() if kind is bool else str(shown)
            help_text = f"{help_text} ({text})"
        how: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        if kind is not bool:
            metavar = each.metadata["metavar"] or _metavar(kind)
            how = {"type": _Reader(kind), "metavar": metavar}
        group.add_argument(
            "--" + each.name.replace("_", "-"),
            default=argparse.SUPPRESS,
            help=help_text.replace("%", "%%"),
            **how,
        )


def given(namespace: argparse.Namespace, cls: type) -> dict[str, Any]:
    """Returns the fields of a dataclass whose flags were given."""
    names = [each.name for each in _declared(cls)]
    return {k: v for k, v in vars(namespace).items() if k in names}


def kind_of(cls: type, each: dataclasses.Field) -> type:
    """Returns the plain type of a field: int, float, bool, str or dict."""
    hint = typing.get_type_hints(cls)[each.name]
    return hint if hint in _KINDS else dict


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
            ValueError: in one line, if it is wrong.
        """
        namespace, unknown = self.parse_known_args(arguments)
        for word in unknown:
            if word.startswith("-"):
                flag = word.split("=", maxsplit=1)[0]
                hint = nearest_flag(flag, self._flags())
                raise ValueError(f"Unknown argument {flag!r}.{hint}")
        if unknown:
            raise ValueError(f"Unexpected argument {unknown[0]!r}.")
        return namespace

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)

    def _flags(self):
        """All flags; those that take a value, which are meant most, first."""
        actions = self._option_string_actions
        return sorted(actions, key=lambda flag: actions[flag].nargs == 0)


def nearest_flag(flag: str, flags: Iterable[str]) -> str:
    """Returns " Did you mean ...?" for a flag, also for its initials, or ""."""
    name = flag.lstrip("-").replace("_", "-")
    names = [f.lstrip("-") for f in flags if f.startswith("--")]
    for known in names:
        initials = "".join(part[0] for part in known.split("-"))
        if len(name) > 1 and name in (initials, initials.replace("-", "")):
            return f" Did you mean '--{known}'?"
    starting = [known for known in names if known.startswith(name)]
    if len(name) > 1 and len(starting) == 1:
        return f" Did you mean '--{starting[0]}'?"
    return did_you_mean("--" + name, ["--" + known for known in names])


def program(script: str, command: str) -> str:
    """Returns what this process was started as: a script or its command."""
    name = os.path.basename(sys.argv[0])
    return command if name.startswith("lambdanet") else script


def run(
    action: Callable[[], int],
    program: str,
    also: tuple[type[Exception], ...] = (),
) -> int:
    """Runs a command; what goes wrong becomes one line and an exit code.

    Args:
        action: the command. It returns its exit code.
        program: what the line begins with.
        also: errors that become a line, beside ImportError, OSError and
            ValueError.

    Returns:
        The exit code: the action's, `EXIT_USAGE` or `EXIT_INTERRUPTED`.
    """
    # TensorFlow's C++ reports, among others, an error for a missing GPU.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        return action()
    except KeyboardInterrupt:
        print(f"\n{program}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (ImportError, OSError, ValueError, *also) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return EXIT_USAGE


def json_object(text: str) -> dict[str, Any]:
    """Reads a JSON object, as the `type` of a flag that is in no dataclass."""
    return _Reader(dict)(text)


class _Reader:
    """Reads the value of a flag from its text."""

    def __init__(self, kind):
        self._kind = kind

    def __call__(self, text: str) -> Any:
        if self._kind is str:
            return text
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        if self._kind is int and isinstance(value, float) and value % 1 == 0:
            value = int(value)
        if not _is_a(self._kind, value):
            raise argparse.ArgumentTypeError(
                f"must be {_KINDS[self._kind]}. Received: {text!r}."
            )
        return value


def _declared(cls):
    return [f for f in dataclasses.fields(cls) if "help" in f.metadata]


def _defaults(cls):
    instance = cls()
    return {f.name: getattr(instance, f.name) for f in _declared(cls)}


def _is_a(kind, value):
    if isinstance(value, bool):
        return kind is bool
    allowed = {float: (int, float), dict: Mapping}.get(kind, kind)
    return isinstance(value, allowed)


def _metavar(kind):
    return {int: "N", float: "X", str: "TEXT", dict: "JSON"}[kind]


def _check_bounds(name, value, bounds):
    low, high, below = (bounds[key] for key in ("low", "high", "below"))
    fits = (
        (low is None or value >= low)
        and (high is None or value <= high)
        and (below is None or value < below)
    )
    if fits:
        return
    if high is not None:
        allowed = f"lie between {low} and {high}"
    elif below is not None:
        allowed = f"be at least {low} and below {below}"
    else:
        allowed = f"be at least {low}"
    raise ValueError(f"`{name}` must {allowed}. Received: {name}={value!r}.")
