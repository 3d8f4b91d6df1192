"""Signatures of builders, whose common arguments are declared once."""

import functools
import inspect
from collections.abc import Callable
from typing import Any
from typing import Concatenate
from typing import ParamSpec

import tensorflow as tf

from lambdanet_tf import specs
from lambdanet_tf.arguments import checked_arguments

_Arguments = ParamSpec("_Arguments")
_Builder = Callable[..., tf.keras.Model]


def with_spec(
    common: Callable[Concatenate[Any, Any, _Arguments], tf.keras.Model],
) -> Callable[
    [_Builder], Callable[Concatenate[Any, _Arguments], tf.keras.Model]
]:
    """Decorates a builder that passes all but its spec on to `Network`."""
    _, _, *parameters = inspect.signature(common).parameters.values()

    def decorate(function):
        spec, _ = inspect.signature(function).parameters.values()
        return _with_parameters(function, [spec, *parameters])

    return decorate


def named(
    common: Callable[Concatenate[Any, _Arguments], tf.keras.Model],
) -> Callable[[_Builder], Callable[_Arguments, tf.keras.Model]]:
    """Decorates the builder of a preset, called by the preset's name.

    It takes the arguments of `common` except for the spec, its own, whose
    defaults count, and the attributes of the preset's spec, by keyword.
    """
    _, *parameters, changes = inspect.signature(common).parameters.values()

    def decorate(function):
        own = dict(inspect.signature(function).parameters)
        own = {p.name: p for p in own.values() if p.kind is p.KEYWORD_ONLY}
        shown = [
            p.replace(default=own.pop(p.name).default) if p.name in own else p
            for p in parameters
        ]
        attributes = dict(vars(specs.PRESETS[function.__name__].spec))
        del attributes["name"]
        keyword = inspect.Parameter.KEYWORD_ONLY
        attributes = [
            inspect.Parameter(name, keyword, default=value)
            for name, value in attributes.items()
        ]
        return _with_parameters(
            function, [*shown, *own.values(), *attributes, changes]
        )

    return decorate


def _with_parameters(function, parameters):
    """A builder that takes parameters and passes them on by name."""
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

    @functools.wraps(function)
    def builder(*args, **kwargs):
        return function(**dict(zip(names, args, strict=False)), **kwargs)

    setattr(builder, "__signature__", inspect.Signature(parameters))  # noqa: B010
    return checked_arguments(builder)
