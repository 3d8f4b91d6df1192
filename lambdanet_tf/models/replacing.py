"""Replaces layers of a Keras model."""

import collections
import math
import re
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.models.cloning import check_functional
from lambdanet_tf.models.cloning import copied
from lambdanet_tf.models.cloning import rebuild
from lambdanet_tf.models.graph import layers_in
from lambdanet_tf.models.graph import named_arguments
from lambdanet_tf.models.graph import symbolic
from lambdanet_tf.models.weights import copy_weights


class Place(NamedTuple):
    """The place of a layer in a network."""

    name: str  # including nested models: "backbone/conv1"
    input_shape: tuple[int | None, ...]
    arguments: dict[str, Any]  # of its first call; tensors are symbolic


Rule = Callable[[Any, Place], Callable | None]
_OF_WINDOWS = ("strides", "dilation_rate", "padding")


def replace_layers(model: tf.keras.Model, rule: Rule) -> tf.keras.Model:
    """Replaces layers in a copy of a network.

    Layers that the rule keeps are copied with their weights, and stay frozen if
    they were; new layers are trainable. Nested models are rebuilt, too, but not
    layers inside other layers, such as `TimeDistributed` or a subclassed model.

    Args:
        model: any functional Keras model, or a Sequential with inputs.
        rule: function of a layer and its `Place`. It returns None to keep the
            layer, or its replacement, which is called with the same arguments:
            a new layer, or a function that calls new layers. An output keeps
            its name if the last new layer has the name of the old one.
            `convolution_rule` and `attention_rule` make rules.

    Returns:
        A functional model, not compiled, with the same inputs and outputs.

    Raises:
        ValueError: if the network is not functional, or if the rule keeps all
            layers.

    Examples:
        >>> model = tf.keras.Sequential(
        ...     [
        ...         tf.keras.Input((8, 8, 3)),
        ...         tf.keras.layers.Conv2D(16, 3, padding="same"),
        ...     ]
        ... )
        >>> new_model = replace_layers(model, models.convolution_rule(scope=7))
        >>> type(new_model.layers[1]).__name__
        'LambdaLayer'
    """
    check_functional(model)
    tables, successors, kept, gone = {}, {}, [], []

    def successor(layer, path, args, kwargs):
        if isinstance(layer, tf.keras.layers.Layer):  # not an operation
            shape = tuple(symbolic((args, kwargs))[0].shape)
            arguments = named_arguments(layer, args, kwargs)
            new = rule(layer, Place(f"{path}{layer.name}", shape, arguments))
            (kept if new is None else gone).append(layer)
            if new is not None:
                return new
        return copied(layer, tables)

    new_model = rebuild(model, successor, successors)
    if not gone:
        types = collections.Counter(type(x).__name__ for x in kept)
        raise ValueError(
            "`rule` must replace at least one layer. It returned None for all "
            f"{len(kept)} layers of {model.name!r}: {dict(types.most_common())}"
            ". convolution_rule() replaces 3x3 Conv2D layers, and "
            "attention_rule() MultiHeadAttention layers with self-attention."
        )
    trained = {id(weight) for weight in model.trainable_weights}
    for layer in kept:
        copy_weights(layer, successors[id(layer)])
        own = {id(weight) for weight in layer.trainable_weights}
        if own and not own & trained:  # A model that contains it is frozen.
            successors[id(layer)].trainable = False
    for part in layers_in(new_model):
        if isinstance(part, tf.keras.Model) and not part.trainable_weights:
            part.trainable = False
    return new_model


def convolution_rule(
    scope: Any = 7,
    *,
    names: str = "",
    max_size: int | None = None,
    **arguments: Any,
) -> Rule:
    """Makes a rule that replaces 3x3 `Conv2D` by lambda layers.

    A `LambdaLayer` replaces a convolution that keeps the size of its map. A
    `LambdaConv` replaces one with strides, dilation or padding "valid"; with
    "valid" it keeps the kernel size, which determines the size of the map. The
    new layer has no bias, and a separate layer applies the activation. Grouped
    and depthwise convolutions stay.

    Args:
        scope: scope of the new layers; None for global ones, except that layers
            with strides or dilation keep 3.
        names: regular expression to search for in the names of layers, which
            include nested models. "conv[45]_block" selects the last two stages
            of Keras' ResNets.
        max_size: int. Replaces layers only if their map has at most this size
            on each axis, for example 14 for the last two stages of a network
            for 224 pixels. None for all.
        **arguments: other arguments of the new layers. If `num_heads` (4) does
            not divide the channels, it is lowered.
    """

    def rule(layer, place):
        if (
            type(layer) is not tf.keras.layers.Conv2D
            or tuple(layer.kernel_size) != (3, 3)
            or layer.groups > 1
            or not _is_chosen(place, names, max_size)
        ):
            return None
        own = _arguments_of(layer, layer.filters, arguments)
        is_linear = layer.activation is tf.keras.activations.linear
        own["name"] = layer.name if is_linear else f"{layer.name}_lambda"
        steps = {*layer.strides, *layer.dilation_rate}
        if layer.padding == "same" and steps == {1}:
            new = LambdaLayer(layer.filters, scope=scope, **own)
        else:
            own |= {name: getattr(layer, name) for name in _OF_WINDOWS}
            size = scope if scope and layer.padding == "same" else 3
            new = LambdaConv(layer.filters, size, **own)
        if is_linear:
            return new
        act = tf.keras.layers.Activation(
            layer.activation, name=layer.name, dtype=layer.dtype_policy
        )
        return lambda x: act(new(x))

    return rule


def attention_rule(
    scope: Any = None,
    *,
    names: str = "",
    max_size: int | None = None,
    **arguments: Any,
) -> Rule:
    """Makes a rule that replaces self-attention by `LambdaLayer`.

    It replaces Keras' `MultiHeadAttention` if query and value are the same
    tensor. `use_causal_mask` of the call becomes `causal`; an `attention_mask`
    and Keras' masks apply as before. There is no dropout, because there are no
    scores. Cross-attention and attention whose scores are returned stay.

    Args:
        scope: scope of the new layers; None for global ones, which need
            sequences of static length.
        names: as in `convolution_rule`.
        max_size: as in `convolution_rule`, for the length of the sequence.
        **arguments: as in `convolution_rule`.
    """

    def rule(layer, place):
        given = place.arguments
        query = next(iter(given.values()))
        others = [given.get(name, query) for name in ("value", "key")]
        if (
            not isinstance(layer, tf.keras.layers.MultiHeadAttention)
            or any(x is not None and x is not query for x in others)
            # It attends over some axes only; the others act as a batch.
            or len(layer.get_config()["attention_axes"]) < len(query.shape) - 2
            or given.get("return_attention_scores")
            or not _is_chosen(place, names, max_size)
        ):
            return None
        *_, filters = layer.compute_output_shape(query.shape, query.shape)
        own = _arguments_of(layer, filters, arguments)
        causal = bool(given.get("use_causal_mask"))
        new = LambdaLayer(filters, **{"scope": scope, "causal": causal, **own})

        def attend(*args, **kwargs):
            given = named_arguments(layer, args, kwargs)
            mask = given.get("attention_mask")
            return new(next(iter(given.values())), attention_mask=mask)

        return attend

    return rule


def _is_chosen(place, names, max_size):
    sizes = place.input_shape[1:-1]
    fits = max_size is None or all(size and size <= max_size for size in sizes)
    return fits and re.search(names, place.name) is not None


def _arguments_of(layer, filters, arguments):
    """Returns the arguments of the lambda layer that replaces a layer."""
    config = layer.get_config()
    return {
        "kernel_regularizer": config["kernel_regularizer"],
        "kernel_constraint": config["kernel_constraint"],
        "name": layer.name,
        "dtype": layer.dtype_policy,
        **arguments,
        # The number of heads must divide the channels.
        "num_heads": math.gcd(arguments.get("num_heads", 4), filters),
    }
