"""The network of a recipe, and compiling it for `model.fit`."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import models
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.training.optimizer import recipe_optimizer
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
    recipe: Recipe,
    image_set: data.ImageSet,
    print_fn: Callable[[str], Any] = print,
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


def _counted(sample_weight):
    """Returns 1 for images, 0 for the padding of a batch."""
    if sample_weight is None:
        return None
    return tf.cast(tf.not_equal(sample_weight, 0), tf.float32)


@tf.keras.utils.register_keras_serializable("lambdanet_tf")
class ImageAccuracy(tf.keras.metrics.CategoricalAccuracy):
    """The fraction of images, whatever their weights in the loss are."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(y_true, y_pred, _counted(sample_weight))


@tf.keras.utils.register_keras_serializable("lambdanet_tf")
class ImageTopKAccuracy(tf.keras.metrics.TopKCategoricalAccuracy):
    """The fraction of images with their class among the likeliest."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(y_true, y_pred, _counted(sample_weight))


def compile_network(
    model: tf.keras.Model, recipe: Recipe, steps_per_epoch: int
) -> tf.keras.Model:
    """Compiles a network with the optimizer and the loss of a recipe.

    Optimizer and loss are Keras' own, for one-hot labels `(batch, classes)`, as
    `InputPipeline` gives them: categorical cross-entropy with label smoothing,
    accuracy, and top-5 accuracy where there are more than 5 classes. Both are
    of images, also with `class_weight`; those of weight 0 do not count. (Keras
    counts ties by the order of the classes; `train` counts them as wrong.) The
    moving averages are a callback, `UseAverages`.

    Args:
        model: returns logits. To train some layers only, set their
            `trainable` before.
        recipe: the optimizer, its schedule, and the label smoothing.
        steps_per_epoch: training steps of an epoch.

    Returns:
        The model.

    Raises:
        ValueError: if Keras cannot do in `fit` what the recipe asks: bound the
            norm of the gradients, or scale losses, of several replicas under
            Keras 3.
    """
    strategy = model.distribute_strategy
    bounds_or_scales = (
        recipe.global_clipnorm or recipe.precision == "mixed_float16"
    )
    if KERAS_3 and bounds_or_scales and strategy.num_replicas_in_sync > 1:
        raise ValueError(
            "`global_clipnorm` and `mixed_float16` are not for `model.fit` "
            "with several replicas under Keras 3, which treats the gradients "
            "of each replica alone. `lambdanet_tf.training.train` can do it."
        )
    metrics: list[tf.keras.metrics.Metric] = [ImageAccuracy(name="accuracy")]
    if model.output_shape[-1] > 5:
        metrics.append(ImageTopKAccuracy(5, name="top5_accuracy"))
    with strategy.scope():
        model.compile(
            optimizer=recipe_optimizer(recipe, steps_per_epoch),
            loss=tf.keras.losses.CategoricalCrossentropy(
                from_logits=True, label_smoothing=recipe.label_smoothing
            ),
            weighted_metrics=metrics,
            jit_compile=False,
        )
    return model
