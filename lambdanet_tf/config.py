"""Command lines from dataclasses: a field is declared once and becomes a flag.

    @dataclasses.dataclass(frozen=True)
    class Options:
        epochs: int = config.field(90, "passes over the images", low=1)

        def __post_init__(self):
            config.check(self)

This module does not import TensorFlow.
"""

import argparse
import contextlib
import dataclasses
import json
import math
import operator
import os
import re
import sys
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import NoReturn

from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import check_types
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import users_input

EXIT_BAD, EXIT_USAGE = 1, 2

_BOUNDS = (
    ("low", operator.ge, "at least"),
    ("low", lambda x, _: math.isfinite(x), "finite, and at least"),
    ("high", operator.le, "at most"),
    ("below", operator.lt, "below"),
)


def field(default: Any, help: str, **more: Any) -> Any:  # noqa: A002
    """Declares a field of a dataclass that is also a flag.

    Args:
        default: an int, a float, a bool, a str, a dict or None.
        help: the description that `--help` shows.
        **more: the allowed values as `low`, `high`, `below` (numbers) or
            `choices`; `metavar`, the placeholder of the value in the help; and
            `kind`, the type of the value, if the default is None.

    Returns:
        The result of `dataclasses.field`.
    """
    metadata = {"help": help, "kind": type(default), **more}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@users_input()
def check(instance: Any) -> None:
    """Raises a `UserError` unless all declared fields have allowed values.

    It converts dictionaries and NumPy's numbers to values of JSON.
    """
    check_types(instance)
    for each in _declared(type(instance)):
        name, value = each.name, getattr(instance, each.name)
        if value is None:
            continue
        text = json.dumps(value, default=lambda number: number.tolist())
        object.__setattr__(instance, name, json.loads(text))
        if "choices" in each.metadata:
            one_of(name, value, each.metadata["choices"])
        for bound, holds, words in _BOUNDS:
            limit = each.metadata.get(bound)
            if limit is not None and not holds(value, limit):
                raise ValueError(
                    f"`{name}` must be {words} {limit}. Received: "
                    f"{name}={value!r}."
                )


def replace(instance: Any, changes: Mapping[str, Any]) -> Any:
    """Returns a copy of a dataclass with some declared fields changed.

    Raises:
        UserError: if there is no such field, or if its value is not allowed.
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
    """Adds a flag for each declared field of a dataclass; see `given`.

    Args:
        group: an `ArgumentParser` or an argument group of one.
        cls: the dataclass.
        defaults: values to show in the help in place of the fields' own.
    """
    for each in _declared(cls):
        shown = (defaults or {}).get(each.name, each.default)
        add_flag(group, each.name, None, shown=shown, **each.metadata)


def add_flag(
    group: Any,
    name: str,
    default: Any,
    help: str,  # noqa: A002
    shown: Any = None,
    **more: Any,
) -> None:
    """Adds a flag with a default value.

    Args:
        group: as in `add_flags`.
        name: name of the flag, with underscores.
        default: as in `field`; None for the fields of a dataclass.
        help: as in `field`.
        shown: the default that the help shows; None for `default`.
        **more: `kind` and `metavar`, as in `field`.
    """
    shown = default if shown is None else shown
    kind = more.get("kind", type(shown))
    text = help.replace("%", "%%")
    if isinstance(shown, int | float | str) and f"{shown}" not in ("", "False"):
        text += f" (default: {shown})"
    how: dict[str, Any] = {"action": "store_true"}
    if default is None:
        how["action"] = argparse.BooleanOptionalAction
    if kind is not bool:
        reader, metavar = _READERS[kind]
        how = {"type": reader, "metavar": more.get("metavar", metavar)}
    flag = "--" + name.replace("_", "-")
    group.add_argument(flag, default=default, help=text, **how)


def given(namespace: argparse.Namespace, cls: type) -> dict[str, Any]:
    """Returns the fields of a dataclass that the user passed as flags."""
    values = {f.name: getattr(namespace, f.name) for f in _declared(cls)}
    return {k: v for k, v in values.items() if v is not None}


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `UserError`s and suggests a flag."""

    def error(self, message: str) -> NoReturn:
        """Raises a `UserError` with argparse's message."""
        flags = re.findall("--[a-z-]+", self.format_help())
        wrong = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        hint = did_you_mean(wrong[1], flags) if wrong else ""
        raise UserError(f"{message.removeprefix('argument ')}.{hint}")


def run(action: Callable[[], int], prog: str) -> int:
    """Runs a command; prints an error with an exit code in one line.

    Args:
        action: the command; returns its exit code.
        prog: the beginning of the line.

    Returns:
        The exit code of the action or the error; 130 after Ctrl-C, 141 if the
        reader of the output has closed.
    """
    # Else TensorFlow's C++ code reports a missing GPU as an error.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        try:
            return action()
        finally:  # At the exit of the process nobody would catch its error.
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print(f"\n{prog}: interrupted", file=sys.stderr)
        return 130
    except BaseException as error:
        code = getattr(error, "exit_code", None)
        if code is None:
            raise
        print("\n" * (code > EXIT_USAGE) + f"{prog}: {error}", file=sys.stderr)
        return code


def json_object(text: str) -> dict[str, Any]:
    """Reads a JSON object."""
    with contextlib.suppress(TypeError, ValueError):
        return dict(json.loads(text))
    raise argparse.ArgumentTypeError("must be a JSON object: '{\"scope\": 7}'")


# A shell does not expand the "~" of `--run-dir=~/x`.
_READERS: dict[type, tuple[Callable[[str], Any], str]] = {
    int: (int, "N"),
    float: (float, "X"),
    str: (os.path.expanduser, "NAME"),
    dict: (json_object, "JSON"),
}


def _declared(cls):
    return [f for f in dataclasses.fields(cls) if "help" in f.metadata]
