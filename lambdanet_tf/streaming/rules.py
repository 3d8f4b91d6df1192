"""Which layers stream, and how.

Some have a state and a `step`: lambda layers, attention, convolutions, models.
Some compute a position from that position alone, and are called on the new
positions as they are. No other layer is known to see no later position.
"""

from collections.abc import Iterator
from typing import Any
from typing import TypeVar

import numpy as np
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf.arguments import int_per_axis
from lambdanet_tf.streaming.convolution import ConvolutionStep

_Layer = TypeVar("_Layer", bound=type)


def _named(names: str) -> Iterator[type]:
    """The layers of these names that this Keras has."""
    for name in names.split():
        if hasattr(tf.keras.layers, name):
            yield getattr(tf.keras.layers, name)


# These very classes: a subclass may compute something else.
_IDENTITIES = {
    *_named("ActivityRegularization AlphaDropout Dropout GaussianDropout"),
    *_named("GaussianNoise Identity SpatialDropout1D"),
    layers.Dropout,
    layers.StochasticDepth,
}
_NORMS = {
    tf.keras.layers.BatchNormalization,
    layers.BatchNormalization,
}
# Of each position alone, where the last axis is that of the channels.
_OF_CHANNELS = {
    *_named("Activation ELU LeakyReLU ReLU ThresholdedReLU Dense Masking"),
    *_named("Rescaling Add Average Maximum Minimum Multiply Subtract"),
}
# Likewise, along an axis that is an argument.
_ALONG_AN_AXIS = {
    *_named("Concatenate LayerNormalization RMSNormalization Softmax"),
    *_named("UnitNormalization"),
    *_NORMS,
}
# Operations on numbers: of Keras 3 by the class, of tf_keras by the function.
_ARITHMETIC = {
    *("Add", "Divide", "Multiply", "Negative", "Subtract", "TrueDivide"),
    *("Cast", "Equal", "LogicalAnd", "LogicalNot", "LogicalOr", "NotEqual"),
    # Of masks, by position.
    *("All", "Any", "Concatenate", "ExpandDims", "OnesLike", "Squeeze"),
    *("Softmax", "ZerosLike"),
    *("__operators__.add", "math.add", "math.divide", "math.multiply"),
    *("math.negative", "math.subtract", "math.truediv", "cast"),
}
_CHANGES_OF_RANK = {"All": -1, "Any": -1, "ExpandDims": 1, "Squeeze": -1}
_LATER = {
    *_named("AveragePooling1D Bidirectional Flatten GlobalAveragePooling1D"),
    *_named("GlobalMaxPooling1D GroupNormalization MaxPooling1D"),
}
_ATTENTION = {
    *_named("AdditiveAttention Attention GroupQueryAttention"),
    *_named("MultiHeadAttention"),
}
_SOFTMAXES = [
    module.softmax
    for module in (
        *(tf.nn, tf.keras.activations, tf.keras.backend),
        getattr(tf.keras, "ops", tf.nn),  # of Keras 3
    )
    if hasattr(module, "softmax")
]
_OURS = layers.LambdaConv, layers.LambdaLayer
_declared: set[type] = set()


def position_wise(layer_type: _Layer) -> _Layer:
    """Declares that a layer computes each position from that position alone.

    A decorator of a class of layers of one's own, or a function of one:
    streams then call it on the new positions as it is, in inference.

    Args:
        layer_type: a class of layers, itself, without its subclasses.

    Returns:
        The class.

    Raises:
        ValueError: if it is no class of layers of `tf.keras`.

    Examples:
        >>> @position_wise
        ... class Twice(tf.keras.layers.Layer):
        ...     def call(self, inputs):
        ...         return 2 * inputs
        >>> Twice.__name__
        'Twice'
    """
    is_class = isinstance(layer_type, type)
    if not is_class or not issubclass(layer_type, tf.keras.layers.Layer):
        raise ValueError(
            "`layer_type` must be a class of layers of `tf.keras`. Received: "
            f"{layer_type!r}."
        )
    _declared.add(layer_type)
    return layer_type


def has_state(layer: Any) -> bool:
    """Whether a layer is streamed by its own `step`."""
    return all(
        callable(getattr(layer, name, None))
        for name in ("state_spec", "initial_state", "step")
    )


def stepper_of(layer: Any) -> Any:
    """Returns what steps in place of a layer, None if it has no state.

    Args:
        layer: no model; or an operation of Keras 3.

    Raises:
        ValueError: if the layer does not stream, or is not known to.
    """
    kind = type(layer)
    if has_state(layer):
        if isinstance(layer, _OURS) and _calls_something_else(kind):
            raise refusal(
                layer,
                f"a {kind.__name__} has a `call` of its own, and the `step` of "
                "what it is derived from. Give it a `step` that computes the "
                "same.",
            )
        if isinstance(layer, layers.LambdaConv) and _stride(layer) > 1:
            raise refusal(
                layer,
                f"strides={layer.strides} make fewer positions of a piece. "
                "Stream it by its own `step`, and what is behind it as "
                "another model.",
            )
        layer.state_spec()  # Raises an error where it cannot.
        return layer
    if kind in _POSITION_WISE or kind is tf.keras.layers.Conv1D:
        _check_activation(layer)
    if kind is tf.keras.layers.Conv1D:
        return ConvolutionStep(layer)
    if (
        kind is tf.keras.layers.Rescaling
        and max(np.ndim(layer.scale), np.ndim(layer.offset)) > 1
    ):
        raise refusal(
            layer, "its numbers differ by position. Give one a channel."
        )
    is_known = kind in _POSITION_WISE or kind in _declared
    if is_known or operation_name(layer) in _ARITHMETIC:
        return None
    if kind is tf.keras.layers.PReLU and 1 in (layer.shared_axes or ()):
        return None
    raise refusal(layer, _reason(kind))


def _check_activation(layer):
    activation = getattr(layer, "activation", None)
    if activation is None or activation in vars(tf.keras.activations).values():
        return
    try:
        if isinstance(activation, tf.keras.layers.Layer):
            stepper = stepper_of(activation)
            is_alone = stepper is None and rank_of_output(activation, [3]) == 3
        else:
            is_alone = _sees_one_position(activation, layer)
        if not is_alone:
            raise ValueError("It reads other positions, or changes a shape.")
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        raise refusal(
            layer, f"its activation does not stream. {error}"
        ) from error


def _sees_one_position(function, layer):
    """Whether a function of pieces gives the pieces of what it gives of all."""
    output = getattr(layer, "output", None)  # None inside another's activation.
    channels = [4] if output is None else [x or 4 for x in output.shape[2:]]
    drawn = np.random.default_rng(0).normal(size=[1, 4, *channels])
    with tf.init_scope():  # Numbers, in a function that is traced, too.
        x = tf.cast(drawn, layer.compute_dtype)
        whole, first, last = (
            np.asarray(tf.cast(function(part), "float64"))
            for part in (x, x[:, :2], x[:, 2:])
        )
    # Halves round to 3 digits, or 2.
    tolerance = 1e-5 if x.dtype.size > 2 else 0.05
    return whole.shape == tuple(x.shape) and np.allclose(
        np.concatenate([first, last], axis=1),
        whole,
        tolerance,
        tolerance,
        equal_nan=True,
    )


def _calls_something_else(kind):
    """Whether a class derived from ours has a newer `call` than `step`."""
    order = kind.__mro__
    call, step = (
        next(i for i, x in enumerate(order) if name in vars(x))
        for name in ("call", "step")
    )
    return call < step and order[call] not in _OURS


def _stride(layer):
    return int_per_axis("strides", layer.strides, 1)[0]


def _reason(kind):
    """Why a layer does not stream, and what to do."""
    if kind in _ATTENTION:
        return (
            "it keeps no keys and values. Use `lambdanet_tf.layers."
            "LambdaLayer(causal=True)` with a `scope`."
        )
    if kind in _LATER:
        return (
            "its outputs depend on positions that come later. End the model "
            "before it."
        )
    if kind is tf.keras.layers.PReLU:
        return "every position has a slope of its own. Use shared_axes=[1]."
    return (
        f"whether a {kind.__name__} sees later positions is not known. If it "
        "computes each position from that alone, say so by `lambdanet_tf."
        "streaming.position_wise`; if it reads its past, give it `state_spec`, "
        "`initial_state` and `step`, as `LambdaLayer` has them."
    )


_POSITION_WISE = {
    *_IDENTITIES,
    *_OF_CHANNELS,
    *_ALONG_AN_AXIS,
    *_named("Embedding InputLayer"),
}


def operation_name(layer: Any) -> str:
    """The name of an operation on tensors; empty for a layer."""
    if not isinstance(layer, tf.keras.layers.Layer):
        return type(layer).__name__
    if type(layer).__name__ == "TFOpLambda":
        return layer.get_config()["function"]
    return ""


def is_identity(layer: Any) -> bool:
    """Whether a layer does nothing in inference."""
    return type(layer) in _IDENTITIES


def is_norm(layer: Any) -> bool:
    """Whether a layer is a batch normalization."""
    return type(layer) in _NORMS


def keeps_values(layer: Any) -> bool:
    """Whether a layer changes nothing but the dtype, in inference."""
    is_activation = type(layer) is tf.keras.layers.Activation
    linear = (tf.keras.activations.linear, tf.identity)
    return (
        is_identity(layer)
        or operation_name(layer) in ("Cast", "cast")
        or (is_activation and layer.activation in linear)
    )


def is_softmax(layer: Any) -> bool:
    """Whether a layer, its activation or an operation is a softmax."""
    activation = getattr(layer, "activation", None)
    return (
        operation_name(layer) == "Softmax"
        or activation in _SOFTMAXES
        or any(
            isinstance(x, tf.keras.layers.Softmax) for x in (layer, activation)
        )
    )


def rank_of_output(layer: Any, ranks: list[int]) -> int:
    """Returns the rank of what a layer without state makes of its inputs.

    Args:
        layer: any for which `stepper_of` is None.
        ranks: of its inputs.

    Raises:
        ValueError: if the layer would read other positions of such inputs.
    """
    rank, is_own = ranks[0], type(layer) in _declared
    if len(set(ranks)) > 1 and not is_own:
        raise refusal(
            layer,
            f"its inputs have {min(ranks)} and {max(ranks)} axes, so that the "
            "positions of one meet the channels of another.",
        )
    if type(layer) is tf.keras.layers.Embedding:
        return rank + 1
    operation = operation_name(layer)
    if rank < 3 and not (operation or is_identity(layer)):
        raise refusal(
            layer,
            f"its inputs have {rank} axes, so that the last is that of the "
            "positions. Give sequences the shape (batch, positions, channels).",
        )
    change = _CHANGES_OF_RANK.get(operation, 0)
    if getattr(layer, "keepdims", False):
        change = 0
    axes = getattr(layer, "axis", None)
    # In a layer of one's own, None may mean anything.
    if axes is None and (is_own or not hasattr(layer, "axis")):
        return rank + change
    axes = axes if isinstance(axes, list | tuple) else [axes]
    change *= len(axes)
    # A new axis is counted among those that there will be.
    of = rank + max(change, 0)
    if any(x is None or (x if x >= 0 else x + of) < 2 for x in axes):
        raise refusal(
            layer,
            f"axis={axes[0] if len(axes) == 1 else list(axes)} of inputs with "
            f"{rank} axes reaches other positions. Use axis=-1.",
        )
    return rank + change


def padding_refusal(layer: Any) -> ValueError:
    """Returns the error for a layer that would read padding."""
    return ValueError(
        "`prompt` must have no padding, zeros before its tokens, for this "
        f"model: layer {layer.name!r} would read it. A `Conv1D` takes no mask, "
        "and operations such as `+` drop it, where `Add` keeps it. Continue "
        "prompts of one length at a time."
    )


def refusal(layer: Any, reason: str) -> ValueError:
    """Returns the error for a layer that does not stream."""
    return ValueError(f"Layer {layer.name!r} cannot stream: {reason}")
