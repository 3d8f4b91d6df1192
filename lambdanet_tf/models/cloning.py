"""Copies of networks that keep what their layers share."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def check_functional(model: Any) -> None:
    """Raises a ValueError unless the layers of a model are known as a graph.

    Args:
        model: what must be a functional model, or a Sequential with inputs.

    Raises:
        ValueError: if it is none; the text says how to wrap it.

    Examples:
        >>> check_functional(models.LambdaResNetSmall())
    """
    if not isinstance(model, tf.keras.Model):
        raise ValueError(
            "`model` must be a model of `tf.keras`. Received: a "
            f"{type(model).__module__}.{type(model).__name__}."
        )
    try:
        is_graph = bool(model.inputs and model.outputs)
    except (AttributeError, ValueError):  # As Keras 3 says it.
        is_graph = False
    if not is_graph:
        raise ValueError(
            "`model` must be a functional model, whose layers are known as a "
            f"graph. Received: {model.name!r}, a {type(model).__name__} "
            "without inputs. Wrap it: `images = tf.keras.Input((height, width, "
            "channels))`, then `tf.keras.Model(images, model.call(images))`."
        )


def clone_network(
    model: tf.keras.Model,
    input_tensors: Any = None,
    clone_layer: Callable | None = None,
) -> tf.keras.Model:
    """Copies a network, with new weights, sharing embeddings as it does.

    `tf.keras.models.clone_model` gives each layer a table of its own, and
    warns.

    Args:
        model: a functional model.
        input_tensors: Keras tensors to build on, of another size for instance;
            None for inputs like the model's.
        clone_layer: function of a layer and its config that returns its copy;
            None for the same layer. The config of a layer that shares its table
            holds the copy of that table.

    Returns:
        A functional model.

    Raises:
        ValueError: if the model is not functional.

    Examples:
        >>> model = models.LambdaResNetSmall()
        >>> clone_network(model).count_params() == model.count_params()
        True
    """
    check_functional(model)
    tables = {}

    def clone(layer):
        config = config_with_table(layer, tables)
        if clone_layer is not None:
            return clone_layer(layer, config)
        return type(layer).from_config(config)

    return tf.keras.models.clone_model(
        model, input_tensors=input_tensors, clone_function=clone
    )


def config_with_table(layer: Any, tables: dict[int, Any]) -> dict[str, Any]:
    """Returns the config of a layer, which holds a copy of a shared table.

    Args:
        layer: of any kind.
        tables: the copies that there are, by the `id` of what they copy; a new
            one is added.
    """
    config = layer.get_config()
    if isinstance(config.get("position_embedding"), dict):
        table = layer.position_embedding
        if id(table) not in tables:
            tables[id(table)] = type(table).from_config(table.get_config())
        config["position_embedding"] = tables[id(table)]
    return config
