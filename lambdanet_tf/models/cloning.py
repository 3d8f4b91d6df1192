"""Copies of networks that keep what their layers share, and know."""

import contextlib
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from lambdanet_tf.layers import RelativePositionEmbedding
from lambdanet_tf.models.graph import graph_of
from lambdanet_tf.models.graph import has_own_call
from lambdanet_tf.models.graph import is_graph


def check_model(model: Any) -> None:
    """Raises a ValueError unless something is a model of `tf.keras`.

    Args:
        model: what must be one.
    """
    if not isinstance(model, tf.keras.Model):
        raise ValueError(
            "`model` must be a model of `tf.keras`. Received: a "
            f"{type(model).__module__}.{type(model).__name__}."
        )


def check_functional(model: Any) -> None:
    """Raises a ValueError unless the layers of a model are known as a graph.

    Args:
        model: what must be a functional model, or a Sequential with inputs.

    Raises:
        ValueError: if it is none; the text says how to wrap it.

    Examples:
        >>> check_functional(models.LambdaResNetSmall())
    """
    check_model(model)
    try:
        has_calls = bool(model.inputs and model.outputs)
    except (AttributeError, ValueError):  # As Keras 3 says it.
        has_calls = False
    why = "" if has_calls else " without inputs"
    if has_own_call(model):
        why = ", whose own `call` may compute something else"
    if why:
        raise ValueError(
            "`model` must be a functional model, whose layers are known as a "
            f"graph. Received: {model.name!r}, a {type(model).__name__}{why}. "
            "Wrap it: `images = tf.keras.Input((height, width, "
            "channels))`, then `tf.keras.Model(images, model.call(images))`."
        )


def clone_network(
    model: tf.keras.Model,
    input_tensors: Any = None,
    clone_layer: Callable | None = None,
) -> tf.keras.Model:
    """Copies a network, with new weights, sharing embeddings as it does.

    `tf.keras.models.clone_model` gives each layer a table of its own, and
    warns. Vocabularies of layers that look up words are copied as well.

    Args:
        model: a functional model.
        input_tensors: Keras tensors to build on, of another size for instance,
            in the model's order; None for inputs like the model's.
        clone_layer: function of a layer and its config that returns its copy;
            None for the same layer. The config of a layer that shares its table
            holds the copy of that table.

    Returns:
        A functional model.

    Raises:
        ValueError: if the model is not functional.

    Examples:
        >>> model = models.LambdaResNetSmall()
        >>> clone_network(model).count_params() == model.count_params()
        True
    """
    tables = {}

    def clone(layer, config):
        if _has_shared_tables(layer, config):
            copy = clone_graph(layer, tables, clone)
            if not layer.trainable:
                copy.trainable = False
            return copy
        return copy_of(layer, config)

    def clone_chosen(layer, config):
        if clone_layer is None or _has_shared_tables(layer, config):
            return clone(layer, config)
        return clone_layer(layer, config)

    return clone_graph(model, tables, clone_chosen, input_tensors)


def clone_graph(
    model: tf.keras.Model,
    tables: dict[int, Any],
    clone_layer: Callable,
    input_tensors: Any = None,
) -> tf.keras.Model:
    """Copies a network as `clone_network` does, with tables of many networks.

    Args:
        model: as there, and so are the rest.
        tables: as for `config_with_table`.
        clone_layer: see there; it also copies the models inside.
        input_tensors: see there.
    """
    check_functional(model)
    if input_tensors is not None:  # Keras 3 wants the model's own structure.
        input_tensors = tf.nest.pack_sequence_as(
            graph_of(model).input, tf.nest.flatten(input_tensors)
        )

    def clone(layer):
        with copying(layer):  # What `clone_layer` raises is its own.
            config = config_with_table(layer, tables)
        copy = clone_layer(layer, config)
        copy_vocabularies(layer, copy)
        return copy

    return tf.keras.models.clone_model(
        model, input_tensors=input_tensors, clone_function=clone
    )


def copy_of(layer: Any, config: dict[str, Any]) -> Any:
    """Returns a new layer of a kind, by a config, or raises as `copying`."""
    with copying(layer):
        return type(layer).from_config(config)


@contextlib.contextmanager
def copying(layer: Any, name: str | None = None) -> Iterator[None]:
    """Turns what Keras says of a layer that has no copy into a clear error.

    Args:
        layer: of any kind.
        name: for the error; None for the layer's own.

    Raises:
        ValueError: instead of what its `get_config` or `from_config` raises.
    """
    try:
        yield
    except (NotImplementedError, TypeError, ValueError) as error:
        said = " ".join(str(error).split())
        raise ValueError(
            f"Layer {(name or layer.name)!r}, a {type(layer).__name__}, cannot "
            "be copied: its `get_config` must hold what its constructor "
            f"takes. Keras says: {said}"
        ) from error


def config_with_table(layer: Any, tables: dict[int, Any]) -> dict[str, Any]:
    """Returns the config of a layer, which holds a copy of a shared table.

    Args:
        layer: of any kind.
        tables: the copies that there are, by the `id` of what they copy; a new
            one is added.
    """
    config = layer.get_config()
    if isinstance(config.get("position_embedding"), dict):
        table = layer.position_embedding
        if id(table) not in tables:
            tables[id(table)] = type(table).from_config(table.get_config())
        config["position_embedding"] = tables[id(table)]
    return config


def copy_vocabularies(layer: Any, copy: Any) -> None:
    """Gives a copy the vocabularies that a layer and its parts have adapted.

    They are no weights, and not in a config.

    Args:
        layer: of any kind.
        copy: made of its config.
    """
    if copy is layer or not isinstance(layer, tf.keras.layers.Layer):
        return
    parts = layer._flatten_layers(), copy._flatten_layers()
    for own, new in zip(*parts, strict=False):
        # What both Kerases have in a `TextVectorization`.
        table = getattr(own, "_lookup_layer", own)
        if not hasattr(own, "set_vocabulary") or table.input_vocabulary:
            continue
        words = own.get_vocabulary(include_special_tokens=False)
        if words and table.output_mode == "tf_idf":
            first = table.vocabulary_size() - len(words)  # the special ones
            rates = table.idf_weights_const.numpy()[first:][: len(words)]
            new.set_vocabulary(words, rates)
        elif words:
            new.set_vocabulary(words)


def _has_shared_tables(layer, config):
    """Whether a layer is a model, of Keras' own classes, with such tables."""
    return (
        is_graph(layer)
        and "layers" in config
        and any(
            isinstance(
                getattr(part, "_position_embedding_argument", None),
                RelativePositionEmbedding,
            )
            for part in layer._flatten_layers()
        )
    )
