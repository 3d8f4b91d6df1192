"""The calls that a functional model consists of."""

import tensorflow as tf

from lambdanet_tf.environment import KERAS_3


def graph_of(model):
    """The functional model behind a model."""
    return getattr(model, "_functional", None) or model


def is_graph(layer):
    """Whether a layer is a model whose layers are known as a graph."""
    return isinstance(layer, tf.keras.Model) and hasattr(
        graph_of(layer), "_nodes_by_depth"
    )


def nodes(graph):
    """The calls that a graph consists of, each after what it needs.

    No public name tells of them, in either Keras; these are the same in both.
    """
    depths = graph._nodes_by_depth
    for depth in sorted(depths, reverse=True):
        for node in depths[depth]:
            if not node.is_input and operation_of(node) is not None:
                yield node


def operation_of(node):
    """The layer of a call, or another operation."""
    return node.operation if KERAS_3 else node.layer


def arguments_of(node):
    """The arguments of a call: a tuple, and a dictionary."""
    if KERAS_3:
        return tuple(node.arguments.args), dict(node.arguments.kwargs)
    return tuple(node.call_args), dict(node.call_kwargs)


def symbolic(arguments):
    """The symbolic tensors among the arguments of a call."""
    flat = tf.nest.flatten(arguments)
    return [x for x in flat if hasattr(x, "_keras_history")]
