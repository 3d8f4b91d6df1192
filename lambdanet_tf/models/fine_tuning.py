"""Fine-tuning: freezes the first parts of a network, from the stem on."""

import re
from collections.abc import Iterator

import tensorflow as tf

from lambdanet_tf.models.graph import layers_in

_PART = re.compile(r"(stem|stage\d+)_")


def freeze(
    model: tf.keras.Model, up_to: str | None, normalization: bool = False
) -> None:
    """Freezes the parts of a network up to one, and unfreezes the others.

    Frozen layers keep their weights and statistics: their batch normalizations
    work as in inference. Compile the model afterwards.

    Args:
        model: a network of `lambdanet_tf.models`, or a model that contains one.
        up_to: the last part to freeze, such as "stem" or "stage4"; None
            freezes no part.
        normalization: whether to freeze every batch normalization, too, also
            those inside lambda layers, which `model.layers` does not list. If
            `up_to` is None, this works for any model.

    Raises:
        ValueError: if the network has no such part.
    """
    layers = list(_layers(model))
    parts = list(dict.fromkeys(part for _, part in layers if part))
    if up_to is not None and up_to not in parts:
        raise ValueError(
            f"`up_to` must be None or a part of {model.name!r}: "
            f"{', '.join(parts) or 'it has none'}. (Names of layers begin with "
            f"it: 'stage4_block1_conv1'.) Received: up_to={up_to!r}. "
            "To freeze another model, set `layer.trainable = False`."
        )
    _set_trainable(model, True)
    frozen = parts[: parts.index(up_to) + 1] if up_to is not None else ()
    for layer, part in layers:
        if part in frozen:
            _set_trainable(layer, False)
        for inner in layers_in(layer) if normalization else ():
            if isinstance(inner, tf.keras.layers.BatchNormalization):
                _set_trainable(inner, False)


def _set_trainable(layer, value):
    """Sets a layer and all inner ones; Keras 3 skips an unchanged layer."""
    layer.trainable = not value
    layer.trainable = value


def _layers(model) -> Iterator[tuple]:
    """Yields every layer, also in nested models, and its part or None."""
    for layer in model.layers:
        wraps = isinstance(layer, tf.keras.layers.Wrapper)
        inner = layer.layer if wraps else layer
        if isinstance(inner, tf.keras.Model):
            yield from _layers(inner)
        else:
            match = _PART.match(layer.name)
            yield layer, match[1] if match else None
