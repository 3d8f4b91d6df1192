"""What a trained lambda layer does: content, position, receptive fields."""

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
_PROBES = 4  # Random vectors of signs for each example.


@dataclasses.dataclass(frozen=True)
class PartNorms:
    """How large the two parts of a layer's output are, over a data set.

    Attributes:
        name: of the layer.
        content: root mean square of the content part of the output.
        position: of the position part.
        both: of the output, their sum.
    """

    name: str
    content: float
    position: float
    both: float

    @property
    def content_share(self) -> float:
        """Share of the content part in the sum of the two squared norms."""
        squares = self.content**2, self.position**2
        return squares[0] / sum(squares) if any(squares) else float("nan")

    @property
    def cosine(self) -> float:
        """Cosine between the two parts: 0 if independent, -1 if opposed."""
        product = (self.both**2 - self.content**2 - self.position**2) / 2
        scale = self.content * self.position
        return product / scale if scale else float("nan")


def lambda_layers(model: tf.keras.Model) -> list[Any]:
    """Returns the lambda layers of a functional model and the models in it."""
    return list({id(x): x for _, x in lambda_calls(model)}.values())


def lambda_calls(model: tf.keras.Model) -> list[tuple[str, Any]]:
    """Returns name and layer of every call of a lambda layer."""
    check_functional(model)
    calls = all_calls(model)
    return [(name, x) for name, x, _ in calls if isinstance(x, LambdaBase)]


def layer_part(layer: Any, part: str) -> Any:
    """Returns a layer that computes a part of the outputs, None if without."""
    if part == "both":
        return layer
    if not getattr(layer, f"use_{part}", False):
        return None
    left_out = "use_position" if part == "content" else "use_content"
    config = {**layer.get_config(), "name": f"{layer.name}_{part}"}
    config |= {name: False for name in config if name.startswith(left_out)}
    if part == "content":
        config["position_embedding"] = "relative"  # Not one that is shared.
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

    It is the norm of the derivative of the outputs at one position by the
    inputs at every position, averaged over the examples. The norm over output
    channels is estimated with random signs; where it is zero, it is exact.

    Args:
        model: a functional Keras model with one input.
        layer: a layer of it, or its name: `model/layer` in a nested model,
            `layer_call2` for its second call.
        inputs: array of examples, as the model takes them.
        position: of the layer's output, one index per spatial axis; None for
            the center.
        part: "both", or the "content" or "position" part of a lambda layer.
        source: "model" for derivatives by the inputs of the model, "layer" by
            those of the layer.

    Returns:
        float array of the spatial shape of the inputs.

    Raises:
        ValueError: if the model lacks the layer, the layer that part, or the
            outputs have no derivative, as by tokens.

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
                    f"by `inputs` with source={source!r}, such as where these "
                    "are integers that an Embedding looks up: use "
                    "source='layer', for a layer that comes after it."
                )
            gradient = tf.cast(gradient, tf.float32).numpy()
            squares += (gradient**2).sum(axis=-1)  # [b, *spatial]
        total = total + np.sqrt(squares / _PROBES).sum(axis=0)
    return np.asarray(total / len(inputs))


def _named(model, wanted):
    """Returns name and layer of the first call of a layer, given either."""
    calls = {name: layer for name, layer, _ in all_calls(model)}
    for name, layer in calls.items():
        if wanted is layer or wanted == name:
            return name, layer
    name = getattr(wanted, "name", wanted)
    raise ValueError(
        f"`layer` must be a layer of model {model.name!r}. Received: "
        f"{name!r}.{did_you_mean(str(name), calls)}"
    )


def place_on(grid: Sequence[int], position: Any, what: str) -> tuple[int, ...]:
    """Returns one index per axis of a grid, its center if none is given."""
    grid = tuple(grid)
    if position is None:
        return tuple(size // 2 for size in grid)
    position = (position,) if isinstance(position, int) else tuple(position)
    if len(position) != len(grid) or not all(
        0 <= index < size for index, size in zip(position, grid, strict=True)
    ):
        raise ValueError(
            f"`position` must be one index per spatial axis of the {what}, "
            f"{grid}. Received: {position}."
        )
    return position
