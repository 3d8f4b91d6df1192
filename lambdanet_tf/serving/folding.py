"""Folds batch normalization into the linear layers before it.

In inference, batch normalization is an affine map of each channel, and the
linear layer before it can compute that map itself:

    gamma (W x - mean) / sqrt(variance + epsilon) + beta = (s W) x + b,
    s = gamma / sqrt(variance + epsilon),   b = beta - s mean.

The function stays the same, up to rounding. We cannot fold the normalization
after a lambda layer, because it scales each channel of each head, but all heads
share the values, and all values of a head share its queries.
"""

import collections

import numpy as np
import tensorflow as tf

from lambdanet_tf.layers import BatchNormalization
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers.lambda_base import LambdaBase
from lambdanet_tf.models.cloning import clone_network
from lambdanet_tf.models.graph import arguments_of
from lambdanet_tf.models.graph import graph_of
from lambdanet_tf.models.graph import nodes
from lambdanet_tf.models.graph import operation_of
from lambdanet_tf.models.graph import output_of
from lambdanet_tf.models.graph import symbolic
from lambdanet_tf.models.weights import copy_weights

_NORMS = (tf.keras.layers.BatchNormalization, BatchNormalization)


class _BiasForNorm(LambdaBase):
    """Gives queries and values the biases that replace their norms."""

    def _build_sublayer(self, layer, shape):
        if layer.name in ("query", "value"):
            layer.use_bias = True
        return super()._build_sublayer(layer, shape)


class FoldedLambdaLayer(_BiasForNorm, LambdaLayer):
    """A `LambdaLayer` for inference with both of its norms folded."""


class FoldedLambdaConv(_BiasForNorm, LambdaConv):
    """A `LambdaConv` for inference with both of its norms folded."""


class _Identity(tf.keras.layers.Layer):
    """Replaces a folded norm, with the same call arguments."""

    def call(self, inputs, training=None, mask=None):
        return inputs


def fold_batch_norm(
    model: tf.keras.Model, implementation: str | None = None
) -> tf.keras.Model:
    """Copies a model for inference, with batch normalization folded.

    It folds the norm after a `Conv2D`, `DepthwiseConv2D` or `Dense` layer, and
    the norms of a lambda layer's queries and values. It copies all others.

    Args:
        model: a functional model.
        implementation: algorithm of the lambda layers; None keeps theirs.

    Returns:
        A functional model that computes the same function.
    """
    norms = _foldable_norms(model)
    folded_names = {norm.name for norm in norms.values()}

    def clone(layer, config):
        if layer.name in folded_names:
            # Under the model's policy, not the global one.
            return _Identity(name=layer.name, dtype=config["dtype"])
        if layer.name in norms:
            config["use_bias"] = True
        if type(layer) in _LAMBDAS:
            config["use_batch_norm"] = False
            config["implementation"] = implementation or layer.implementation
        return _LAMBDAS.get(type(layer), type(layer)).from_config(config)

    graph = graph_of(model)  # A Keras 3 Sequential itself has no `input`.
    # A plain model, because Keras 3 would also need the loss for the copy.
    plain = tf.keras.Model(graph.input, graph.output, name=model.name)
    folded = clone_network(plain, clone_layer=clone)
    for layer in model.layers:
        if not layer.weights or layer.name in folded_names:
            continue
        copy = folded.get_layer(layer.name)
        if layer.name in norms:
            _set_linear(copy, layer, norms[layer.name])
        elif type(layer) in _LAMBDAS:
            _set_lambda(copy, layer)
        else:
            copy_weights(layer, copy)
    return folded


def _foldable_norms(model):
    """Maps the names of layers to the norms that can be folded into them."""
    graph = graph_of(model)
    calls = collections.Counter(
        operation_of(node).name for node in nodes(graph)
    )
    readers = collections.defaultdict(list)
    for node in nodes(graph):
        for tensor in symbolic(arguments_of(node)):
            readers[id(tensor)].append(node)
    for tensor in tf.nest.flatten(model.outputs):
        readers[id(tensor)].append(None)
    norms = {}
    for node in nodes(graph):
        layer, output = operation_of(node), output_of(node)
        following = readers[id(output)]
        if (
            type(layer) in _LINEAR
            and layer.activation is tf.keras.activations.linear
            and calls[layer.name] == len(following) == 1
            and _is_norm_of_channels(following[0], output)
            and calls[operation_of(following[0]).name] == 1
        ):
            norms[layer.name] = operation_of(following[0])
    return norms


def _is_norm_of_channels(node, tensor):
    """Returns whether a call normalizes the last axis by moving averages."""
    if node is None or type(operation_of(node)) not in _NORMS:
        return False
    axes = tf.nest.flatten(operation_of(node).axis)
    args, kwargs = arguments_of(node)
    is_for_inference = not any([*args[1:2], kwargs.get("training")])
    return is_for_inference and axes in ([-1], [len(tensor.shape) - 1])


def _set_linear(copy, layer, norm):
    """Sets kernel and bias to those of a layer and its norm."""
    scale, shift = _affine(norm)
    kernel, *bias = map(_array, layer.get_weights())
    shift += scale * (bias[0] if bias else 0.0)
    if type(layer) is tf.keras.layers.DepthwiseConv2D:
        scale = scale.reshape(kernel.shape[-2:])
    copy.set_weights([kernel * scale, shift])


def _set_lambda(copy, layer):
    """Sets the weights of a folded lambda layer from a layer and its norms."""
    for name in ("query", "value"):
        projection, norm = getattr(layer, name), getattr(layer, f"{name}_norm")
        if norm is None:
            kernel = _array(projection.kernel)
            weights = [kernel, np.zeros(kernel.shape[-1])]
            getattr(copy, name).set_weights(weights)
        else:
            _set_linear(getattr(copy, name), projection, norm)
    if layer.position_bias is not None:
        copy.position_bias.assign(layer.position_bias)
    for name in ("key", "position_embedding"):
        part = getattr(layer, name)
        if part is not None:
            copy_weights(part, getattr(copy, name))


# Exactly these classes, because a subclass may compute something else.
_LINEAR = (
    tf.keras.layers.Conv2D,
    tf.keras.layers.DepthwiseConv2D,
    tf.keras.layers.Dense,
)
_LAMBDAS = {LambdaLayer: FoldedLambdaLayer, LambdaConv: FoldedLambdaConv}


def _affine(norm):
    """Returns scale and shift of each channel, in float64."""
    gamma = _array(norm.gamma) if norm.scale else 1.0
    beta = _array(norm.beta) if norm.center else 0.0
    variance = _array(norm.moving_variance)
    scale = gamma / np.sqrt(variance + norm.epsilon)
    return scale, beta - scale * _array(norm.moving_mean)


def _array(weight):
    return np.asarray(weight, np.float64)
