"""What a trained lambda layer does: content, position, receptive fields."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.layers.lambda_base import LambdaBase
from lambdanet_tf.models import check_functional
from lambdanet_tf.models import named_weights
from lambdanet_tf.models.cloning import config_with_table
from lambdanet_tf.models.graph import arguments_of
from lambdanet_tf.models.graph import calls_of
from lambdanet_tf.models.graph import operation_of
from lambdanet_tf.models.graph import output_of
from lambdanet_tf.models.graph import symbolic

PARTS = ("both", "content", "position")
SOURCES = ("model", "layer")
_BATCH = 32


@dataclasses.dataclass(frozen=True)
class PartNorms:
    """How large the two parts of a layer's output are, over a data set.

    Attributes:
        name: of the layer.
        content: root mean square of the content part of the output.
        position: of the position part.
        both: of the output, their sum.

    Examples:
        >>> PartNorms(
        ...     "lambda", content=3.0, position=4.0, both=5.0
        ... ).content_share
        0.36
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
    """Returns the lambda layers of a functional model, in its order.

    Args:
        model: a functional Keras model.

    Returns:
        List of `LambdaLayer` and `LambdaConv`.

    Raises:
        ValueError: if all of them are in a model that it holds.

    Examples:
        >>> len(lambda_layers(models.LambdaResNetSmall()))
        4
    """
    found = [x for x in model.layers if isinstance(x, LambdaBase)]
    for inner in model.layers:
        if found or not isinstance(inner, tf.keras.Model):
            continue
        if any(isinstance(x, LambdaBase) for x in inner._flatten_layers()):
            raise ValueError(
                "`model` must have lambda layers itself. Received: "
                f"{model.name!r}; its lambda layers are in the model "
                f"{inner.name!r}: give that, `model.get_layer({inner.name!r})`."
            )
    return found


def layer_part(layer: Any, part: str) -> Any:
    """Returns a layer that computes one part of a lambda layer's output.

    Args:
        layer: a built `LambdaLayer` or `LambdaConv`.
        part: "both" for the layer itself, "content" or "position" for a copy
            with the other part left out. The two parts add up to the output.

    Returns:
        A layer, or None if the layer does not have that part.

    Raises:
        ValueError: if the layer is no lambda layer, or `part` is unknown.

    Examples:
        >>> layer = analysis.lambda_layers(models.LambdaResNetSmall())[0]
        >>> x = tf.random.normal(layer.input.shape[1:])[None]
        >>> parts = [
        ...     layer_part(layer, part)(x) for part in ("content", "position")
        ... ]
        >>> bool(tf.reduce_max(abs(layer(x) - tf.add_n(parts))) < 1e-4)
        True
    """
    if one_of("part", part, PARTS) == "both":
        return layer
    if not getattr(layer, "built", True):
        raise ValueError(
            f"`layer` must be built: call it once. Received: {layer.name!r}."
        )
    if not isinstance(layer, LambdaBase):
        raise ValueError(
            "Only lambda layers have a content and a position part. Received: "
            f"part={part!r}, layer {layer.name!r}, a {type(layer).__name__}."
        )
    left_out = "use_position" if part == "content" else "use_content"
    if not getattr(layer, f"use_{part}"):
        return None
    config = config_with_table(layer, {})
    config |= {name: False for name in config if name.startswith(left_out)}
    if part == "content":
        config["position_embedding"] = "relative"  # Not one that is shared.
    copy = type(layer).from_config({**config, "name": f"{layer.name}_{part}"})
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

    Returns:
        A `PartNorms` for each call of a lambda layer, in the order of the
        model's layers.

    Raises:
        ValueError: if a lambda layer is called with more than its inputs (a
            context, masks, embeddings).

    Examples:
        >>> norms = part_norms(
        ...     models.LambdaResNetSmall(), tf.ones([2, 8, 8, 1])
        ... )
        >>> len(norms)
        4
    """
    layers = lambda_layers(model)
    if not layers:
        return []
    check_one_input(model)
    known = calls_of(model)
    calls = [call for layer in layers for call in known[id(layer)]]
    layers = [operation_of(call) for call in calls]
    ends = [*map(single_input, calls), *map(output_of, calls)]
    prefix = tf.keras.Model(model.inputs[0], ends)
    parts = [
        [layer_part(layer, part) for part in PARTS[1:]] for layer in layers
    ]
    sums = np.zeros([len(layers), 3])
    counts = np.zeros([len(layers), 1])
    for begin in range(0, len(inputs), _BATCH):
        tensors = prefix(inputs[begin : begin + _BATCH], training=False)
        given, outputs = tensors[: len(layers)], tensors[len(layers) :]
        for row, (x, output) in enumerate(zip(given, outputs, strict=True)):
            own = [_output(part, x, output) for part in parts[row]]
            check_sum(layers[row], own, output)
            sums[row] += [_squares(x) for x in (*own, output)]
            counts[row] += np.prod(output.shape)
    norms = np.sqrt(sums / counts)
    return [
        PartNorms(layer.name, *map(float, row))
        for layer, row in zip(layers, norms, strict=True)
    ]


def receptive_field(
    model: tf.keras.Model,
    layer: Any,
    inputs: Any,
    position: Sequence[int] | None = None,
    part: str = "both",
    source: str = "model",
    probes: int = 4,
) -> np.ndarray:
    """Computes the effective receptive field of an output position.

    For each example, the norm of the derivative of the outputs at one position
    by the inputs at every position; the mean over the examples. The norm over
    output channels is estimated with random signs, and so is exact in where
    it is zero. Inference: batch statistics are fixed.

    Args:
        model: a functional Keras model with one input.
        layer: a layer of it, or its name.
        inputs: array of examples, as the model takes them.
        position: of the layer's output, one index per spatial axis; None for
            the center.
        part: "both", or the "content" or "position" part of a lambda layer.
        source: "model" for derivatives by the inputs of the model, "layer" by
            those of the layer.
        probes: int. Random vectors of signs for each example.

    Returns:
        float array of the spatial shape of the inputs.

    Raises:
        ValueError: if an argument is not as described, the layer does not have
            that part, or the model calls it several times.

    Reference: Luo et al., 2016, "Understanding the effective receptive field".

    Examples:
        >>> model = models.LambdaResNetSmall()
        >>> layer = analysis.lambda_layers(model)[0]
        >>> images = tf.random.uniform([1, 8, 8, 1], maxval=255.0)
        >>> receptive_field(model, layer, images).shape
        (8, 8)
    """
    one_of("source", source, SOURCES)
    positive_int("probes", probes)
    check_one_input(model)
    if not len(inputs):
        raise ValueError("`inputs` must hold examples. Received: none.")
    layer = _named(model, layer)
    part_layer = layer_part(layer, part)
    if part_layer is None:
        raise ValueError(
            f"Layer {layer.name!r} has no {part} part. Received: part={part!r}."
        )
    call = single_call(model, layer)
    prefix = tf.keras.Model(model.inputs[0], single_input(call))
    position = _position(call, position)
    rng, total = np.random.default_rng(0), 0.0
    for begin in range(0, len(inputs), _BATCH):
        x = _floating(inputs[begin : begin + _BATCH])
        if source == "layer":
            x = prefix(x, training=False)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            tensor = x if source == "layer" else prefix(x, training=False)
            outputs = part_layer(tensor, training=False)
            outputs = outputs[(slice(None), *position)]  # [b, channels]
        squares = 0.0
        for _ in range(probes):
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
        total = total + np.sqrt(squares / probes).sum(axis=0)
    return np.asarray(total / len(inputs))


def _floating(inputs):
    x = tf.convert_to_tensor(inputs)
    return x if x.dtype.is_floating else tf.cast(x, tf.float32)


def _named(model, layer):
    """The layer of a model, given itself or its name."""
    names = [own.name for own in model.layers]
    name = layer if isinstance(layer, str) else getattr(layer, "name", layer)
    if name not in names:
        raise ValueError(
            f"`layer` must be a layer of model {model.name!r}. Received: "
            f"{name!r}.{did_you_mean(str(name), names)}"
        )
    return model.get_layer(name)


def check_one_input(model):
    """Raises a ValueError unless a model is a graph with one input."""
    check_functional(model)
    if len(model.inputs) != 1:
        raise ValueError(
            f"`model` must have one input. Received: {len(model.inputs)}."
        )


def single_call(model, layer):
    """The call of a layer that a model calls once."""
    call, *others = calls_of(model)[id(layer)]
    if others:
        raise ValueError(
            f"`model` must call layer {layer.name!r} once: its calls are not "
            f"told apart. Received: {1 + len(others)} calls."
        )
    return call


def single_input(call):
    """The symbolic input of a call that has one.

    Its mask comes along with it, also where Keras 3 passed it on.
    """
    first, *others = symbolic(arguments_of(call))
    mask = getattr(first, "_keras_mask", None)
    if any(x is not mask for x in others):
        raise ValueError(
            f"Layer {operation_of(call).name!r} is called with more than one "
            "tensor (a context, a mask, embeddings); its parts cannot be told "
            "apart from its inputs alone."
        )
    return first


def _position(call, position):
    """One index per spatial axis of what a call of a layer returns."""
    grid = tuple(output_of(call).shape[1:-1])
    if position is None and None not in grid:
        return tuple(size // 2 for size in grid)
    position = () if position is None else tuple(position)
    if len(position) != len(grid) or any(
        size is not None and not 0 <= index < size
        for index, size in zip(position, grid, strict=False)
    ):
        raise ValueError(
            "`position` must be one index per spatial axis of the layer's "
            f"output, {grid}. Received: {position or None}."
        )
    return position


def _output(part, x, output):
    """The output of a part, zero if there is none."""
    return tf.zeros_like(output) if part is None else part(x, training=False)


def _squares(x):
    return float(tf.reduce_sum(tf.cast(x, tf.float32) ** 2))


def check_sum(layer, parts, output):
    """Raises a ValueError unless the parts are all that a layer computes."""
    output = tf.cast(output, tf.float32)
    rest = output - tf.cast(tf.add_n(parts), tf.float32)
    tolerance = 0.1 if layer.compute_dtype.endswith("16") else 1e-3
    if _squares(rest) > tolerance**2 * _squares(output):
        raise ValueError(
            f"Layer {layer.name!r} computes more than its inputs tell: it is "
            "called with a mask or with a context."
        )
