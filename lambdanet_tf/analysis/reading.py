"""How much a position reads from others in a network's lambda layers."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.analysis.calls import observed
from lambdanet_tf.analysis.parts import lambda_calls
from lambdanet_tf.analysis.parts import place_on
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.models.graph import named_arguments


def read(
    model: tf.keras.Model,
    inputs: Any,
    position: Any = None,
    layers: str | Sequence[str] | None = None,
) -> dict[str, ops.Reading]:
    """Returns how much a position of the inputs reads, for each lambda layer.

    Args:
        model: a functional Keras model with one input.
        inputs: array of examples, as the model takes them.
        position: a position of the inputs, one index per spatial axis, such as
            a pixel's row and column. In each layer, the query is the position
            of the map that covers it. None for the center.
        layers: one or more names of lambda layers, or prefixes of names such
            as "stage4". None for all.

    Returns:
        A dictionary from each layer's name to a `lambdanet_tf.ops.Reading` of
        one query, in the order of the model. A layer of a nested model is
        `model/layer`, a second call of a layer `layer_call2`.

    Raises:
        ValueError: if there is no such layer or position.
    """
    names = _chosen([name for name, _ in lambda_calls(model)], layers)
    inputs = tf.convert_to_tensor(inputs)
    readings = {}
    calls = observed(model, inputs, lambda name, _: name in names)
    for name, (layer, args, kwargs, outputs) in calls.items():
        grid = tuple(outputs.shape[1:-1])
        sizes = inputs.shape[1 : 1 + len(grid)]
        place = tuple(
            index * count // size
            for index, size, count in zip(
                place_on(sizes, position, "inputs"), sizes, grid, strict=True
            )
        )
        given = named_arguments(layer, args, kwargs)
        readings[name] = layer.read(given.pop("inputs"), [place], **given)
    return readings


def _chosen(names, wanted):
    """Returns the names that begin with one of the wanted prefixes."""
    if wanted is None:
        return names
    wanted = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    for start in wanted:
        if not any(name.startswith(start) for name in names):
            raise ValueError(
                "`layers` must be names of lambda layers, or prefixes of them. "
                f"Received: {start!r}.{did_you_mean(start, names)} The lambda "
                f"layers are: {', '.join(names)}."
            )
    return [name for name in names if name.startswith(wanted)]
