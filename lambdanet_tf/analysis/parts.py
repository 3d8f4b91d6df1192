"""The content and position parts of lambda layers, and receptive fields."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.analysis.calls import all_calls
from lambdanet_tf.analysis.calls import observed
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.arguments import one_of
from lambdanet_tf.layers.lambda_base import LambdaBase
from lambdanet_tf.models import check_functional
from lambdanet_tf.models import named_weights

PARTS = ("both", "content", "position")
SOURCES = ("model", "layer")
_BATCH = 32
_PROBES = 4  # Random sign vectors for each example.


@dataclasses.dataclass(frozen=True)
class PartNorms:
    """The sizes of the two parts of a layer's output, over a data set.

    Attributes:
        name: the layer's name.
        content: root mean square of the content part of the output.
        position: root mean square of the position part.
        both: root mean square of the output, their sum.
    """

    name: str
    content: float
    position: float
    both: float

    @property
    def content_share(self) -> float:
        """The content part's fraction of the sum of the squared norms."""
        squares = self.content**2, self.position**2
        return squares[0] / sum(squares) if any(squares) else float("nan")

    @property
    def cosine(self) -> float:
        """The cosine between the two parts: 0 if independent, -1 if opposed."""
        product = (self.both**2 - self.content**2 - self.position**2) / 2
        scale = self.content * self.position
        return product / scale if scale else float("nan")


def lambda_layers(model: tf.keras.Model) -> list[Any]:
    """Returns the lambda layers of a functional model and nested models."""
    return list({id(x): x for _, x in lambda_calls(model)}.values())


def lambda_calls(model: tf.keras.Model) -> list[tuple[str, Any]]:
    """Returns name and layer of every call of a lambda layer."""
    check_functional(model)
    calls = all_calls(model)
    return [(name, x) for name, x, _ in calls if isinstance(x, LambdaBase)]


def layer_part(layer: Any, part: str) -> Any:
    """Returns a layer that computes one part of the outputs, or None."""
    if part == "both":
        return layer
    if not getattr(layer, f"use_{part}", False):
        return None
    left_out = "use_position" if part == "content" else "use_content"
    config = {**layer.get_config(), "name": f"{layer.name}_{part}"}
    config |= {name: False for name in config if name.startswith(left_out)}
    if part == "content":
        config["position_embedding"] = "relative"  # Not a shared layer.
    copy = type(layer).from_config(config)
    copy.build_from_config(layer.get_build_config())
    weights = named_weights(layer)
    for name, weight in named_weights(copy).items():
        weight.assign(weights[name])
    return copy


def part_norms(model: tf.keras.Model, inputs: Any) -> list[PartNorms]:
    """Measures the content and position part of every lambda layer.

    Args:
        model: a functional Keras model with one input.
        inputs: array of examples, as the model takes them.
    """
    parts = {
        name: [layer_part(layer, part) for part in PARTS[1:]]
        for name, layer in lambda_calls(model)
    }
    squares = {name: np.zeros(3) for name in parts}
    counts = dict.fromkeys(parts, 0)
    for begin in range(0, len(inputs), _BATCH):
        batch = inputs[begin : begin + _BATCH]
        calls = observed(model, batch, lambda name, _: name in parts)
        for name, (_, args, kwargs, outputs) in calls.items():
            own = [
                tf.zeros([]) if part is None else part(*args, **kwargs)
                for part in parts[name]
            ]
            squares[name] += [
                tf.reduce_sum(tf.cast(x, tf.float32) ** 2)
                for x in (*own, outputs)
            ]
            counts[name] += np.prod(outputs.shape)
    return [
        PartNorms(name, *map(float, np.sqrt(squares[name] / counts[name])))
        for name in parts
    ]


def receptive_field(
    model: tf.keras.Model,
    layer: Any,
    inputs: Any,
    position: Sequence[int] | None = None,
    part: str = "both",
    source: str = "model",
) -> np.ndarray:
    """Computes the effective receptive field of an output position.

    It is the norm of the derivative of the outputs at one position with respect
    to the inputs at every position, averaged over the examples. Random signs
    estimate the norm over output channels; a zero is exact.

    Args:
        model: a functional Keras model with one input.
        layer: a layer of the model, or its name: `model/layer` in a nested
            model, `layer_call2` for a second call.
        inputs: array of examples, as the model takes them.
        position: a position of the layer's output, one index per spatial axis;
            None for the center.
        part: "both", or the "content" or "position" part of a lambda layer.
        source: "model" to differentiate by the inputs of the model, "layer" by
            those of the layer.

    Returns:
        float array with the spatial shape of the inputs.

    Raises:
        ValueError: if the model lacks the layer, if the layer lacks the part,
            or if the outputs have no derivative, for example by tokens.

    Reference: Luo et al., 2016, "Understanding the effective receptive field".
    """
    one_of("part", part, PARTS)
    one_of("source", source, SOURCES)
    check_functional(model)
    name, layer = _named(model, layer)
    chosen = layer_part(layer, part)
    if chosen is None:
        raise ValueError(
            f"Layer {layer.name!r} has no {part} part. Received: part={part!r}."
        )
    rng, total = np.random.default_rng(0), 0.0
    for begin in range(0, len(inputs), _BATCH):
        x = tf.cast(inputs[begin : begin + _BATCH], tf.float32)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            calls = observed(model, x, lambda path, _: path == name)
            _, args, kwargs, _ = calls[name]
            if source == "layer":
                x = args[0]
                tape.watch(x)
            outputs = chosen(*args, **kwargs)
            place = place_on(outputs.shape[1:-1], position, "outputs")
            outputs = outputs[(slice(None), *place)]  # [b, channels]
        squares = 0.0
        for _ in range(_PROBES):
            signs = tf.cast(rng.choice([-1, 1], outputs.shape), outputs.dtype)
            gradient = tape.gradient(outputs, x, output_gradients=signs)
            if gradient is None:
                raise ValueError(
                    f"The outputs of layer {layer.name!r} have no derivative "
                    f"by its `inputs` with source={source!r}, because they are "
                    "integers, for example. If an Embedding looks them up, use "
                    "source='layer' and a layer behind it."
                )
            gradient = tf.cast(gradient, tf.float32).numpy()
            squares += (gradient**2).sum(axis=-1)  # [b, *spatial]
        total = total + np.sqrt(squares / _PROBES).sum(axis=0)
    return np.asarray(total / len(inputs))


def _named(model, wanted):
    """Returns name and layer of a layer's first call, given either."""
    calls = {name: layer for name, layer, _ in all_calls(model)}
    for name, layer in calls.items():
        if wanted is layer or wanted == name:
            return name, layer
    name = getattr(wanted, "name", wanted)
    raise ValueError(
        f"`layer` must be a layer of {model.name!r}, or its name (see `model."
        f"summary()`). Received: {name!r}.{did_you_mean(str(name), calls)}"
    )


def place_on(grid: Sequence[int], position: Any, what: str) -> tuple[int, ...]:
    """Returns one index per axis of a grid, by default its center."""
    grid = tuple(grid)
    if position is None:
        return tuple(size // 2 for size in grid)
    position = (position,) if isinstance(position, int) else tuple(position)
    if len(position) != len(grid) or not all(
        0 <= index < size for index, size in zip(position, grid, strict=True)
    ):
        raise ValueError(
            f"`position` must be one index per spatial axis of the {what}, at "
            f"least 0 and below its size {grid}. Received: {position}."
        )
    return position
