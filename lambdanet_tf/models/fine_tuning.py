"""Fine-tuning: freeze the lower parts of a network, from the stem on."""

import re
from collections.abc import Iterator

import tensorflow as tf

from lambdanet_tf.models.graph import layers_in

_PART = re.compile(r"(stem|stage\d+)_")


def freeze(
    model: tf.keras.Model, up_to: str | None, normalization: bool = False
) -> None:
    """Freezes the parts of a network up to one; the others will be trained.

    Frozen layers keep their weights and their statistics: their batch
    normalizations work as in inference. Compile the model afterwards.

    Args:
        model: a network of `lambdanet_tf.models`, or a model around one.
        up_to: the last part to freeze, such as "stem" or "stage4"; None
            freezes no part.
        normalization: whether every batch normalization is frozen, too, also
            those inside lambda layers, which are not in `model.layers`. Any
            model will do, then, if `up_to` is None.

    Raises:
        ValueError: if the network has no such part.
    """
    layers = list(_layers(model))
    parts = list(dict.fromkeys(part for _, part in layers if part))
    if up_to is not None and up_to not in parts:
        raise ValueError(
            f"`up_to` must be None or a part of {model.name!r}, by which its "
            "layers' names begin as in 'stage4_block1_conv1': "
            f"{', '.join(parts) or 'it has none'}. Received: up_to={up_to!r}. "
            "Freeze another model by `layer.trainable = False`."
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
    """Sets a layer and all inside; Keras 3 skips what has the value itself."""
    layer.trainable = not value
    layer.trainable = value


def _layers(model) -> Iterator[tuple]:
    """Yields every layer, also of models inside, and its part, if any."""
    for layer in model.layers:
        wraps = isinstance(layer, tf.keras.layers.Wrapper)
        inner = layer.layer if wraps else layer
        if isinstance(inner, tf.keras.Model):
            yield from _layers(inner)
        else:
            match = _PART.match(layer.name)
            yield layer, match[1] if match else None
