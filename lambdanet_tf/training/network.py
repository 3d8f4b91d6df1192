"""The network of a recipe, built and compiled for `model.fit`."""

from typing import Any

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import models
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.training.optimizer import recipe_optimizer
from lambdanet_tf.training.options import PrintFn
from lambdanet_tf.training.recipe import Recipe


def network_arguments(
    recipe: Recipe, image_set: data.ImageSet
) -> dict[str, Any]:
    """Returns the arguments of a recipe's network, as values of JSON."""
    size = recipe.image_size
    arguments = {
        "input_shape": [size, size, image_set.channels],
        "classes": len(image_set.classes),
        "classifier_activation": None,
        "dropout_rate": recipe.dropout_rate,
        "norm_momentum": recipe.norm_momentum,
    }
    if recipe.drop_path_rate or "MobileNet" not in recipe.model:
        arguments["drop_path_rate"] = recipe.drop_path_rate
    return {**arguments, **recipe.model_arguments}


def recipe_network(
    recipe: Recipe, image_set: data.ImageSet, print_fn: PrintFn = print
) -> tf.keras.Model:
    """Builds the network of a recipe, in its precision.

    In the scope of a strategy, replicas share batch statistics. `weight_decay`
    d becomes the regularizer d/2 |w|^2 of every kernel, but not of biases,
    batch normalization or position embeddings.

    Args:
        recipe: the recipe, which names the network and its arguments.
        image_set: the image set, for its channels and classes.
        print_fn: function that prints which `initial_weights` are ignored.

    Returns:
        A `tf.keras.Model` from images in [0, 255], `(batch, height, width,
        channels)`, to logits `(batch, classes)`, float32.

    Raises:
        ValueError: if the recipe or the initial weights do not fit the network.
    """
    arguments = network_arguments(recipe, image_set)
    if recipe.weight_decay:
        regularizer = tf.keras.regularizers.L2(recipe.weight_decay / 2)
        arguments["kernel_regularizer"] = regularizer
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    arguments.setdefault("use_sync_bn", replicas > 1)
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(recipe.precision)
    try:
        model = models.build(recipe.model, **arguments)
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)
    if recipe.initial_weights:
        skipped = models.load_weights(
            model, recipe.initial_weights, skip_mismatch=True
        )
        text = f"Initial weights: {recipe.initial_weights}"
        if skipped:
            text += f", except {', '.join(skipped)}, which differ in shape"
        print_fn(f"{text}.")
    return model


def compile_network(
    model: tf.keras.Model, recipe: Recipe, steps_per_epoch: int
) -> tf.keras.Model:
    """Compiles and returns a network, with a recipe's optimizer and loss.

    Optimizer, loss and metrics are Keras' own, for one-hot labels `(batch,
    classes)` from `InputPipeline`: categorical cross-entropy with label
    smoothing, accuracy, and top-5 accuracy if there are more than 5 classes.
    `class_weight` affects the loss only. For moving averages, use the callback
    `UseAverages`.

    Args:
        model: a model that returns logits. To train only some layers, set
            their `trainable` before.
        recipe: the recipe, for the optimizer, schedule and label smoothing.
        steps_per_epoch: number of steps per epoch, for the schedule.

    Raises:
        ValueError: if the recipe bounds gradients or scales losses, and there
            are several replicas under Keras 3.
    """
    strategy = model.distribute_strategy
    treats = recipe.global_clipnorm or recipe.precision == "mixed_float16"
    if KERAS_3 and treats and strategy.num_replicas_in_sync > 1:
        raise ValueError(
            "`global_clipnorm` and `mixed_float16` do not work in `model.fit` "
            "with several replicas under Keras 3, which treats each replica's "
            "gradients separately. Use `lambdanet_tf.training.train` instead."
        )
    with strategy.scope():
        metrics: list[Any] = ["accuracy"]
        if model.output_shape[-1] > 5:
            top_5 = tf.keras.metrics.TopKCategoricalAccuracy
            metrics.append(top_5(5, name="top5_accuracy"))
        model.compile(
            optimizer=recipe_optimizer(recipe, steps_per_epoch),
            loss=tf.keras.losses.CategoricalCrossentropy(
                from_logits=True, label_smoothing=recipe.label_smoothing
            ),
            metrics=metrics,
            jit_compile=False,
        )
    return model
