"""Compiled training steps and evaluation on all replicas."""

import math
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.environment import tf_variable
from lambdanet_tf.layers.randomness import random_streams
from lambdanet_tf.training.batches import InputPipeline
from lambdanet_tf.training.optimizer import apply_gradients
from lambdanet_tf.training.optimizer import scale_loss
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.state import TrainState

_MAX_KEPT = 64  # pictures of test images, and of wrong ones


def training_step(
    state: TrainState, recipe: Recipe, jit_compile: bool = False
) -> Callable[..., tf.Tensor]:
    """Returns a `tf.function` that runs some training steps.

    Its arguments are an iterator of (images, one-hot labels), the number of the
    first step, int64, and the number of steps, int32. It returns the sums of
    `update_step`.
    """
    strategy = tf.distribute.get_strategy()
    step = update_step(state, recipe)
    if jit_compile:
        step = tf.function(step, jit_compile=True)

    @tf.function
    def take_steps(iterator, first, number):
        total = tf.zeros([3])
        for index in tf.range(number):
            images, labels = next(iterator)
            taken = first + tf.cast(index, tf.int64)
            sums = strategy.run(step, args=(images, labels, taken))
            total += strategy.reduce("sum", sums, axis=None)
        return total

    return take_steps


def update_step(state: TrainState, recipe: Recipe) -> Callable[..., tf.Tensor]:
    """Returns the function that one replica runs in a training step.

    The sum of the replicas' gradients equals the gradient on one device, and
    includes each regularization loss once. Random layers depend on the seed,
    the step and the replica. The function returns float32 `(3,)`: the sums of
    loss (without regularization), top-1 accuracy and 1 over the images.
    """
    model, optimizer = state.model, state.optimizer
    variables = model.trainable_variables
    replicas = tf.distribute.get_strategy().num_replicas_in_sync

    def step(images, labels, number):
        seed = _replica_seed(recipe.seed, number)
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
        state.averages.update(number + 1)
        right = tf.reduce_sum(top_k_accuracy(labels, logits, 1))
        count = tf.cast(tf.shape(logits)[0], tf.float32)
        return tf.stack([loss * recipe.batch_size, right, count])

    return step


def _replica_seed(seed, step):
    """Returns the seed of a step in this replica."""
    context = tf.distribute.get_replica_context()
    number = step * context.num_replicas_in_sync + tf.cast(
        context.replica_id_in_sync_group, tf.int64
    )
    fold = tf.random.experimental.stateless_fold_in
    return fold(tf.constant([seed, 0], tf.int64), number)


class Predictions(NamedTuple):
    """The predictions of a model for the images of all hosts.

    Attributes:
        labels: int64 `(images,)`.
        predicted: the most likely classes, int64 `(images,)`.
        probabilities: their probabilities, float32 `(images,)`.
        positions: positions of the images in their source, int64 `(images,)`.
        pictures: dictionary from row to float32 `(height, width, channels)`:
            images spread over the source, and wrong ones, as far as this host
            has read them. (On the chief these are the first of a batch.)
    """

    labels: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray
    positions: np.ndarray
    pictures: dict[int, np.ndarray]


class Evaluation:
    """Evaluates a model that returns logits, in the scope of its strategy.

    After each batch it calls `check`, which may raise an error.
    """

    def __init__(
        self,
        model: tf.keras.Model,
        pipeline: InputPipeline,
        check: Callable[[], Any] = lambda: None,
    ):
        self._pipeline, self._check = pipeline, check
        self._evaluate = evaluation_step(model)

    def metrics(
        self,
        source: data.Source,
        prefix: str = "",
        on_batch: Callable[..., Any] = lambda *arrays: None,
    ) -> dict[str, Any]:
        """Returns loss, accuracies and number of images of a source.

        Images that cannot be read do not count. `on_batch` is called with
        images, labels, weights, positions and probabilities of each batch.
        """
        sums = np.zeros(4)
        for batch in self._pipeline.evaluation(source):
            found, probabilities = self._evaluate(batch)
            sums += found.numpy()
            on_batch(*batch, probabilities)
            self._check()
        means = (sums / sums[3]).tolist()
        metrics = {f"{prefix}loss": means[0], f"{prefix}accuracy": means[1]}
        if len(self._pipeline.images.classes) > 5:
            metrics[f"{prefix}top5_accuracy"] = means[2]
        return {**metrics, f"{prefix or 'test_'}images": int(sums[3])}

    def test(self, source: data.Source) -> tuple[dict[str, Any], Predictions]:
        """Returns metrics and predictions for a source of the image set."""
        strategy = self._pipeline.strategy
        stride = math.ceil(source.num_images / _MAX_KEPT)
        rows, spread, mistakes = [], {}, {}

        @tf.function
        def gather(*columns):
            return [strategy.gather(column, 0) for column in columns]

        def keep(images, *columns):
            parts = strategy.experimental_local_results(images)
            images = tf.concat(parts, 0).numpy().astype(np.float32)
            rows_of_all = [column.numpy() for column in gather(*columns)]
            labels, weights, positions, outputs = rows_of_all
            found = labels.argmax(-1), outputs.argmax(-1), outputs.max(-1)
            for i in np.flatnonzero(weights):
                number, wrong = len(rows), found[0][i] != found[1][i]
                rows.append([*(column[i] for column in found), positions[i]])
                is_here = i < len(images)  # Else another host has read it.
                if is_here and wrong and len(mistakes) < _MAX_KEPT:
                    mistakes[number] = images[i]
                elif is_here and number % stride == 0:
                    spread[number] = images[i]

        metrics = self.metrics(source, on_batch=keep)
        columns = map(np.array, zip(*rows, strict=True))
        pictures = dict(sorted((spread | mistakes).items()))
        return metrics, Predictions(*columns, pictures=pictures)


def evaluation_step(model: tf.keras.Model) -> Callable[..., Any]:
    """Returns a `tf.function` of a batch of `InputPipeline.evaluation`.

    It returns each replica's probabilities, after float32 `(4,)`: the weighted
    sums of loss, top-1 and top-5 accuracy, and 1 over all images.
    """
    strategy = tf.distribute.get_strategy()

    def replica_step(images, labels, weights):
        logits = model(images, training=False)
        columns = [
            cross_entropy(labels, logits),
            top_k_accuracy(labels, logits, 1),
            top_k_accuracy(labels, logits, 5),
            tf.ones_like(weights),
        ]
        sums = [tf.reduce_sum(column * weights) for column in columns]
        return tf.stack(sums), tf.nn.softmax(tf.cast(logits, tf.float32))

    @tf.function
    def evaluate(batch):
        sums, probabilities = strategy.run(replica_step, args=batch[:3])
        return strategy.reduce("sum", sums, axis=None), probabilities

    return evaluate


def cross_entropy(
    labels: tf.Tensor, logits: tf.Tensor, label_smoothing: float = 0.0
) -> tf.Tensor:
    """Returns Keras' categorical cross-entropy of each example, in float32."""
    return tf.keras.losses.categorical_crossentropy(
        tf.cast(labels, tf.float32),
        tf.cast(logits, tf.float32),
        from_logits=True,
        label_smoothing=label_smoothing,
    )


def top_k_accuracy(labels: tf.Tensor, logits: tf.Tensor, k: int) -> tf.Tensor:
    """Returns 1 if the label is among the k largest logits, else 0.

    Ties and NaN count as wrong, so constant logits score 0. (Keras' metrics
    and `tf.math.in_top_k` count some of them as correct.)
    """
    labels = tf.argmax(labels, axis=-1, output_type=tf.int32)
    logits = tf.cast(logits, tf.float32)
    own = tf.gather(logits, labels, axis=-1, batch_dims=1)
    not_below = tf.logical_not(logits < own[:, tf.newaxis])
    rank = tf.reduce_sum(tf.cast(not_below, tf.int32), axis=-1)
    return tf.cast(rank <= k, tf.float32)
