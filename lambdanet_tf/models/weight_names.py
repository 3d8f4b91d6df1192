"""Weights of models by name.

A name is `layer/[sublayer/...]weight`: the name of the layer in the model, the
attributes that lead to the weight's owner, and the weight's own name. Names do
not depend on the order of layers, which differs between the Kerases.

    stage4_block3_conv1/kernel
    stage4_block3_lambda/query/kernel
    stage4_block3_lambda/query_norm/moving_mean
    stage4_block3_lambda/position_embedding/embeddings
    stage4_embedding/embeddings           (of a shared layer)
    predictions/bias
"""

from typing import Any

import tensorflow as tf

from lambdanet_tf.models.graph import layers_in


def named_weights(model: tf.keras.Model) -> dict[str, Any]:
    """Returns the weights of a built model by their names in files.

    If several layers share a weight, its name is that of its owner.

    Raises:
        ValueError: if two weights would have the same name.
    """
    named = {}
    for prefix, layer in named_layers(model):
        inside = layers_in(layer, recursive=False)
        theirs = {id(weight) for part in inside for weight in part.weights}
        for weight in layer.weights:
            # In tf_keras, a vocabulary has no name.
            if id(weight) in theirs or not hasattr(weight, "name"):
                continue
            # `kernel`, also for tf_keras' `scope/depthwise_kernel:0`.
            name = weight.name.split("/")[-1].split(":")[0]
            key = prefix + name.removeprefix("depthwise_")
            if key in named:
                raise ValueError(
                    f"Two weights of {model.name!r} are called {key}. Give "
                    "each layer a unique name."
                )
            named[key] = weight
    return named


def named_layers(model: tf.keras.Model) -> list[tuple[str, Any]]:
    """Returns all layers with weights, and the prefixes of these weights.

    A pair is ("stage4_block3_lambda/query/", layer); the model itself has "".
    """
    paths = {}  # id of a layer: (layer, the paths to it)

    def walk(layer, path):
        _, ways = paths.setdefault(id(layer), (layer, []))
        ways.append(path)
        names = _names_inside(layer)
        for part in layers_in(layer, recursive=False):
            if part.weights:
                walk(part, f"{path}{names.get(id(part), part.name)}/")

    walk(model, "")
    return [
        (ways[0] if len({*ways}) == 1 else f"{layer.name}/", layer)
        for layer, ways in paths.values()
    ]


def _names_inside(layer):
    """Returns the names of attributes by the ids of their values."""
    if isinstance(layer, tf.keras.Model):
        return {}
    names = {}
    for name, value in sorted(
        vars(layer).items(), key=lambda x: x[0][0] != "_"
    ):
        name = name.lstrip("_")
        names[id(value)] = name
        for index, part in enumerate(value if isinstance(value, list) else ()):
            names[id(part)] = f"{name}/{index}"
    return names
