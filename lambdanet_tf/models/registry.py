"""Networks by name, as recipes, exports and command lines give them."""

from typing import Any

import tensorflow as tf

from lambdanet_tf import specs
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.models import named


def names() -> tuple[str, ...]:
    """Returns the names of all networks."""
    return (*specs.RESNETS, *specs.MOBILENETS)


def build(name: str, **arguments: Any) -> tf.keras.Model:
    """Builds a network by its name.

    Args:
        name: one of `names()`.
        **arguments: of the builder of that name; lists, as JSON has them,
            count as tuples.

    Returns:
        What the builder returns.

    Raises:
        ValueError: if there is no such network, or it has no such argument.
    """
    if name not in names():
        raise ValueError(
            f"`name` must be a network of lambdanet_tf.models. Received: "
            f"{name!r}.{did_you_mean(str(name), names())} There are: "
            f"{', '.join(names())}."
        )
    arguments = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in arguments.items()
    }
    return getattr(named, name)(**arguments)
