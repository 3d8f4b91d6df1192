"""Checks of constructor arguments, with the errors that a user reads."""

import numbers
from typing import Any


def positive_int(name, value):
    """Returns `value` as an int, or raises `ValueError`."""
    if (
        isinstance(value, bool)
        or not isinstance(value, numbers.Integral)
        or value < 1
    ):
        raise ValueError(
            f"`{name}` must be a positive integer. Received: {name}={value!r}."
        )
    return int(value)


def one_of(name, value, allowed):
    """Returns `value` if it is in `allowed`, or raises `ValueError`."""
    if not any(value is choice or value == choice for choice in allowed):
        raise ValueError(
            f"`{name}` must be one of {tuple(allowed)}. Received: "
            f"{name}={value!r}."
        )
    return value


def int_per_axis(name, value, rank=None) -> Any:
    """A positive int, or one per axis; with a rank, always a tuple."""
    if isinstance(value, (list, tuple)):
        value = tuple(positive_int(name, size) for size in value)
        if not 1 <= len(value) <= 3 or rank not in (None, len(value)):
            raise ValueError(
                f"`{name}` must be an integer or one integer per spatial axis "
                f"({rank or '1 to 3'}). Received: {name}={value}."
            )
        return value
    value = positive_int(name, value)
    return value if rank is None else (value,) * rank


def scope_per_axis(name, value, rank=None):
    """None (global), an odd int, or one odd int per axis."""
    if value is None:
        return None
    value = int_per_axis(name, value, rank)
    sizes = value if isinstance(value, tuple) else (value,)
    if any(size % 2 == 0 for size in sizes):
        raise ValueError(
            f"`{name}` must be odd, so that a scope has a centre. Received: "
            f"{name}={value}."
        )
    return value
