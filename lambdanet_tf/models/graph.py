"""The graph of calls of a functional model.

Neither Keras has a public API for it, so only this file uses private names.
"""

import collections
import inspect
from typing import Any

import tensorflow as tf

from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.environment import keras_mask


def graph_of(model):
    """Returns the functional model behind a model."""
    return getattr(model, "_functional", None) or model


def is_graph(layer):
    """Returns whether a layer is a functional model."""
    return (
        isinstance(layer, tf.keras.Model)
        and hasattr(graph_of(layer), "_nodes_by_depth")
        and not has_own_call(layer)
    )


def has_own_call(model):
    """Returns whether a model defines its own `call`."""
    own = next(x for x in type(model).__mro__ if "call" in vars(x))
    packages = [x.__module__.split(".")[0] for x in (own, tf.keras.Model)]
    return packages[0] != packages[1]


def nodes(graph):
    """Yields the calls of a graph, each after the calls that it needs."""
    for node in _with_inputs(graph):
        if not node.is_input and operation_of(node) is not None:
            yield node


def _with_inputs(graph):
    depths = graph._nodes_by_depth
    for depth in sorted(depths, reverse=True):
        yield from depths[depth]


def calls(model):
    """Yields the calls of a functional model: a name, the layer and the node.

    The name is the layer's name; the name of its second call is
    `<name>_call2`.
    """
    counts = collections.Counter()
    for node in nodes(graph_of(model)):
        layer = operation_of(node)
        counts[layer.name] += 1
        number = counts[layer.name]
        name = layer.name if number == 1 else f"{layer.name}_call{number}"
        yield name, layer, node


def walk(model, inputs, call):
    """Computes the outputs of a functional model, call by call.

    Args:
        model: the model.
        inputs: its inputs, in any nested structure.
        call: function of a call's name, its layer and `arguments` that returns
            the outputs. `arguments(change)` returns the arguments, a tuple and
            a dictionary, after it applies `change` to every tensor that the
            model computed.
    """
    graph, values = graph_of(model), {}
    flat = tf.nest.flatten(inputs)
    for symbol, value in zip(graph.inputs, flat, strict=True):
        values[id(symbol)] = tf.cast(value, symbol.dtype)
    for name, layer, node in calls(model):

        def arguments(change=lambda x: x, node=node):
            return tf.nest.map_structure(
                lambda x: change(values[id(x)]) if id(x) in values else x,
                arguments_of(node),
            )

        outputs = tf.nest.flatten(call(name, layer, arguments))
        symbols = tf.nest.flatten(node.outputs)
        values.update(zip(map(id, symbols), outputs, strict=True))
    outputs = [values[id(symbol)] for symbol in graph.outputs]
    return outputs[0] if len(outputs) == 1 else outputs


def operation_of(node):
    """Returns the layer of a call, or another operation."""
    return node.operation if KERAS_3 else node.layer


def arguments_of(node):
    """Returns the arguments of a call: a tuple, and a dictionary."""
    if KERAS_3:
        # Keras adds the masks of these tensors; new tensors have their own.
        args, kwargs = tuple(node.arguments.args), node.arguments.kwargs
        masks = [keras_mask(x) for x in tf.nest.flatten((args, kwargs))]
        given = {
            name: value
            for name, value in kwargs.items()
            if name != "mask" or not any(value is mask for mask in masks)
        }
        return args, given
    return tuple(node.call_args), dict(node.call_kwargs)


def output_of(node):
    """Returns the first output of a call."""
    return tf.nest.flatten(node.outputs)[0]


def named_arguments(layer, args, kwargs) -> dict[Any, Any]:
    """Returns the arguments of a layer's call by name, the first one first."""
    try:
        bound = inspect.signature(layer.call).bind(*args, **kwargs)
        return dict(bound.arguments)
    except TypeError:  # Only `__call__` takes some of the arguments.
        return dict(enumerate(args)) | kwargs


def is_symbolic(x):
    """Returns whether x is a Keras tensor."""
    return hasattr(x, "_keras_history")


def symbolic(arguments):
    """Returns the Keras tensors among the arguments of a call."""
    return [x for x in tf.nest.flatten(arguments) if is_symbolic(x)]


def input_like(x):
    """Returns a new input tensor like x."""
    layer = x._keras_history[0]
    return type(layer).from_config(layer.get_config()).output


def layers_in(layer, recursive=True):
    """Returns the layers inside a layer, with itself if `recursive`."""
    return list(
        layer._flatten_layers(include_self=recursive, recursive=recursive)
    )
