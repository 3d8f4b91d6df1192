"""Cloning of functional models, whose layers may share position tables."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lambdanet_tf.models.graph import arguments_of
from lambdanet_tf.models.graph import graph_of
from lambdanet_tf.models.graph import has_own_call
from lambdanet_tf.models.graph import input_like
from lambdanet_tf.models.graph import is_graph
from lambdanet_tf.models.graph import layers_in
from lambdanet_tf.models.graph import nodes
from lambdanet_tf.models.graph import operation_of


def check_functional(model: Any) -> None:
    """Raises a ValueError unless a model is functional."""
    try:
        is_functional = bool(model.inputs) and not has_own_call(model)
    except (AttributeError, ValueError):  # Raised by Keras 3.
        is_functional = False
    if not is_functional:
        raise ValueError(
            "`model` must be a functional model of `tf.keras`. Received: "
            f"{model!r}. To convert a subclassed model, write `images = "
            "tf.keras.Input((height, width, channels))`, then "
            "`tf.keras.Model(images, model.call(images))`."
        )


def clone_network(
    model: tf.keras.Model,
    input_tensors: Any = None,
    clone_layer: Callable | None = None,
) -> tf.keras.Model:
    """Copies a network with new weights, and preserves shared embeddings.

    (`tf.keras.models.clone_model` gives each layer its own table.)

    Args:
        model: a functional model.
        input_tensors: Keras tensors to build on, for example of another size,
            in the model's order; None for inputs like the model's.
        clone_layer: function of a layer and its config that returns its copy;
            None for an identical layer. If the layer shares a table, the config
            holds the copy of that table. The function is not called for layers
            of nested models.

    Raises:
        ValueError: if the model is not functional.
    """
    check_functional(model)
    tables, copies = {}, {}

    def copy_of(layer, path, *_):
        # Keras 3 cannot create a `Lambda` from its configuration.
        is_lambda = isinstance(layer, tf.keras.layers.Lambda)
        if clone_layer is not None and not path and not is_lambda:
            return clone_layer(layer, config_with_table(layer, tables))
        return copied(layer, tables)

    clone = rebuild(model, copy_of, copies, input_tensors)
    for layer in layers_in(model):
        if is_graph(layer) and id(layer) in copies and not layer.trainable:
            copies[id(layer)].trainable = False
    return clone


def rebuild(
    model: tf.keras.Model,
    successor: Callable,
    copies: dict[int, Any],
    input_tensors: Any = None,
    path: str = "",
) -> tf.keras.Model:
    """Builds a functional model again, including nested models.

    `successor` returns the replacement of a layer. It is a function of the
    layer, the path of the nested models that contain it ("backbone/"), and the
    new arguments of its first call, a tuple and a dictionary. `copies` keeps
    the replacement by the `id` of the layer.
    """
    graph, tensors = graph_of(model), {}

    def add(old, new):
        flat = tf.nest.flatten(old), tf.nest.flatten(new)
        tensors.update({id(x): y for x, y in zip(*flat, strict=True)})

    def new(old):
        return tf.nest.map_structure(lambda x: tensors.get(id(x), x), old)

    if input_tensors is None:
        input_tensors = tf.nest.map_structure(input_like, graph.input)
    add(graph.input, input_tensors)
    for node in nodes(graph):
        layer = operation_of(node)
        args, kwargs = map(new, arguments_of(node))
        if id(layer) not in copies and is_graph(layer):
            inside = f"{path}{layer.name}/"
            copies[id(layer)] = rebuild(layer, successor, copies, path=inside)
        elif id(layer) not in copies:
            copies[id(layer)] = successor(layer, path, args, kwargs)
        add(node.outputs, copies[id(layer)](*args, **kwargs))
    return tf.keras.Model(new(graph.input), new(graph.output), name=model.name)


def copied(layer: Any, tables: dict[int, Any]) -> Any:
    """Returns a new layer of the same class, by its config."""
    if isinstance(layer, tf.keras.layers.Lambda):
        return layer  # Keras cannot create one from a config.
    return type(layer).from_config(config_with_table(layer, tables))


def config_with_table(layer: Any, tables: dict[int, Any]) -> dict[str, Any]:
    """Returns a layer's config, with a copy of its table from `tables`."""
    config = layer.get_config()
    if isinstance(config.get("position_embedding"), dict):
        table = layer.position_embedding
        if id(table) not in tables:
            tables[id(table)] = type(table).from_config(table.get_config())
        config["position_embedding"] = tables[id(table)]
    return config
