"""Ready rules for `replace_layers`: lambda layers for what they stand for."""

import math
import re
from typing import Any

import tensorflow as tf

from lambdanet_tf.arguments import int_per_axis
from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.layers import BatchNormalization
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.models.cloning import copy_of
from lambdanet_tf.models.replacing import Rule
from lambdanet_tf.models.weight_names import copy_weights

_GROUPED = ("refuse", "leave")


def convolution_rule(
    scope: Any = 7,
    *,
    names: str | None = None,
    max_size: int | None = None,
    kernel_size: Any = 3,
    grouped: str = "refuse",
    **arguments: Any,
) -> Rule:
    """Makes a rule that puts lambda layers in the place of `Conv2D`.

    A `LambdaLayer` replaces a convolution that keeps the size of its map, a
    `LambdaConv` one with strides, dilation or padding "valid"; the latter
    keeps the kernel's own size as its scope, because that is what the size of
    the map depends on. A bias becomes that of a batch normalization behind
    the layer, unless one follows already; an activation follows as a layer.
    The new layers are called as the convolution, with "_lambda", "_norm" and
    "_act" behind.

    Args:
        scope: of the new layers; None for global ones.
        names: regular expression; only layers in whose name it is found, with
            those of the models that they are in: "conv[45]_block" for the last
            two stages of Keras' ResNets. None for all.
        max_size: int. Only on maps with at most so many positions on each axis,
            for instance 14 for the last two stages of a network of 224 pixels.
            None for all.
        kernel_size: int, or one per axis. Only convolutions of this size.
        grouped: what happens to grouped and depthwise convolutions of that
            size: "refuse" for an error, "leave" to leave them.
        **arguments: of the new layers. `num_heads` (4) is lowered where it does
            not divide the channels.

    Returns:
        A function of a layer and its place: what `replace_layers` takes.

    Raises:
        ValueError: if an argument is out of its range. The rule raises it for
            a layer that cannot be replaced.

    Examples:
        >>> model = tf.keras.Sequential(
        ...     [
        ...         tf.keras.Input((8, 8, 3)),
        ...         tf.keras.layers.Conv2D(16, 3, name="conv"),
        ...     ]
        ... )
        >>> rule = convolution_rule(scope=7, names="conv")
        >>> models.replace_layers(model, rule).layers[1].name
        'conv_lambda'
    """
    _check_arguments(scope, arguments)
    window = int_per_axis("kernel_size", kernel_size, 2)
    one_of("grouped", grouped, _GROUPED)
    is_chosen = _choice(names, max_size)

    def rule(layer, place):
        kinds = tf.keras.layers.Conv2D, tf.keras.layers.DepthwiseConv2D
        if type(layer) not in kinds or tuple(layer.kernel_size) != window:
            return None
        if not is_chosen(place):
            return None
        if type(layer) is kinds[1] or layer.groups > 1:
            if grouped == "leave":
                return None
            raise ValueError(
                f"Layer {place.name!r} cannot be replaced: it is a grouped or "
                "depthwise convolution, of which each channel sees few "
                "others; a lambda layer lets it see all. Leave such layers "
                "with grouped='leave' or `names`, or write a rule that "
                "returns LambdaLayer(scope=...) for them."
            )
        _check_channels_last(layer, place)
        _check_no_activity_regularizer(layer, place)
        return [
            _lambda_of(layer, place, scope, _fitting(arguments, layer.filters)),
            *_bias_of(layer, place),
            *_activation_of(layer, place),
        ]

    return rule


def attention_rule(
    scope: Any = None,
    *,
    names: str | None = None,
    max_size: int | None = None,
    **arguments: Any,
) -> Rule:
    """Makes a rule that puts `LambdaLayer` in the place of self-attention.

    For Keras' `MultiHeadAttention`, called with the same tensor as query and
    value. The output keeps its width, `use_causal_mask` of the call becomes
    `causal`, an `attention_mask` is passed on, masks of Keras count as before;
    dropout of the scores goes, as there are none. The new layer is called as
    the old one, with "_lambda" behind.

    Args:
        scope: of the new layers; None for global ones, of sequences of known
            length.
        names: as in `convolution_rule`.
        max_size: likewise.
        **arguments: of the new layers. `num_heads` (4) is lowered where it does
            not divide the channels.

    Returns:
        A function of a layer and its place: what `replace_layers` takes.

    Raises:
        ValueError: if an argument is out of its range. The rule raises it for
            a layer that cannot be replaced.

    Examples:
        >>> x = tf.keras.Input((16, 32))
        >>> attention = tf.keras.layers.MultiHeadAttention(
        ...     4, 8, name="attention"
        ... )
        >>> model = tf.keras.Model(x, attention(x, x))
        >>> models.replace_layers(model, attention_rule(scope=7)).layers[1].name
        'attention_lambda'
    """
    _check_arguments(scope, arguments)
    is_chosen = _choice(names, max_size)

    def rule(layer, place):
        if not isinstance(layer, tf.keras.layers.MultiHeadAttention):
            return None
        if not is_chosen(place):
            return None
        _check_self_attention(layer, place)
        _check_no_activity_regularizer(layer, place)
        filters = place.output_shape[-1]
        return LambdaLayer(
            filters,
            **{
                "scope": scope,
                "causal": bool(place.arguments.get("use_causal_mask")),
                "kernel_regularizer": layer._kernel_regularizer,
                "kernel_constraint": layer._kernel_constraint,
                "name": f"{layer.name}_lambda",
                "dtype": layer.dtype_policy,
                **_fitting(arguments, filters),
            },
        )

    return rule


def _choice(names, max_size):
    """A function of a `Place`: whether it is one of those that are chosen."""
    names = "" if names is None else names
    _check_names(names)
    if max_size is not None:
        positive_int("max_size", max_size)

    def is_chosen(place):
        sizes = [size or math.inf for size in place.input_shape[1:-1]]
        fits = max_size is None or max(sizes) <= max_size
        return fits and re.search(names, place.name) is not None

    return is_chosen


def _fitting(arguments, filters):
    """Arguments of a layer whose number of heads divides its channels."""
    heads = arguments.get("num_heads", 4)
    return {**arguments, "num_heads": math.gcd(heads, filters)}


def _lambda_of(layer, place, scope, arguments):
    """The lambda layer for a convolution."""
    arguments = {
        "kernel_regularizer": layer.kernel_regularizer,
        "kernel_constraint": layer.kernel_constraint,
        "name": f"{layer.name}_lambda",
        "dtype": layer.dtype_policy,
        **arguments,
    }
    moves = {*layer.strides, *layer.dilation_rate} != {1}
    if layer.padding == "same" and not moves:
        return LambdaLayer(layer.filters, scope=scope, **arguments)
    if scope is None:
        raise ValueError(
            f"Layer {place.name!r} cannot be replaced by a global lambda "
            "layer: it has strides, dilation or padding 'valid'. Give `scope` "
            "an odd number, or leave the layer with `names`."
        )
    return LambdaConv(
        layer.filters,
        scope if layer.padding == "same" else layer.kernel_size,
        strides=layer.strides,
        dilation_rate=layer.dilation_rate,
        padding=layer.padding,
        **arguments,
    )


def _bias_of(layer, place):
    """A batch normalization with the bias of a convolution, where it counts."""
    norm = tf.keras.layers.BatchNormalization
    readers = [isinstance(after, norm) for after in place.followers]
    is_linear = layer.activation in (None, tf.keras.activations.linear)
    is_lost = readers and all(readers) and not place.is_output
    if not layer.use_bias or (is_linear and is_lost):
        return []
    new = BatchNormalization(
        beta_regularizer=layer.bias_regularizer,
        beta_constraint=layer.bias_constraint,
        name=f"{layer.name}_norm",
        dtype=layer.dtype_policy,
    )
    new.build((None, None, None, layer.filters))
    new.beta.assign(layer.bias)
    return [new]


def _activation_of(layer, place):
    activation, name = layer.activation, f"{layer.name}_act"
    if activation in (None, tf.keras.activations.linear):
        return []
    if isinstance(activation, tf.keras.layers.Layer):
        # With slopes, for instance, that stay those of the given network.
        new = copy_of(activation, {**activation.get_config(), "name": name})
        if activation.built:
            new.build(place.output_shape)
            copy_weights(activation, new)
        return [new]
    return [
        tf.keras.layers.Activation(
            activation, name=name, dtype=layer.dtype_policy
        )
    ]


def _check_arguments(scope, arguments):
    """Raises a ValueError for what no lambda layer takes."""
    # A table counts the layers that share it.
    own = {k: x for k, x in arguments.items() if k != "position_embedding"}
    LambdaLayer(None, **{"scope": scope, "name": "none", **own})


def _check_names(names):
    try:
        re.search(names, "")
    except (re.error, TypeError) as error:
        raise ValueError(
            "`names` must be a regular expression. Received: "
            f"names={names!r}: {error}."
        ) from None


def _check_channels_last(layer, place):
    if layer.data_format != "channels_last":
        raise ValueError(
            f"Layer {place.name!r} cannot be replaced: lambda layers take "
            f"maps with their channels last. Received: data_format="
            f"{layer.data_format!r}."
        )


def _check_no_activity_regularizer(layer, place):
    if layer.get_config().get("activity_regularizer") is not None:
        raise ValueError(
            f"Layer {place.name!r} cannot be replaced: it has an "
            "`activity_regularizer`, which would be lost. Leave it with "
            "`names`, or write a rule that returns layers with one."
        )


def _check_self_attention(layer, place):
    """Raises a ValueError unless a lambda layer does what attention did."""
    query = next(iter(place.arguments.values()))
    others = [place.arguments.get(name) for name in ("value", "key")]
    if any(x is not None and x is not query for x in others):
        raise ValueError(
            f"Layer {place.name!r} cannot be replaced: it attends from one "
            "tensor to another. Leave it with `names`, or write the model "
            "with LambdaLayer(use_position=False)(query, context=value)."
        )
    if place.arguments.get("return_attention_scores"):
        raise ValueError(
            f"Layer {place.name!r} cannot be replaced: the network reads its "
            "attention scores, and lambda layers have none. Leave it with "
            "`names`."
        )
    axes = layer.get_config().get("attention_axes")
    if axes is not None and len(axes) < len(place.input_shape) - 2:
        raise ValueError(
            f"Layer {place.name!r} cannot be replaced: it attends along "
            f"attention_axes={tuple(axes)}, and a lambda layer along all. "
            "Leave it with `names`."
        )
