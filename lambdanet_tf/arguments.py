"""Checks of arguments, and the errors that users read."""

import contextlib
import dataclasses
import difflib
import numbers
import typing
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NoReturn


class UserError(ValueError):
    """An error in the user's input; its text says what is wrong.

    A command prints this text in one line. Any other error is a bug of ours,
    and keeps its traceback.
    """

    exit_code = 2


@contextlib.contextmanager
def users_input() -> Iterator[None]:
    """Turns a ValueError inside into a `UserError`; also a decorator."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        explained = UserError(f"{error}").with_traceback(error.__traceback__)
        raise explained from error.__cause__


def did_you_mean(name: str, names: Iterable[str], cutoff: float = 0.55) -> str:
    """Returns " Did you mean ...?" for the most similar name, or ""."""
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f" Did you mean {near[0]!r}?" if near else ""


def refuse(name: str, value: Any, wanted: str, hint: str = "") -> NoReturn:
    """Raises the `ValueError` of an argument with a wrong value."""
    raise ValueError(
        f"`{name}` must be {wanted}. Received: {name}={value!r}.{hint}"
    )


def _is_int(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def positive_int(name: str, value: Any) -> int:
    """Returns `value` as an int, or raises `ValueError`."""
    if not (_is_int(value) and value > 0):
        refuse(name, value, "a positive integer")
    return int(value)


def check_int(name: str, value: Any, least: int, most: int) -> None:
    """Raises `ValueError` unless a value is an integer in a range."""
    if not (_is_int(value) and least <= value <= most):
        refuse(name, value, f"an integer from {least} to {most}")


def boolean(name: str, value: Any) -> bool:
    """Returns `value` as a bool, or raises `ValueError`."""
    # NumPy's bool by its name, because this module does not import NumPy.
    if type(value).__name__ not in ("bool", "bool_"):
        refuse(name, value, "True or False")
    return bool(value)


def fraction(name: str, value: Any, below_one: bool = False) -> float:
    """Returns `value` if it lies in [0, 1], or raises `ValueError`."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if is_number and 0 <= float(value) <= 1 and not (below_one and value == 1):
        return float(value)
    refuse(name, value, "a number in " + ("[0, 1)" if below_one else "[0, 1]"))


def one_of(name: str, value: Any, allowed: Iterable[Any]) -> Any:
    """Returns `value` if it is in `allowed`, or raises `ValueError`."""
    allowed = tuple(allowed)
    if not any(value is choice or value == choice for choice in allowed):
        # A similar value may mean something else: "channels_first".
        texts = [choice for choice in allowed if isinstance(choice, str)]
        hint = did_you_mean(f"{value}", texts, cutoff=0.85)
        refuse(name, value, f"one of {allowed}", hint)
    return value


def int_per_axis(name: str, value: Any, rank: int | None = None) -> Any:
    """Returns a positive int, or one per axis; with `rank`, a tuple."""
    if isinstance(value, (list, tuple)):
        value = tuple(positive_int(name, size) for size in value)
        if not 1 <= len(value) <= 3 or rank not in (None, len(value)):
            axes = f"spatial axis (here {rank or '1 to 3'})"
            refuse(name, value, f"an integer or one integer per {axes}")
        return value
    value = positive_int(name, value)
    return value if rank is None else (value,) * rank


def scope_per_axis(name: str, value: Any, rank: int | None = None) -> Any:
    """Returns None (global), an odd int, or one odd int per axis."""
    if value is None:
        return None
    value = int_per_axis(name, value, rank)
    sizes = value if isinstance(value, tuple) else (value,)
    if even := [size for size in sizes if size % 2 == 0]:
        near = f"try {even[0] - 1} or {even[0] + 1}"
        refuse(name, value, f"odd, so that the window has a center: {near}")
    return value


def check_types(instance: Any) -> None:
    """Raises `ValueError` if a field of a dataclass has another type."""
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if not _is_a(value, field.type):
            hint = getattr(field.type, "__name__", str(field.type))
            hint = str(field.type) if typing.get_args(field.type) else hint
            refuse(field.name, value, hint)


def _is_a(value, hint):
    """Returns whether a value fits an annotation; an int is also a float."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, tuple):
            return False
        if arguments[-1] is Ellipsis:
            return all(_is_a(item, arguments[0]) for item in value)
        return len(value) == len(arguments) and all(
            map(_is_a, value, arguments)
        )
    if typing.get_origin(hint) is Mapping:
        return isinstance(value, Mapping)
    if arguments:
        return any(_is_a(value, choice) for choice in arguments)
    if isinstance(value, bool):
        return hint is bool
    numeric = {int: numbers.Integral, float: numbers.Real}
    return isinstance(value, numeric.get(hint, hint))
