"""The calls of a model and of nested models, by name."""

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from lambdanet_tf.models.graph import calls
from lambdanet_tf.models.graph import is_graph
from lambdanet_tf.models.graph import walk


def all_calls(
    model: tf.keras.Model, prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yields name, layer and node of every call, also in nested models."""
    for name, layer, node in calls(model):
        if is_graph(layer):
            yield from all_calls(layer, f"{prefix}{name}/")
        elif isinstance(layer, tf.keras.layers.Layer):
            yield prefix + name, layer, node


def observed(
    model: tf.keras.Model, inputs: Any, is_wanted: Callable[[str, Any], bool]
) -> dict[str, tuple[Any, tuple, dict[str, Any], Any]]:
    """Returns layer, args, kwargs and outputs of the wanted calls, by name."""
    found = {}

    def observe(prefix, name, layer, arguments):
        args, kwargs = arguments()
        name = prefix + name
        if is_graph(layer):
            return compute(layer, args, f"{name}/")
        outputs = layer(*args, **kwargs)
        if is_wanted(name, layer):
            found[name] = layer, args, kwargs, outputs
        return outputs

    def compute(part, tensors, prefix):
        return walk(part, tensors, lambda *call: observe(prefix, *call))

    compute(model, inputs, "")
    return found
