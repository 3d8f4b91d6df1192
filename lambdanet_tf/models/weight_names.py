"""Weights of models by name: what files, tests and other projects go by.

A name is `layer/[sublayer/...]weight`: the name of the layer in the model, the
names of the attributes that lead to the weight's owner, and the weight's own
name. Nothing depends on the order of layers, which differs between the Kerases.

    stage4_block3_conv1/kernel
    stage4_block3_lambda/query/kernel
    stage4_block3_lambda/query_norm/moving_mean
    stage4_block3_lambda/position_embedding/embeddings
    stage4_embedding/embeddings           (a layer that several layers share)
    predictions/bias
"""

import re
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.layers import RelativePositionEmbedding
from lambdanet_tf.models.cloning import check_model

HEAD = "predictions"  # The layer that depends on the number of classes.


def named_weights(model: tf.keras.Model) -> dict[str, Any]:
    """Returns the weights of a model by the names that files use.

    Args:
        model: a Keras model, built.

    Returns:
        dict from name to variable. A weight that several layers share is there
        once, under the name of the layer that owns it.

    Raises:
        ValueError: if two weights would have the same name.

    Examples:
        >>> weights = named_weights(models.LambdaResNetSmall())
        >>> weights["predictions/bias"].shape
        TensorShape([10])
    """
    return {name: weight for name, (weight, _) in _owned(model).items()}


def check_built(model: Any) -> None:
    """Raises a ValueError unless something is a model with all its weights.

    Args:
        model: what must be one.
    """
    check_model(model)
    plain = tf.keras.layers.Layer.build  # of layers that make no weights
    unbuilt = [
        f", whose layer {part.name!r} is not built"
        for part in model._flatten_layers()
        if not isinstance(part, tf.keras.Model)  # its layers come, too
        and type(part).build is not plain
        and not (part.built or part.weights)
    ]
    if unbuilt or not named_weights(model):
        raise ValueError(
            "`model` must have the weights of all its layers: call it, which "
            f"builds them. Received: {model.name!r}"
            f"{''.join(unbuilt[:1]) or ' without weights'}."
        )


def global_tables(model: tf.keras.Model) -> dict[str, tuple[Any, int]]:
    """Returns the tables of relative positions whose scope is global.

    Args:
        model: as for `named_weights`.

    Returns:
        dict from name to variable and the number of its axes of positions.
    """
    return {
        name: (weight, len(weight.shape) - 2)
        for name, (weight, owner) in _owned(model).items()
        if isinstance(owner, RelativePositionEmbedding) and owner.scope is None
    }


def named_layers(model: tf.keras.Model) -> list[tuple[str, Any]]:
    """Returns all layers with weights, and what the names of these begin with.

    Args:
        model: as for `named_weights`.

    Returns:
        List of pairs, such as ("stage4_block3_lambda/query/", layer); the model
        itself is there as "".
    """
    paths = {}  # id of a layer: (layer, its paths)
    _walk(model, "", paths)
    return [
        (names[0] if len(names) == 1 else f"{layer.name}/", layer)
        for layer, names in paths.values()
    ]


def _owned(model):
    """Every weight by name, with the layer that owns it."""
    named = {}
    for prefix, layer in named_layers(model):
        for weight in _own_weights(layer):
            key = prefix + _weight_name(weight)
            if key in named:
                raise ValueError(
                    f"Two weights of {model.name!r} are called {key}. Give "
                    "every layer a name of its own, and keep sublayers as "
                    "attributes or in lists."
                )
            named[key] = weight, layer
    return named


def _walk(layer, prefix, paths):
    """Collects a layer and its sublayers, with all the ways to each."""
    _, ways = paths.setdefault(id(layer), (layer, []))
    if prefix not in ways:
        ways.append(prefix)
    for name, sublayer in _sublayers(layer):
        _walk(sublayer, f"{prefix}{name}/", paths)


def _sublayers(layer):
    """Name and layer of every direct sublayer that has weights."""
    if isinstance(layer, tf.keras.Model):
        pairs = [(sublayer.name, sublayer) for sublayer in layer.layers]
        return _with_weights(pairs)
    attributes = _with_weights(vars(layer).items())
    pairs = [pair for pair in attributes if not pair[0].startswith("_")]
    names = [_weight_name(weight) for weight in _others(layer, pairs)]
    if len(set(names)) == len(names):
        return pairs
    # Only what has no name otherwise is looked for in lists and under names
    # with "_", so that the names in files stay what they were.
    listed = [
        (f"{name}/{index}", value)
        for name, values in vars(layer).items()
        if isinstance(values, list | tuple) and not name.startswith("_")
        for index, value in enumerate(values)
    ]
    hidden = [(name.lstrip("_"), value) for name, value in attributes]
    found = {id(value): (name, value) for name, value in pairs}
    for name, value in [*_with_weights(listed), *hidden]:
        found.setdefault(id(value), (name, value))
    return list(found.values())


def _with_weights(pairs):
    """Those of pairs of a name and a value that are layers with weights."""
    layer = tf.keras.layers.Layer
    return [(k, x) for k, x in pairs if isinstance(x, layer) and x.weights]


def _own_weights(layer):
    """The weights of a layer that none of its sublayers has."""
    return _others(layer, _sublayers(layer))


def _others(layer, pairs):
    """The weights of a layer that the sublayers of some pairs do not have."""
    theirs = {id(weight) for _, part in pairs for weight in part.weights}
    own = [weight for weight in layer.weights if id(weight) not in theirs]
    # A vocabulary is among the weights in tf_keras, without a name, and with
    # counts that all have one name.
    return own if all(hasattr(weight, "name") for weight in own) else []


def _weight_name(weight):
    """`kernel` of `scope/kernel:0`, as a weight is called in tf_keras."""
    name = weight.name.split("/")[-1].split(":")[0]
    return name.removeprefix("depthwise_")  # tf_keras' name of that kernel.


def set_weights(
    model: tf.keras.Model,
    arrays: dict[str, np.ndarray],
    origin: str,
    skip: str | Sequence[str] = (),
    skip_mismatch: bool = False,
) -> tuple[str, ...]:
    """Sets all weights of a model from arrays by name, or none and raises.

    Args:
        model: as for `load_weights`, and so are the rest.
        arrays: by the names of `named_weights`.
        origin: where they are from, for messages.
        skip: see there.
        skip_mismatch: see there.

    Returns:
        As `load_weights`.

    Raises:
        ValueError: as `load_weights`.

    Examples:
        >>> model = models.LambdaResNetSmall()
        >>> arrays = {k: w.numpy() for k, w in named_weights(model).items()}
        >>> set_weights(model, arrays, "a copy")
        ()
    """
    _check_skip(skip)
    ours = named_weights(model)
    skip = (skip,) if isinstance(skip, str) else tuple(skip)
    if not any(key.startswith(f"{HEAD}/") for key in ours):
        skip = (*skip, f"{HEAD}/")
    ours = {k: w for k, w in ours.items() if not k.startswith(skip)}
    arrays = {k: w for k, w in arrays.items() if not k.startswith(skip)}
    shapes = {k: tuple(w.shape) for k, w in ours.items()}
    mismatched = ()
    if skip_mismatch:
        mismatched = tuple(
            key
            for key, shape in shapes.items()
            if key in arrays and arrays[key].shape != shape
        )
        for key in mismatched:
            del shapes[key], arrays[key]
    check_fit(shapes, arrays, model.name, origin)
    for key in shapes:
        ours[key].assign(arrays[key])
    finalize_states(model)
    return mismatched


def _check_skip(skip):
    if not (
        isinstance(skip, Collection)
        and all(isinstance(name, str) for name in skip)
    ):
        raise ValueError(
            "`skip` must be a text or a sequence of texts. Received: "
            f"skip={skip!r}."
        )


def finalize_states(layer: tf.keras.layers.Layer) -> None:
    """Remakes what layers keep of their weights, after these were assigned.

    `Normalization` and other layers that are adapted compute with tensors that
    they made of their weights.

    Args:
        layer: a layer or a model, with all that it holds.
    """
    for part in layer._flatten_layers():
        # Without weights there is nothing to make them of.
        if hasattr(part, "finalize_state") and part.weights:
            part.finalize_state()


def copy_low_rank_updates(
    layer: tf.keras.layers.Layer, copy: tf.keras.layers.Layer
) -> None:
    """Gives a copy the low-rank updates (LoRA) of a layer, not their values.

    Keras' own layers have their rank in their configuration, sublayers do not.

    Args:
        layer: a layer or a model.
        copy: another of the same structure, built.
    """
    parts = layer._flatten_layers(), copy._flatten_layers()
    for own, new in zip(*parts, strict=False):
        if getattr(own, "lora_enabled", False):
            if not new.lora_enabled:
                new.enable_lora(own.lora_rank)
            new.lora_alpha = own.lora_alpha  # Which Keras forgets.


def copy_frozen(
    layer: tf.keras.layers.Layer, copy: tf.keras.layers.Layer
) -> None:
    """Freezes in a copy what is frozen in a layer, and nothing else.

    Args:
        layer: of any kind, with all that it holds.
        copy: another of the same structure, built.
    """
    parts = layer._flatten_layers(), copy._flatten_layers()
    for own, new in zip(*parts, strict=False):
        if new.trainable != own.trainable:
            new.trainable = own.trainable
    freeze_updated(copy)


def freeze_updated(layer: tf.keras.layers.Layer) -> None:
    """Freezes what low-rank updates (LoRA) are added to.

    Keras does so once. To set `trainable` of a layer trains it again.

    Args:
        layer: a layer or a model, with all that it holds.
    """
    for part in layer._flatten_layers():
        if getattr(part, "lora_enabled", False):
            for name in {"_kernel", "_embeddings"} & vars(part).keys():
                getattr(part, name).trainable = False


def copy_weights(
    layer: tf.keras.layers.Layer, copy: tf.keras.layers.Layer
) -> None:
    """Gives a copy the weights of a layer, and what is frozen inside.

    Args:
        layer: of any kind, with all that it holds.
        copy: another of the same structure, built.
    """
    # First: in Keras 2 the order of the weights depends on it.
    copy_frozen(layer, copy)
    if layer.weights:
        copy_low_rank_updates(layer, copy)
        copy.set_weights(layer.get_weights())
    finalize_states(copy)


def check_fit(
    shapes: Mapping[str, Sequence[int | None] | None],
    arrays: Mapping[str, np.ndarray],
    name: str,
    origin: str,
) -> None:
    """Raises a ValueError that says how arrays do not fit a model.

    Args:
        shapes: of the weights, by name; None where any size or shape fits.
        arrays: by name.
        name: of the model, for messages.
        origin: where the arrays are from, likewise.
    """
    missing = [key for key in shapes if key not in arrays]
    unexpected = [key for key in arrays if key not in shapes]
    misshapen = [
        f"{key} is {arrays[key].shape} in the file and {tuple(shape)} in the "
        "model"
        for key, shape in shapes.items()
        if key in arrays
        and shape is not None
        and not _fits(arrays[key].shape, shape)
    ]
    not_numbers = [key for key, x in arrays.items() if not _is_real(x.dtype)]
    if not (missing or unexpected or misshapen or not_numbers):
        return
    parts = [
        f"{len(found)} {what}: {_some(found)}."
        for what, found in (
            ("missing in the file", missing),
            ("unexpected in the file", unexpected),
            ("of another shape", misshapen),
            ("that are no real numbers", not_numbers),
        )
        if found
    ]
    head_only = not not_numbers and all(
        key.startswith(f"{HEAD}/") for key in missing + unexpected + misshapen
    )
    if head_only:
        parts.append(
            "Only the classifier differs: to keep the rest, call "
            "`load_weights(model, path, skip_mismatch=True)`."
        )
    plain = [
        sorted(re.sub(r"_\d+\b", "", key) for key in keys)
        for keys in (missing, unexpected)
    ]
    if missing and plain[0] == plain[1]:
        parts.append(
            "They differ in numbers that Keras gave: name the layers, or call "
            "`tf.keras.backend.clear_session()` before making each model."
        )
    raise ValueError(
        f"`weights` must fit the model. {origin} does not fit {name!r}. "
        f"Weights {' '.join(parts)}"
    )


def _is_real(dtype):
    """Whether values of a NumPy type are numbers that a weight can have."""
    return dtype.kind in "biuf" or dtype == tf.bfloat16.as_numpy_dtype


def _fits(shape, expected):
    """Whether a shape is the expected one, None for any size."""
    return len(shape) == len(expected) and all(
        b in (None, a) for a, b in zip(shape, expected, strict=True)
    )


def _some(names, number=3):
    """The first few names, and how many more there are."""
    rest = f" and {len(names) - number} more" if len(names) > number else ""
    return ", ".join(names[:number]) + rest
