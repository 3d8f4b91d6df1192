"""A network for inference: batch normalisation folded into its neighbours.

At inference a batch normalisation is an affine map of each channel, and a
linear layer in front of it can compute that map itself:

    gamma (W x - mean) / sqrt(variance + epsilon) + beta = (s W) x + b,
    s = gamma / sqrt(variance + epsilon),   b = beta - s mean.

The function stays the same, up to rounding. What cannot be folded stays: the
normalisation after a lambda layer scales each channel of each head, which
neither the values (shared by all heads) nor the queries (shared by all values
of a head) can take over.
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


class _BiasInsteadOfNorm(LambdaBase):
    """A lambda layer whose queries and values have a bias and no norm."""

    def _projection(self, name, units, scale=1.0):
        dense = super()._projection(name, units, scale)
        dense.use_bias = name in ("query", "value")
        return dense

    def _norm(self, name, units):
        return None


class FoldedLambdaLayer(_BiasInsteadOfNorm, LambdaLayer):
    """A `LambdaLayer` for inference, its two norms folded."""


class FoldedLambdaConv(_BiasInsteadOfNorm, LambdaConv):
    """A `LambdaConv` for inference, its two norms folded."""


_FOLDED = {LambdaLayer: FoldedLambdaLayer, LambdaConv: FoldedLambdaConv}


class _Folded(tf.keras.layers.Layer):
    """Stands where a folded norm stood, and is called as it was."""

    def call(self, inputs, training=None, mask=None):
        return inputs


def fold_batch_norm(model, implementation=None):
    """Returns a copy of a model for inference.

    Args:
        model: a functional `tf.keras.Model`.
        implementation: the algorithm of its lambda layers; None keeps theirs.

    Returns:
        A `tf.keras.Model` of the same function, with weights of its own.
    """
    norms = _folded_norms(model)
    absorbed = {norm.name for norm in norms.values()}

    def clone(layer, config):
        if layer.name in absorbed:
            return _Folded(name=layer.name)
        if layer.name in norms:
            config["use_bias"] = True
        if isinstance(layer, (LambdaLayer, LambdaConv)):
            if implementation is not None:
                config["implementation"] = implementation
            return _FOLDED[type(layer)](**config)
        return type(layer).from_config(config)

    folded = clone_network(model, clone_layer=clone)
    for layer in model.layers:
        if layer.name in absorbed or not layer.weights:
            continue
        copy = folded.get_layer(layer.name)
        if layer.name in norms:
            _set_folded(copy, layer, norms[layer.name])
        elif isinstance(layer, (LambdaLayer, LambdaConv)):
            _set_lambda_weights(copy, layer)
        else:
            copy.set_weights(layer.get_weights())
    return folded


def _folded_norms(model):
    """Maps the name of a layer to the norm behind it that it can absorb."""
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
    # `input` and `output` are those of the first call only; there is no other
    # name for this in both Kerases.
    return len(layer._inbound_nodes) == 1


def _set_folded(copy, layer, norm):
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
    """The scale and the shift of each channel, in float64."""
    gamma = _array(norm.gamma) if norm.scale else 1.0
    beta = _array(norm.beta) if norm.center else 0.0
    variance = _array(norm.moving_variance)
    scale = gamma / np.sqrt(variance + norm.epsilon)
    return scale, beta - scale * _array(norm.moving_mean)


def _array(weight):
    return np.asarray(weight, np.float64)
