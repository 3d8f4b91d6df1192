"""Folds batch normalization into the linear layers before it.

In inference a batch normalization is an affine map of each channel, and a
linear layer in front of it can compute that map itself:

    gamma (W x - mean) / sqrt(variance + epsilon) + beta = (s W) x + b,
    s = gamma / sqrt(variance + epsilon),   b = beta - s mean.

The function stays the same, up to rounding. The normalization after a lambda
layer cannot be folded: it scales each channel of each head, and the values are
shared by all heads, the queries by all values of a head.
"""

import contextlib
import functools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from lambdanet_tf.layers import BatchNormalization
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers.lambda_base import LambdaBase
from lambdanet_tf.layers.projections import ProjectionLayer
from lambdanet_tf.models.cloning import clone_network
from lambdanet_tf.models.graph import arguments_of
from lambdanet_tf.models.graph import graph_of
from lambdanet_tf.models.graph import nodes
from lambdanet_tf.models.graph import operation_of
from lambdanet_tf.models.graph import symbolic
from lambdanet_tf.models.weight_names import copy_weights

# These very classes: a subclass may compute something else.
FOLDABLE = (
    tf.keras.layers.Conv2D,
    tf.keras.layers.DepthwiseConv2D,
    tf.keras.layers.Dense,
)
_CONVOLUTIONS = (
    tf.keras.layers.Conv1D,
    tf.keras.layers.Conv2D,
    tf.keras.layers.Conv3D,
)
# What inference does not need of a layer, and may not be able to make again.
_OF_TRAINING = ("_initializer", "_regularizer", "_constraint")
_NORMS = (tf.keras.layers.BatchNormalization, BatchNormalization)


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

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, training=None, mask=None):
        return inputs


def fold_batch_norm(
    model: tf.keras.Model, implementation: str | None = None
) -> tf.keras.Model:
    """Copies a model for inference, with batch normalization folded.

    Low-rank updates (LoRA) become a part of the kernels. What is quantized
    keeps its norm. A layer that its configuration does not make again, such as
    one of a function (`Lambda`), is the model's own.

    Args:
        model: a functional model.
        implementation: algorithm of its lambda layers; None keeps theirs.

    Returns:
        A functional model of the same function.

    Examples:
        >>> model = models.LambdaResNetSmall()
        >>> len(fold_batch_norm(model).weights) < len(model.weights)
        True
    """
    norms, lambdas = _folded_norms(model), _folded_lambdas(model)
    folded_names = {norm.name for norm in norms.values()}
    copies = {}  # by name, of what may call its copy by another one

    def clone(layer, config):
        if layer.name in folded_names:
            # Under the policy of the model, not of this process.
            return _Identity(name=layer.name, dtype=config["dtype"])
        if layer.name in norms:
            config["use_bias"] = True
            config = {k: x for k, x in config.items() if "lora" not in k}
        if type(layer) in FOLDABLE:  # What is of training may not be known.
            config = {
                k: x for k, x in config.items() if not k.endswith(_OF_TRAINING)
            }
        if _is_changed(layer):
            return layer
        if implementation and isinstance(layer, (LambdaLayer, LambdaConv)):
            config["implementation"] = implementation
        kind = _FOLDED[type(layer)] if layer.name in lambdas else type(layer)
        try:
            copies[layer.name] = kind.from_config(config)
        except (NotImplementedError, TypeError, ValueError):
            return layer  # Inference changes nothing in it.
        return copies[layer.name]

    # Keras 3 compiles the copy of a compiled model, and so must find its loss.
    graph = graph_of(model)  # A Sequential of Keras 3 has no `input` itself.
    plain = tf.keras.Model(graph.input, graph.output, name=model.name)
    folded = clone_network(plain, clone_layer=clone)
    for layer in model.layers:
        if layer.name in folded_names or not layer.weights:
            continue
        copy = copies.get(layer.name)
        if copy is None:  # It is the layer itself, or shares a table inside.
            copy = folded.get_layer(layer.name)
        if copy is layer:
            continue
        if layer.name in norms:
            _set_folded(copy, layer, norms[layer.name])
        elif layer.name in lambdas:
            _set_lambda_weights(copy, layer)
        else:
            copy_weights(layer, copy)
    return folded


@contextlib.contextmanager
def grouped_by_parts(model: tf.keras.Model) -> Iterator[None]:
    """Computes the grouped convolutions of a model group by group meanwhile.

    Keras has XLA compile them, which a server does not do.

    Args:
        model: with all that it holds.
    """
    grouped = [
        part
        for part in model._flatten_layers()
        if type(part) in _CONVOLUTIONS and part.groups > 1
    ]
    for part in grouped:
        part.call = functools.partial(_grouped_convolution, part)
    try:
        yield
    finally:
        for part in grouped:
            del part.call


def _grouped_convolution(layer, inputs):
    """What a convolution makes of each group of channels."""
    is_last = layer.data_format == "channels_last"
    spatial, padding = "DHW"[-layer.rank :], layer.padding
    if padding == "causal":
        fill = layer.dilation_rate[0] * (layer.kernel_size[0] - 1)
        sides = ([fill, 0], [0, 0]) if is_last else ([0, 0], [fill, 0])
        inputs, padding = tf.pad(inputs, [[0, 0], *sides]), "valid"
    convolution = functools.partial(
        tf.nn.convolution,
        strides=layer.strides,
        padding=padding.upper(),
        data_format=f"N{spatial}C" if is_last else f"NC{spatial}",
        dilations=layer.dilation_rate,
    )
    axis, kernel = -1 if is_last else 1, tf.convert_to_tensor(layer.kernel)
    parts = [
        tf.split(inputs, layer.groups, axis),
        tf.split(kernel, layer.groups, -1),
    ]
    outputs = tf.concat(list(map(convolution, *parts)), axis)
    if layer.use_bias:
        bias = tf.convert_to_tensor(layer.bias)
        outputs = tf.nn.bias_add(outputs, bias, "N...C" if is_last else "NC...")
    return outputs if layer.activation is None else layer.activation(outputs)


def _folded_lambdas(model):
    """The names of the lambda layers whose norms can be folded."""
    of_batch = {
        operation_of(node).name
        for node in nodes(graph_of(model))
        if arguments_of(node)[1].get("training")
    }
    names = {layer.name for layer in model.layers if type(layer) in _FOLDED}
    return names - of_batch


def _folded_norms(model):
    """Maps the names of layers to the norms that can be folded into them."""
    readers = {}  # of each tensor: what a call, or the model, does with it
    for node in nodes(graph_of(model)):
        reader = operation_of(node)
        if type(reader) in _NORMS and not _is_for_inference(node):
            reader = None
        for tensor in symbolic(arguments_of(node)):
            readers.setdefault(id(tensor), []).append(reader)
    for tensor in tf.nest.flatten(model.outputs):
        readers.setdefault(id(tensor), []).append(None)
    norms = {}
    for layer in model.layers:
        if (
            type(layer) in FOLDABLE
            and _is_linear(layer)
            and _is_called_once(layer)
            and len(following := readers.get(id(layer.output), [])) == 1
            and type(following[0]) in _NORMS
            and _is_of_channels(following[0], layer)
            and _is_called_once(following[0])
        ):
            norms[layer.name] = following[0]
    return norms


def _is_for_inference(node):
    """Whether a call of a norm does not ask for the batch's statistics."""
    args, kwargs = arguments_of(node)
    return not any([*args[1:2], kwargs.get("training")])


def _is_linear(layer):
    """Whether a layer is its kernel and bias, of numbers that are not coded."""
    quantized = getattr(layer, "quantization_mode", None)
    return layer.activation is tf.keras.activations.linear and not quantized


def _is_of_channels(norm, layer):
    """Whether a norm's axis is that of the filters of a layer."""
    rank = len(layer.output.shape)
    axes = [axis % rank for axis in tf.nest.flatten(norm.axis)]
    data_format = getattr(layer, "data_format", "channels_last")
    return axes == [1 if data_format == "channels_first" else rank - 1]


def _is_changed(layer):
    """Whether a layer is more than its configuration says."""
    if isinstance(layer, tf.keras.layers.Lambda):  # a function of the user's
        return True
    if not isinstance(layer, tf.keras.layers.Layer):  # an operation of Keras 3
        return False
    if isinstance(layer, ProjectionLayer):
        projections = [layer.query, layer.key, layer.value]
        if not all(map(_is_projection, filter(None, projections))):
            return True
    return type(layer) not in _FOLDED and any(
        isinstance(part, tf.keras.layers.Lambda)
        or getattr(part, "lora_enabled", False)
        or getattr(part, "quantization_mode", None)
        for part in layer._flatten_layers(include_self=False)
    )


def _is_projection(layer):
    return (
        type(layer) is tf.keras.layers.Dense
        and _is_linear(layer)
        and not layer.use_bias
    )


def _is_called_once(layer):
    # Both Kerases have no public name for this; `input` and `output` are
    # those of the first call only.
    return len(layer._inbound_nodes) == 1


def _set_folded(copy, layer, norm):
    """Sets kernel and bias of a copy to those of a layer and its norm."""
    scale, shift = _affine(norm)
    kernel, bias = _kernel(layer), _array(layer.bias) if layer.use_bias else 0.0
    if isinstance(layer, tf.keras.layers.DepthwiseConv2D):
        kernel *= scale.reshape(kernel.shape[-2:])
    else:
        kernel *= scale
    copy.set_weights([kernel, shift + scale * bias])


def _set_lambda_weights(copy, layer):
    """Sets the weights of a copy to those of a lambda layer and its norms."""
    for name in ("query", "value"):
        norm = getattr(layer, f"{name}_norm")
        dense = getattr(copy, name)
        if norm is None:
            kernel = _kernel(getattr(layer, name))
            dense.set_weights([kernel, np.zeros(kernel.shape[-1])])
        else:
            _set_folded(dense, getattr(layer, name), norm)
    if layer.position_bias is not None:
        copy.position_bias.assign(layer.position_bias)
    if layer.key is not None:
        copy.key.set_weights([_kernel(layer.key)])
    if layer.position_embedding is not None:
        table = layer.position_embedding.get_weights()
        copy.position_embedding.set_weights(table)


def _kernel(layer):
    """Returns the kernel of a linear layer, in float64."""
    # Keras 2 has a name of its own for that of a depthwise convolution.
    kernel = getattr(layer, "depthwise_kernel", None)
    return _array(layer.kernel if kernel is None else kernel)


def _affine(norm):
    """Returns scale and shift of each channel, in float64."""
    gamma = _array(norm.gamma) if norm.scale else 1.0
    beta = _array(norm.beta) if norm.center else 0.0
    variance = _array(norm.moving_variance)
    scale = gamma / np.sqrt(variance + norm.epsilon)
    return scale, beta - scale * _array(norm.moving_mean)


def _array(weight):
    return np.asarray(weight, np.float64)
