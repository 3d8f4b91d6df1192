"""What a position read in the lambda layers of a network."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.analysis.parts import check_one_input
from lambdanet_tf.analysis.parts import check_sum
from lambdanet_tf.analysis.parts import lambda_layers
from lambdanet_tf.analysis.parts import single_call
from lambdanet_tf.analysis.parts import single_input
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.models.graph import arguments_of
from lambdanet_tf.models.graph import output_of
from lambdanet_tf.models.graph import symbolic


def read(
    model: tf.keras.Model,
    inputs: Any,
    position: Any = None,
    layers: str | Sequence[str] | None = None,
) -> dict[str, ops.Reading]:
    """Returns what a position of the inputs read, by lambda layer.

    Args:
        model: a functional Keras model with one input.
        inputs: array of examples, as the model takes them.
        position: of the inputs, such as the pixel (row, column) or the number
            of a word: one index per spatial axis. Each layer is read where its
            map covers it. None for the center.
        layers: names of lambda layers, or what these begin with, such as
            "stage4"; one, or several. None for all.

    Returns:
        A `lambdanet_tf.ops.Reading` of one query by the name of each layer, in
        the order of the model.

    Raises:
        ValueError: if there is no such layer or position, or a layer is called
            with more than its inputs (a context, masks, embeddings), or called
            several times.

    Examples:
        >>> model = models.LambdaResNetSmall()
        >>> images = tf.random.uniform([1, 8, 8, 1], maxval=255.0)
        >>> len(read(model, images, layers="stage4"))
        2
    """
    check_one_input(model)
    chosen = _chosen(lambda_layers(model), layers)
    calls = [single_call(model, layer) for layer in chosen]
    ends = [(*_with_mask(call), output_of(call)) for call in calls]
    inputs = tf.convert_to_tensor(inputs)  # Keras takes a list as several
    flat = [x for x in tf.nest.flatten(ends) if x is not None]
    tensors = iter(
        tf.keras.Model(model.inputs[0], flat)(inputs, training=False)
    )
    readings = {}
    for layer, (_, mask, _) in zip(chosen, ends, strict=True):
        x = next(tensors)
        masks = {} if mask is None else {"mask": next(tensors)}
        output = next(tensors)
        grid = tuple(output.shape[1:-1])
        sizes = tuple(inputs.shape[1 : 1 + len(grid)])
        place = _covering(position, sizes, grid)
        reading = layer.read(x, [place], **masks)
        at_place = output[(slice(None), *place)]
        check_sum(layer, [reading.outputs()[:, 0]], at_place)
        readings[layer.name] = reading
    return readings


def _with_mask(call):
    """The symbolic input of a call, and the mask that came with it."""
    first, *others = symbolic(arguments_of(call))
    mask = getattr(first, "_keras_mask", None)
    if len(others) == 1 and others[0] is mask:  # as Keras 3 passes it on
        return first, mask
    return single_input(call), None


def _chosen(layers, names):
    """The layers whose names are given, or begin so."""
    if names is None:
        return layers
    names = (names,) if isinstance(names, str) else tuple(names)
    for name in names:
        if not any(layer.name.startswith(name) for layer in layers):
            known = [layer.name for layer in layers]
            raise ValueError(
                "`layers` must be names of lambda layers, or what they begin "
                f"with. Received: {name!r}.{did_you_mean(name, known)} There "
                f"are: {', '.join(known)}."
            )
    return [layer for layer in layers if layer.name.startswith(names)]


def _covering(position, sizes, grid):
    """The place on a layer's grid that covers a position of the inputs."""
    if position is None:
        position = tuple(size // 2 for size in sizes)
    position = (position,) if isinstance(position, int) else tuple(position)
    if len(position) != len(sizes) or not all(
        0 <= index < size for index, size in zip(position, sizes, strict=True)
    ):
        raise ValueError(
            "`position` must be one index per spatial axis of the inputs, "
            f"{tuple(map(int, sizes))}. Received: {position}."
        )
    return tuple(
        int(index * count // size)
        for index, size, count in zip(position, sizes, grid, strict=True)
    )
