"""The loss and the metrics of a recipe as Keras objects, for `compile`."""

import tensorflow as tf

from lambdanet_tf.layers.randomness import random_streams
from lambdanet_tf.training.losses import correct
from lambdanet_tf.training.losses import cross_entropy
from lambdanet_tf.training.optimisation import recipe_optimizer
from lambdanet_tf.training.optimizer import RecipeOptimizer
from lambdanet_tf.training.steps import replica_seed


@tf.keras.utils.register_keras_serializable(package="lambdanet_tf")
class SmoothedCrossEntropy(tf.keras.losses.Loss):
    """Softmax cross-entropy of logits with label smoothing, in float32.

    Unlike Keras' own losses it smooths class indices, not only one-hot rows.

    Args:
        smoothing: float. Probability that is spread over all classes.

    Call arguments:
        y_true: class indices `(batch,)` or `(batch, 1)`, or probabilities
            `(batch, classes)`.
        y_pred: logits `(batch, classes)`.
    """

    def __init__(self, smoothing=0.0, name="cross_entropy", **kwargs):
        super().__init__(name=name, **kwargs)
        self.smoothing = smoothing

    def call(self, y_true, y_pred):
        labels = _as_labels(y_true, y_pred)
        return cross_entropy(labels, y_pred, self.smoothing)

    def get_config(self):
        return {**super().get_config(), "smoothing": self.smoothing}


def recipe_loss(recipe):
    """The loss of a recipe, for `model.compile`."""
    return SmoothedCrossEntropy(recipe.label_smoothing)


def recipe_metrics():
    """Top-1 and top-5 accuracy of logits, for `model.compile`."""
    return [
        tf.keras.metrics.MeanMetricWrapper(_accuracy, name="accuracy"),
        tf.keras.metrics.MeanMetricWrapper(
            _top5_accuracy, name="top5_accuracy"
        ),
    ]


def compile_network(model, recipe, steps_per_epoch):
    """Compiles a model with the optimiser, loss and metrics of a recipe.

    What random layers draw in training becomes a function of the recipe's
    seed and of the step, as in `train`, so that `fit` can be repeated and
    continued. To train some layers only, set their `trainable` before.

    Args:
        model: built `tf.keras.Model` that returns logits.
        recipe: `Recipe`.
        steps_per_epoch: int. Batches in one epoch.

    Returns:
        The model.

    Raises:
        ValueError: if the precision is `mixed_float16`, where Keras would
            scale the loss a second time.
    """
    if recipe.precision == "mixed_float16":
        raise ValueError(
            "`precision` must be float32 or mixed_bfloat16 for `model.fit`. "
            "Received: mixed_float16. `train` can do it."
        )
    optimizer = recipe_optimizer(recipe, steps_per_epoch).attach(model)
    optimizer.build(model.trainable_variables)
    model.compile(
        optimizer=optimizer,
        loss=recipe_loss(recipe),
        metrics=recipe_metrics(),
        jit_compile=False,
    )
    _draw_by_step(model, recipe.seed)
    return model


def compiled_optimizer(model):
    """The optimiser of a compiled model, which must be a `RecipeOptimizer`.

    Args:
        model: `tf.keras.Model`.

    Returns:
        The `RecipeOptimizer`.

    Raises:
        ValueError: if the model is not compiled or has another optimiser.
    """
    optimizer = getattr(model, "optimizer", None)
    if not isinstance(optimizer, RecipeOptimizer):
        raise ValueError(
            "The model must be compiled with a `RecipeOptimizer`, as by "
            "`compile_network(model, recipe, steps_per_epoch)`. Received: "
            f"{type(optimizer).__name__}."
        )
    return optimizer


def _draw_by_step(model, seed):
    """Lets `model.fit` draw as `training_step` does."""
    step = type(model).train_step

    def train_step(data):
        streams = replica_seed(seed, model.optimizer.iterations)
        with random_streams(streams):
            return step(model, data)

    model.train_step = train_step


def _accuracy(y_true, y_pred):
    return correct(_as_labels(y_true, y_pred), y_pred)


def _top5_accuracy(y_true, y_pred):
    return correct(_as_labels(y_true, y_pred), y_pred, top=5)


def _as_labels(y_true, y_pred):
    """Labels as they were before Keras made floats or a column of them."""
    y_true = tf.convert_to_tensor(y_true)
    if y_true.shape.rank == 2 and y_true.shape[-1] == y_pred.shape[-1]:
        return y_true
    return tf.cast(tf.reshape(y_true, [-1]), tf.int32)
