"""Signatures of builders; each common argument is declared once."""

import functools
import inspect
from collections.abc import Callable
from typing import Any
from typing import Concatenate
from typing import ParamSpec

import tensorflow as tf

from lambdanet_tf import specs

_Arguments = ParamSpec("_Arguments")
_Builder = Callable[..., tf.keras.Model]


def with_spec(
    common: Callable[Concatenate[Any, Any, _Arguments], tf.keras.Model],
) -> Callable[
    [_Builder], Callable[Concatenate[Any, _Arguments], tf.keras.Model]
]:
    """Decorates a builder that passes its other arguments to `Network`."""
    _, _, *parameters = inspect.signature(common).parameters.values()

    def decorate(function):
        spec, _ = inspect.signature(function).parameters.values()
        return _with_parameters(function, [spec, *parameters])

    return decorate


def named(
    common: Callable[Concatenate[Any, _Arguments], tf.keras.Model],
) -> Callable[[_Builder], Callable[_Arguments, tf.keras.Model]]:
    """Decorates the builder of a preset; both have the same name."""
    _, *parameters, changes = inspect.signature(common).parameters.values()

    def decorate(function):
        function.__doc__ += f"""

    `{common.__name__}` describes the arguments, the returned model and the
    errors. You can change every attribute of the spec by keyword.
    """
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
    """Gives a function of keyword arguments another visible signature."""
    signature = inspect.Signature(parameters)

    @functools.wraps(function)
    def builder(*args, **kwargs):
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{function.__name__}: {error}") from None
        named = dict(zip(signature.parameters, args, strict=False))
        return function(**named, **kwargs)

    setattr(builder, "__signature__", signature)  # noqa: B010
    return builder
