"""Checks of the attributes of a spec, and copies with other attributes."""

import dataclasses
import math
import numbers

from lambdanet_tf.arguments import check_types
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.arguments import one_of

# Choices that no layer checks.
_CHOICES = {
    "padding": ("same", "symmetric"),
    "shortcut": ("pool", "conv"),
    "drop_path_schedule": ("stage", "block", "constant"),
}


def check_attributes(spec):
    """Raises a ValueError for a wrong type or a number out of range.

    First it converts lists to tuples, because JSON and Keras return lists.
    """
    for name, value in vars(spec).items():
        if isinstance(value, list):
            object.__setattr__(spec, name, tuple(value))
    check_types(spec)
    for field in dataclasses.fields(spec):
        name, value = field.name, getattr(spec, field.name)
        least = 0 if "float" in str(field.type) else 1
        for x in value if isinstance(value, tuple) else (value,):
            is_number = isinstance(x, numbers.Real) and not isinstance(x, bool)
            if x == "" or (is_number and not least <= float(x) < math.inf):
                raise ValueError(
                    f"`{name}` must be {'positive' if least else 'at least 0'}"
                    f" and finite. Received: {name}={value!r}."
                )
        if name in _CHOICES:
            one_of(name, value, _CHOICES[name])


def replace(spec, changes, others=()):
    """Returns a copy of a spec with some attributes changed.

    Args:
        spec: `ResNetSpec` or `MobileNetSpec`.
        changes: dictionary from attribute to value.
        others: other arguments of the caller, for "Did you mean".

    Raises:
        ValueError: if there is no such attribute, or a value is out of range.
    """
    _, *fields = [field.name for field in dataclasses.fields(spec)]  # No name.
    for name, value in changes.items():
        if name not in fields:
            raise ValueError(
                f"`{name}` is not an argument of {spec.name}. Received: "
                f"{name}={value!r}.{did_you_mean(name, (*fields, *others))} "
                "Its arguments are those of every builder (include_top, "
                f"weights, ...) and {', '.join(fields)}."
            )
    return dataclasses.replace(spec, **changes)
