"""The network of a recipe, and compiling it for `model.fit`."""

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
    """Returns the arguments of a recipe's network, as JSON can hold them."""
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

    In the scope of a strategy the replicas share the statistics of a batch.
    `weight_decay` d becomes the regularizer d/2 |w|^2 of every kernel, and of
    nothing else: not of biases, batch normalization or position embeddings.

    Args:
        recipe: which network, with which arguments.
        image_set: for its channels and classes.
        print_fn: is given the names of `initial_weights` that were left out.

    Returns:
        A `tf.keras.Model`: images in [0, 255] `(batch, height, width,
        channels)` -> logits `(batch, classes)`, float32.

    Raises:
        ValueError: if the recipe does not fit its network, or the initial
            weights do not.
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
            text += f", without {', '.join(skipped)}, of another shape"
        print_fn(f"{text}.")
    return model


def compile_network(
    model: tf.keras.Model, recipe: Recipe, steps_per_epoch: int
) -> tf.keras.Model:
    """Compiles and returns a network, with optimizer and loss of a recipe.

    Optimizer, loss and metrics are Keras' own, for one-hot labels `(batch,
    classes)`, as `InputPipeline` gives them: categorical cross-entropy with
    label smoothing, accuracy, and top-5 accuracy if there are more than 5
    classes. `class_weight` weighs the loss alone. The moving averages are a
    callback, `UseAverages`.

    Args:
        model: returns logits. To train some layers only, set their
            `trainable` before.
        recipe: the optimizer, its schedule, and the label smoothing.
        steps_per_epoch: of the schedule.

    Raises:
        ValueError: if `fit` cannot bound gradients or scale losses so: with
            several replicas under Keras 3.
    """
    strategy = model.distribute_strategy
    treats = recipe.global_clipnorm or recipe.precision == "mixed_float16"
    if KERAS_3 and treats and strategy.num_replicas_in_sync > 1:
        raise ValueError(
            "`global_clipnorm` and `mixed_float16` are not for `model.fit` "
            "with several replicas under Keras 3, which treats the gradients "
            "of each replica alone. `lambdanet_tf.training.train` can do it."
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
