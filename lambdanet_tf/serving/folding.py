"""Folds batch normalization into the linear layers before it.

In inference a batch normalization is an affine map of each channel, and a
linear layer in front of it can compute that map itself:

    gamma (W x - mean) / sqrt(variance + epsilon) + beta = (s W) x + b,
    s = gamma / sqrt(variance + epsilon),   b = beta - s mean.

The function stays the same, up to rounding. The normalization after a lambda
layer cannot be folded: it scales each channel of each head, and the values are
shared by all heads, the queries by all values of a head.
"""

import numpy as np
import tensorflow as tf

from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers.lambda_base import LambdaBase
from lambdanet_tf.models.cloning import clone_network

FOLDABLE = (
    tf.keras.layers.Conv2D,
    tf.keras.layers.DepthwiseConv2D,
    tf.keras.layers.Dense,
)


class _BiasForNorm(LambdaBase):
    """Replaces the norms of queries and values by biases."""

    def _projection(self, name, units, scale=1.0):
        dense = super()._projection(name, units, scale)
        dense.use_bias = name in ("query", "value")
        return dense

    def _norm(self, name, units):
        return None


class FoldedLambdaLayer(_BiasForNorm, LambdaLayer):
    """A `LambdaLayer` for inference with both of its norms folded."""


class FoldedLambdaConv(_BiasForNorm, LambdaConv):
    """A `LambdaConv` for inference with both of its norms folded."""


_FOLDED = {LambdaLayer: FoldedLambdaLayer, LambdaConv: FoldedLambdaConv}


class _Identity(tf.keras.layers.Layer):
    """Takes the place and the call arguments of a folded norm."""

    def call(self, inputs, training=None, mask=None):
        return inputs


def fold_batch_norm(
    model: tf.keras.Model, implementation: str | None = None
) -> tf.keras.Model:
    """Copies a model for inference, with batch normalization folded.

    Args:
        model: a functional model.
        implementation: algorithm of its lambda layers; None keeps theirs.

    Returns:
        A functional model of the same function, with weights of its own.
    """
    norms = _folded_norms(model)
    folded_names = {norm.name for norm in norms.values()}

    def clone(layer, config):
        if layer.name in folded_names:
            return _Identity(name=layer.name)
        if layer.name in norms:
            config["use_bias"] = True
        if implementation and isinstance(layer, (LambdaLayer, LambdaConv)):
            config["implementation"] = implementation
        if type(layer) in _FOLDED:
            return _FOLDED[type(layer)](**config)
        return type(layer).from_config(config)

    folded = clone_network(model, clone_layer=clone)
    for layer in model.layers:
        if layer.name in folded_names or not layer.weights:
            continue
        copy = folded.get_layer(layer.name)
        if layer.name in norms:
            _set_folded(copy, layer, norms[layer.name])
        elif type(layer) in _FOLDED:
            _set_lambda_weights(copy, layer)
        else:
            copy.set_weights(layer.get_weights())
    return folded


def _folded_norms(model):
    """Maps the names of layers to the norms that can be folded into them."""
    readers = {}
    for layer in model.layers:
        for tensor in tf.nest.flatten(layer.input):
            readers.setdefault(id(tensor), []).append(layer)
    for tensor in tf.nest.flatten(model.outputs):
        readers.setdefault(id(tensor), []).append(None)
    norms = {}
    for layer in model.layers:
        following = readers.get(id(layer.output), [])
        if (
            len(following) == 1
            and isinstance(following[0], tf.keras.layers.BatchNormalization)
            and isinstance(layer, FOLDABLE)
            and layer.activation is tf.keras.activations.linear
            and _is_called_once(layer)
            and _is_called_once(following[0])
        ):
            norms[layer.name] = following[0]
    return norms


def _is_called_once(layer):
    # Both Kerases have no public name for this; `input` and `output` are
    # those of the first call only.
    return len(layer._inbound_nodes) == 1


def _set_folded(copy, layer, norm):
    """Sets kernel and bias of a copy to those of a layer and its norm."""
    scale, shift = _affine(norm)
    weights = layer.get_weights()
    kernel = weights[0].astype(np.float64)
    if isinstance(layer, tf.keras.layers.DepthwiseConv2D):
        kernel *= scale.reshape(kernel.shape[-2:])
    else:
        kernel *= scale
    bias = shift + (scale * weights[1] if len(weights) > 1 else 0.0)
    copy.set_weights([kernel, bias])


def _set_lambda_weights(copy, layer):
    """Sets the weights of a copy to those of a lambda layer and its norms."""
    for name in ("query", "value"):
        norm = getattr(layer, f"{name}_norm")
        dense = getattr(copy, name)
        if norm is None:
            [kernel] = getattr(layer, name).get_weights()
            dense.set_weights([kernel, np.zeros(kernel.shape[-1])])
        else:
            _set_folded(dense, getattr(layer, name), norm)
    if layer.position_bias is not None:
        copy.position_bias.assign(layer.position_bias)
    for name in ("key", "position_embedding"):
        if getattr(layer, name) is not None:
            getattr(copy, name).set_weights(getattr(layer, name).get_weights())


def _affine(norm):
    """Returns scale and shift of each channel, in float64."""
    gamma = _array(norm.gamma) if norm.scale else 1.0
    beta = _array(norm.beta) if norm.center else 0.0
    variance = _array(norm.moving_variance)
    scale = gamma / np.sqrt(variance + norm.epsilon)
    return scale, beta - scale * _array(norm.moving_mean)


def _array(weight):
    return np.asarray(weight, np.float64)
