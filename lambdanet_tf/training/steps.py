"""The compiled steps: training, evaluation, prediction."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lambdanet_tf.environment import tf_variable
from lambdanet_tf.layers.randomness import random_streams
from lambdanet_tf.training.optimizer import apply_gradients
from lambdanet_tf.training.optimizer import scale_loss
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.state import TrainState


def training_step(
    state: TrainState, recipe: Recipe, jit_compile: bool = False
) -> Callable[..., tf.Tensor]:
    """Returns a function that takes some training steps.

    Call it in the scope of the model's strategy.

    Args:
        state: its model, optimizer and averages are updated.
        recipe: batch size, label smoothing, seed.
        jit_compile: whether XLA compiles the step.

    Returns:
        A `tf.function`: iterator of (images, one-hot labels, bad), int64 number
        of the first step, int32 number of steps -> float32 `(4,)`: over all
        images the sums of loss, top-1 accuracy and images, and the number of
        images that were left out.
    """
    strategy = tf.distribute.get_strategy()
    step = update_step(state, recipe)
    if jit_compile:
        step = tf.function(step, jit_compile=True)

    @tf.function
    def take_steps(iterator, first, number):
        total = tf.zeros([4])
        for index in tf.range(number):
            images, labels, bad = next(iterator)
            taken = first + tf.cast(index, tf.int64)
            sums = strategy.run(step, args=(images, labels, taken))
            sums = strategy.reduce("sum", sums, axis=None)
            bad = strategy.reduce("sum", bad, axis=None)
            total += tf.concat([sums, [bad]], axis=0)
        return total

    return take_steps


def update_step(state: TrainState, recipe: Recipe) -> Callable[..., tf.Tensor]:
    """Returns what one replica computes in a training step.

    The loss is the sum over the replica's images, divided by the batch of all
    replicas, and the replica's share of the regularization losses: the sum of
    the replicas' gradients is the gradient of one device, with each
    regularization loss once. What random layers draw is a function of the
    seed, the step and the replica.

    Args:
        state: as for `training_step`.
        recipe: see there.

    Returns:
        A function for `strategy.run`: images, one-hot labels, int64 number of
        the step -> float32 `(3,)`: over the replica's images the sums of loss
        (without regularization), top-1 accuracy and images.
    """
    model, optimizer = state.model, state.optimizer
    variables = model.trainable_variables
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    accumulated = recipe.gradient_accumulation_steps

    def step(images, labels, number):
        seed = replica_seed(recipe.seed, number)
        with tf.GradientTape() as tape, random_streams(seed):
            logits = model(images, training=True)
            losses = cross_entropy(labels, logits, recipe.label_smoothing)
            loss = tf.reduce_sum(losses) / recipe.batch_size
            penalties = [tf.cast(x, tf.float32) for x in model.losses]
            penalty = tf.add_n(penalties) if penalties else 0.0
            scaled = scale_loss(optimizer, loss + penalty / replicas)
        gradients = tape.gradient(
            scaled,
            [tf_variable(variable) for variable in variables],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        apply_gradients(optimizer, gradients, variables)
        taken = number + 1
        state.averages.update(
            taken // accumulated, tf.equal(taken % accumulated, 0)
        )
        right = tf.reduce_sum(top_k_accuracy(labels, logits, 1))
        count = tf.cast(tf.shape(logits)[0], tf.float32)
        return tf.stack([loss * recipe.batch_size, right, count])

    return step


def replica_seed(seed: int, step: tf.Tensor) -> tf.Tensor:
    """Returns the seed of what is random in a step of this replica."""
    context = tf.distribute.get_replica_context()
    number = step * context.num_replicas_in_sync + tf.cast(
        context.replica_id_in_sync_group, tf.int64
    )
    fold = tf.random.experimental.stateless_fold_in
    return fold(tf.constant([seed, 0], tf.int64), number)


def evaluation_step(model: tf.keras.Model) -> Callable[..., tf.Tensor]:
    """Returns a function that evaluates a batch.

    Call it in the scope of the model's strategy.

    Args:
        model: returns logits.

    Returns:
        A `tf.function`: (images, one-hot labels, weights, bad) -> float32
        `(5,)`: the weighted sums over all images of loss, top-1 and top-5
        accuracy, the sum of the weights, and that of the images left out.
    """
    strategy = tf.distribute.get_strategy()

    def replica_step(images, labels, weights, bad):
        logits = model(images, training=False)
        columns = [
            cross_entropy(labels, logits),
            top_k_accuracy(labels, logits, 1),
            top_k_accuracy(labels, logits, 5),
            tf.ones_like(weights),
        ]
        return tf.stack([*(tf.reduce_sum(c * weights) for c in columns), bad])

    @tf.function
    def evaluate(batch):
        sums = strategy.run(replica_step, args=batch)
        return strategy.reduce("sum", sums, axis=None)

    return evaluate


def prediction_step(model: tf.keras.Model) -> Callable[..., Any]:
    """Returns a function that predicts the classes of a batch.

    Call it in the scope of the model's strategy.

    Args:
        model: returns logits.

    Returns:
        A `tf.function`: (images, labels, weights, bad) -> probabilities
        `(batch, classes)`, for each replica.
    """
    strategy = tf.distribute.get_strategy()

    def replica_step(images, labels, weights, bad):
        logits = model(images, training=False)
        return tf.nn.softmax(tf.cast(logits, tf.float32))

    @tf.function
    def predict(batch):
        return strategy.run(replica_step, args=batch)

    return predict


def cross_entropy(
    labels: tf.Tensor, logits: tf.Tensor, label_smoothing: float = 0.0
) -> tf.Tensor:
    """Returns Keras' categorical cross-entropy of each example, in float32.

    Args:
        labels: one-hot, or probabilities: float `(batch, classes)`.
        logits: `(batch, classes)`.
        label_smoothing: probability spread over all classes.
    """
    return tf.keras.losses.categorical_crossentropy(
        tf.cast(labels, tf.float32),
        tf.cast(logits, tf.float32),
        from_logits=True,
        label_smoothing=label_smoothing,
    )


def top_k_accuracy(labels: tf.Tensor, logits: tf.Tensor, k: int) -> tf.Tensor:
    """Returns whether the label is among the k largest logits, as 0 or 1.

    Ties and NaN count as wrong, so constant logits score 0. (Keras' metrics
    and `tf.math.in_top_k` count some of them as right.)

    Args:
        labels: one-hot, or probabilities, whose largest counts:
            `(batch, classes)`.
        logits: `(batch, classes)`.
        k: int.

    Returns:
        A float32 tensor `(batch,)`.
    """
    labels = tf.argmax(labels, axis=-1, output_type=tf.int32)
    logits = tf.cast(logits, tf.float32)
    own = tf.gather(logits, labels, axis=-1, batch_dims=1)
    below = tf.cast(logits < own[:, tf.newaxis], tf.int32)
    rank = logits.shape[-1] - tf.reduce_sum(below, axis=-1)
    return tf.cast(rank <= k, tf.float32)
