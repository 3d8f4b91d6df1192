"""The network of a recipe."""

import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf.training.overrides import nearest


def network_arguments(recipe, image_set):
    """The keyword arguments that build a recipe's network, as JSON holds them.

    Args:
        recipe: `Recipe`.
        image_set: `ImageSet`.

    Returns:
        A dictionary.
    """
    size = recipe.image_size
    arguments = {
        "input_shape": [size, size, image_set.channels],
        "classes": len(image_set.classes),
        "classifier_activation": None,
        "dropout_rate": recipe.dropout,
        "drop_path_rate": recipe.stochastic_depth,
        "norm_momentum": recipe.norm_momentum,
    }
    if "MobileNet" in recipe.model:
        del arguments["drop_path_rate"]
        if recipe.stochastic_depth:
            raise ValueError(
                "`stochastic_depth` must be 0 for a MobileNet. Received: "
                f"{recipe.stochastic_depth}."
            )
    return {**arguments, **recipe.model_arguments}


def build_network(builder, arguments, use_sync_bn=False):
    """Builds a network of `lambdanet_tf.models`.

    Args:
        builder: str. The name of a function of `lambdanet_tf.models`.
        arguments: dict. Its keyword arguments.
        use_sync_bn: bool. Whether replicas share the statistics of a batch.

    Returns:
        A `tf.keras.Model`.

    Raises:
        ValueError: if there is no such builder, or it refuses an argument.
    """
    names = [name for name in models.__all__ if name[0].isupper()]
    if builder not in names:
        raise ValueError(
            f"Unknown model {builder!r}. Allowed: {', '.join(names)}."
            f"{nearest(builder, names)}"
        )
    arguments = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in arguments.items()
    }
    try:
        return getattr(models, builder)(**arguments, use_sync_bn=use_sync_bn)
    except TypeError as error:
        raise ValueError(f"`model_arguments` does not fit: {error}.") from error


def recipe_network(recipe, image_set):
    """The network of a recipe, with the weights that its seed gives.

    Sets the seeds and the precision of the whole process. In the scope of a
    strategy the replicas share the statistics of a batch.

    Args:
        recipe: `Recipe`.
        image_set: `ImageSet`.

    Returns:
        A `tf.keras.Model` from images in [0, 255] to logits.

    Raises:
        ValueError: if the recipe does not fit its network.
    """
    tf.keras.utils.set_random_seed(recipe.seed)
    set_precision(recipe.precision)
    arguments = network_arguments(recipe, image_set)
    many = tf.distribute.get_strategy().num_replicas_in_sync > 1
    return build_network(recipe.model, arguments, use_sync_bn=many)


def check_network(model, builder, arguments):
    """Raises unless a model is what a builder makes of some arguments.

    export.py builds it in that way, to serve its weights.

    Args:
        model: built `tf.keras.Model`.
        builder: str. As for `build_network`.
        arguments: dict. As for `build_network`.

    Raises:
        ValueError: if the shapes of their weights differ.
    """
    expected = build_network(builder, arguments)
    shapes = [
        [tuple(weight.shape) for weight in each.weights]
        for each in (model, expected)
    ]
    if sorted(shapes[0]) != sorted(shapes[1]):
        raise ValueError(
            f"The model must be the recipe's: {builder} with {arguments}, "
            f"{expected.count_params():,} parameters, as `recipe_network` "
            f"builds it. Received: {model.count_params():,} parameters."
        )


def set_precision(precision):
    """Chooses the types that layers compute in, for the whole process."""
    tf.keras.mixed_precision.set_global_policy(precision)
