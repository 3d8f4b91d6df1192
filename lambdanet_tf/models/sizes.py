"""Networks at other sizes: tables of a global scope, cropped or interpolated.

An entry of a table belongs to a way from one position to another. So the
center of a table is the table of a smaller map, exactly; on a larger map there
are ways that it has no entry for.
"""

import warnings
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import positive_int
from lambdanet_tf.models.cloning import check_functional
from lambdanet_tf.models.cloning import clone_graph
from lambdanet_tf.models.cloning import copy_of
from lambdanet_tf.models.graph import arguments_of
from lambdanet_tf.models.graph import graph_of
from lambdanet_tf.models.graph import is_graph
from lambdanet_tf.models.graph import nodes
from lambdanet_tf.models.graph import operation_of
from lambdanet_tf.models.graph import symbolic
from lambdanet_tf.models.weight_names import copy_frozen
from lambdanet_tf.models.weight_names import copy_low_rank_updates
from lambdanet_tf.models.weight_names import finalize_states
from lambdanet_tf.models.weight_names import global_tables
from lambdanet_tf.models.weight_names import named_weights


def resize_embeddings(
    model: tf.keras.layers.Layer, input_shape: Sequence[int | None]
) -> tf.keras.layers.Layer:
    """Copies a network, or a layer, for inputs of another size.

    The copy has weights of its own. They are the same but for the tables of
    lambda layers and attention whose scope is global: to a smaller size their
    center is cut out, which is exact, to a larger one they are interpolated
    linearly, as those of pretrained networks are; fine-tune them there.

    A layer needs no copy for smaller inputs: it is called on them as it is.

    Args:
        model: a functional or Sequential model with one input, as must be the
            models that it holds; or a layer of `lambdanet_tf.layers`, built.
        input_shape: of its inputs without the batch, `(*spatial, channels)`,
            or of tokens `(positions,)`.

    Returns:
        The copy.

    Raises:
        ValueError: if the model has another form or holds one that has, a
            layer is not built, or the shape does not fit.

    Examples:
        >>> layer = LambdaLayer(scope=None)
        >>> layer.build((None, 8, 8, 32))
        >>> larger = resize_embeddings(layer, (12, 12, 32))
        >>> larger(tf.zeros([1, 12, 12, 32])).shape
        TensorShape([1, 12, 12, 32])
    """
    _check_input_shape(input_shape)
    input_shape = tuple(input_shape)
    if isinstance(model, tf.keras.Model):
        copy = _model_of_size(model, input_shape, {}, {})
    else:
        copy = _layer_of_size(model, input_shape)
    copy_frozen(model, copy)
    copy_low_rank_updates(model, copy)
    weights, given = named_weights(copy), named_weights(model)
    arrays = {name: np.asarray(weight) for name, weight in given.items()}
    fitted, _ = _fitted(copy, arrays)
    _check_shapes(weights, fitted, input_shape)
    for name, weight in weights.items():
        weight.assign(fitted[name])
    finalize_states(copy)
    return copy


def _check_input_shape(input_shape):
    try:
        for size in input_shape:
            if size is not None:
                positive_int("input_shape", size)
    except (TypeError, ValueError):
        raise ValueError(
            "`input_shape` must be of positive integers, or None for any size. "
            f"Received: input_shape={input_shape!r}."
        ) from None


def _check_shapes(weights, arrays, input_shape):
    """Raises a ValueError if an input shape asks for weights of another one."""
    given = {name: array.shape for name, array in arrays.items()}
    wanted = {name: tuple(weight.shape) for name, weight in weights.items()}
    # Of another rank there may be more tables, or fewer.
    for name in given | wanted:
        if given.get(name) != wanted.get(name):
            raise ValueError(
                "`input_shape` must leave all weights their shapes, but tables "
                f"of a global scope. Received: input_shape={input_shape}, with "
                f"which the shape of {name} would be {wanted.get(name)}, not "
                f"{given.get(name)}."
            )


def _model_of_size(model, input_shape, shapes, tables):
    """A copy of a model at another size, with new weights.

    Args:
        model: a functional or Sequential model.
        input_shape: of its inputs without the batch.
        shapes: dict to which the shapes are added that the models in it see,
            by the id of the tensor in the given model.
        tables: the copies of tables that there are, by the id of a table.
    """
    check_functional(model)
    if len(model.inputs) != 1:
        raise ValueError(
            "`model`, and each model that it holds, must have one input. "
            f"Received: {model.name!r} with {len(model.inputs)} inputs."
        )
    built = tuple(model.inputs[0].shape)
    channels = built[2:][-1:] or (None,)  # tokens have none
    wanted = [None] * (len(built) - 2) + [*channels]
    if not tf.TensorShape(wanted).is_compatible_with(input_shape):
        raise ValueError(
            "`input_shape` must be like that of the model, "
            f"{built[1:]}, at other sizes. Received: {input_shape}."
        )

    def clone(layer, config):
        if is_graph(layer):
            size = _size_at(layer, model, input_shape, shapes)
            return _model_of_size(layer, size, shapes, tables)
        return copy_of(layer, config)

    # Of the same name, as Keras 3 has them by name in dictionaries.
    given = model.inputs[0]
    inputs = tf.keras.Input(input_shape, dtype=given.dtype, name=given.name)
    return clone_graph(model, tables, clone, inputs)


def _size_at(layer, model, input_shape, shapes):
    """The shape of what a layer sees in a model of another size."""
    calls = nodes(graph_of(model))
    call = next(node for node in calls if operation_of(node) is layer)
    tensor = symbolic(arguments_of(call))[0]
    if tensor is model.inputs[0]:
        return input_shape
    if id(tensor) not in shapes:
        before = tf.keras.Model(model.inputs[0], tensor)
        copy = _model_of_size(before, input_shape, shapes, {})
        shapes[id(tensor)] = tuple(copy.outputs[0].shape)[1:]
    return shapes[id(tensor)]


def _layer_of_size(layer, input_shape):
    if not getattr(layer, "built", False):
        raise ValueError(
            "`model` must be a model, or a layer that is built. Received: "
            f"{layer!r}."
        )
    with warnings.catch_warnings():
        # That it gets a table of its own is what is asked for.
        warnings.simplefilter("ignore")
        copy = type(layer).from_config(layer.get_config())
    shapes = [(None, *input_shape)]
    config = layer.get_build_config() or {}
    if "shapes" in config:  # of the inputs and of the context
        channels = config["shapes"][1][-1]
        shapes.append((None, *input_shape[:-1], channels))
    copy.build(*shapes)
    return copy


def fit_tables(
    model: tf.keras.Model, arrays: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns arrays with the tables of a global scope of a model's sizes.

    Warns where one is interpolated.

    Args:
        model: built.
        arrays: by the names of `named_weights`.
    """
    fitted, stretched = _fitted(model, arrays)
    if stretched:
        warnings.warn(
            f"The inputs of {model.name!r} are larger than those that its "
            "weights were trained on: the position embeddings are "
            "interpolated, linearly. Fine-tune them at this size.",
            stacklevel=3,
        )
    return fitted


def _fitted(model, arrays):
    """The arrays, and whether one was stretched."""
    fitted, stretched = dict(arrays), False
    for name, (weight, axes) in global_tables(model).items():
        table, shape = arrays.get(name), tuple(weight.shape)
        if table is None or table.ndim != len(shape):
            continue
        stretched |= any(
            want > have
            for want, have in zip(shape[:axes], table.shape, strict=False)
        )
        fitted[name] = resize_table(table, shape[:axes])
    return fitted, stretched


def resize_table(table: np.ndarray, entries: Sequence[int]) -> np.ndarray:
    """Fits a table of relative positions to maps of another size.

    The center stays the center. On an axis with fewer entries the outer ones
    are cut off, which is exact: the others keep their meaning. On an axis with
    more, neighbors are interpolated linearly, the ends staying the ends.

    Args:
        table: `(*entries, ...)`.
        entries: odd number of relative positions for each of the first axes.

    Returns:
        The table with these numbers of entries.
    """
    for axis, wanted in enumerate(entries):
        have = table.shape[axis]
        if wanted <= have:
            first = (have - wanted) // 2
            rows = np.arange(first, first + wanted)
            table = np.take(table, rows, axis)
            continue
        places = np.linspace(0, have - 1, wanted)
        low = np.minimum(places.astype(int), have - 2)
        share = (places - low).reshape([-1] + [1] * (table.ndim - 1 - axis))
        below, above = np.take(table, low, axis), np.take(table, low + 1, axis)
        table = ((1 - share) * below + share * above).astype(table.dtype)
    return table
