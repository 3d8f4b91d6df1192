"""The optimizer of a recipe: Keras' own, its schedule, and moving averages.

Keras' own optimizers do not average the statistics of batch normalization, have
no warm-up of averages, and start differently in Keras 2 and Keras 3.
"""

import contextlib
import math
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lambdanet_tf.arguments import fraction
from lambdanet_tf.arguments import one_of
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.environment import tf_variable
from lambdanet_tf.training.recipe import Recipe


@tf.keras.utils.register_keras_serializable(package="lambdanet_tf")
class WarmupSchedule(tf.keras.optimizers.schedules.LearningRateSchedule):
    """Warms the learning rate up from 0, then lets it decay.

    For step t, w warm-up steps, n steps in all and the peak p:

        t < w:         p t / w
        cosine:        p (1 + cos(pi (t - w) / (n - w))) / 2
        exponential:   p decay^floor((t - w) / every)
        constant:      p

    After step n, the rate stays constant.

    Args:
        peak: the highest rate.
        num_steps: steps of the whole training, with the warm-up.
        warmup_steps: steps of the warm-up.
        shape: `"cosine"`, `"exponential"` or `"constant"`.
        decay: for `"exponential"`, the factor of each decay.
        every: for `"exponential"`, the steps between two decays.

    Examples:
        >>> schedule = WarmupSchedule(0.1, num_steps=100, warmup_steps=10)
        >>> [round(float(schedule(step)), 3) for step in (0, 5, 10, 100)]
        [0.0, 0.05, 0.1, 0.0]
    """

    def __init__(
        self,
        peak: float,
        num_steps: int,
        warmup_steps: int = 0,
        shape: str = "cosine",
        decay: float = 0.99,
        every: int = 1,
    ):
        super().__init__()
        one_of("shape", shape, ("cosine", "exponential", "constant"))
        self.peak, self.shape, self.decay = peak, shape, decay
        self.num_steps, self.warmup_steps = num_steps, warmup_steps
        self.every = every

    def __call__(self, step: Any) -> tf.Tensor:
        step = tf.minimum(tf.cast(step, tf.float32), float(self.num_steps))
        after = tf.maximum(step - self.warmup_steps, 0.0)
        if self.shape == "cosine":
            length = max(self.num_steps - self.warmup_steps, 1)
            factor = 0.5 * (1.0 + tf.cos(math.pi * after / length))
        elif self.shape == "exponential":
            factor = tf.pow(self.decay, tf.floor(after / self.every))
        else:
            factor = tf.ones_like(after)
        if self.warmup_steps:
            rising = step / self.warmup_steps
            factor = tf.where(step < self.warmup_steps, rising, factor)
        return self.peak * factor

    def get_config(self) -> dict[str, Any]:
        names = "peak", "num_steps", "warmup_steps", "shape", "decay", "every"
        return {name: getattr(self, name) for name in names}


def recipe_schedule(recipe: Recipe, steps_per_epoch: int) -> WarmupSchedule:
    """Returns the schedule of a recipe."""
    peak = recipe.learning_rate
    if recipe.base_batch_size:
        peak = peak * recipe.batch_size / recipe.base_batch_size
    num_steps = recipe.epochs * steps_per_epoch
    warmup_steps = round(recipe.warmup_epochs * steps_per_epoch)
    return WarmupSchedule(
        peak=peak,
        num_steps=num_steps,
        warmup_steps=min(warmup_steps, num_steps),
        shape=recipe.schedule,
        decay=recipe.decay_rate,
        every=max(round(recipe.decay_epochs * steps_per_epoch), 1),
    )


def recipe_optimizer(
    recipe: Recipe, steps_per_epoch: int
) -> tf.keras.optimizers.Optimizer:
    """Creates the optimizer of a recipe; call it in the strategy's scope.

    For rate r, momentum u and gradient g, the rules and constants are:

        sgd        m <- u m - r g;  w <- w + m
        rmsprop    s <- 0.9 s + 0.1 g^2;  m <- u m + r g / sqrt(s + 0.001);
                   w <- w - m
        adam       beta 1 u, beta 2 0.999, epsilon 1e-8

    All moments start at 0. The optimizer has no weight decay, because the
    kernels have a regularizer. For `mixed_float16`, Keras' `LossScaleOptimizer`
    wraps the optimizer.
    """
    keras, momentum = tf.keras.optimizers, recipe.momentum
    schedule = recipe_schedule(recipe, steps_per_epoch)
    options: dict[str, Any] = {"learning_rate": schedule}
    if recipe.global_clipnorm:
        # Keras 3 clips the gradients of each replica before it sums them.
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        copies = replicas if KERAS_3 else 1
        options["global_clipnorm"] = recipe.global_clipnorm / copies
    if not KERAS_3:
        options["jit_compile"] = False
    if recipe.optimizer == "sgd":
        optimizer = keras.SGD(momentum=momentum, **options)
    elif recipe.optimizer == "rmsprop":
        optimizer = keras.RMSprop(
            momentum=momentum, rho=0.9, epsilon=1e-3, **options
        )
    else:
        optimizer = keras.Adam(beta_1=momentum, epsilon=1e-8, **options)
    if recipe.precision != "mixed_float16":
        return optimizer
    return tf.keras.mixed_precision.LossScaleOptimizer(optimizer)


def scale_loss(
    optimizer: tf.keras.optimizers.Optimizer, loss: tf.Tensor
) -> tf.Tensor:
    """Returns the loss to differentiate."""
    if KERAS_3:
        return optimizer.scale_loss(loss)
    scales = _scales_losses(optimizer)
    return optimizer.get_scaled_loss(loss) if scales else loss


def apply_gradients(
    optimizer: tf.keras.optimizers.Optimizer,
    gradients: Sequence[tf.Tensor],
    variables: Sequence[tf.Variable],
) -> None:
    """Updates variables by the sum of the replicas' gradients.

    Keras 3 clips gradients, and checks for overflow, in each replica before it
    sums. So we first replace all gradients by their mean, which has the same
    sum, and `recipe_optimizer` divides the bound.
    """
    context = tf.distribute.get_replica_context()
    if KERAS_3 and context.num_replicas_in_sync > 1:
        if optimizer.global_clipnorm or _scales_losses(optimizer):
            gradients = context.all_reduce("mean", list(gradients))
    elif not KERAS_3 and _scales_losses(optimizer):
        gradients = optimizer.get_unscaled_gradients(gradients)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


def _scales_losses(optimizer):
    return isinstance(optimizer, tf.keras.mixed_precision.LossScaleOptimizer)


class Averages:
    """Exponential moving averages of all weights of a model.

    Update t, from 1, moves the average a of each weight w:

        a <- d a + (1 - d) w,    d = min(decay, (1 + t) / (10 + t))

    The statistics of batch normalization are averaged like the weights; if each
    replica has its own, those of the first count. Averages are float32 or
    wider, because half precisions would lose small steps. Create the averages
    in the scope of the model's strategy.

    Args:
        model: a built model.
        decay: the paper's recipes use 0.9999. With 0 there are no averages, and
            updating and swapping do nothing.

    Attributes:
        weights: list of `tf.Variable`, the averaged weights.
        variables: list of `tf.Variable`, their averages.
        is_swapped: whether the averages currently replace the model's weights.

    Examples:
        >>> model = tf.keras.Sequential(
        ...     [tf.keras.Input((2,)), tf.keras.layers.Dense(1)]
        ... )
        >>> averages = Averages(model, decay=0.9)
        >>> averages.update(1)
        >>> with averages.applied():
        ...     averages.is_swapped
        True
    """

    def __init__(self, model: tf.keras.Model, decay: float = 0.9999):
        self._decay = fraction("decay", decay, below_one=True)
        variables = [tf_variable(weight) for weight in model.weights]
        self.weights = [v for v in variables if v.dtype.is_floating and decay]
        self.variables = [
            tf.Variable(
                tf.cast(weight, tf.float32)
                if weight.dtype.size < 4
                else weight,
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            for weight in self.weights
        ]
        self.is_swapped = False

    def update(self, updates: tf.Tensor | int) -> None:
        """Updates the averages, in each replica, after `updates` steps."""
        updates = tf.cast(updates, tf.float32)
        decay = tf.minimum(self._decay, (1.0 + updates) / (10.0 + updates))
        context = tf.distribute.get_replica_context()
        context.merge_call(self._move, args=(1.0 - decay,))

    def _move(self, strategy, rate):
        """Updates the copies of all replicas; runs once for all of them."""

        def move(average, value, rate):
            rate = tf.cast(rate, average.dtype)
            value = tf.cast(value, average.dtype)
            average.assign_sub(rate * (average - value))

        for pair in zip(self.variables, self.weights, strict=True):
            strategy.extended.update(
                pair[0], move, args=(pair[1], rate), group=False
            )

    def swap(self) -> None:
        """Swaps the weights and their averages, outside of replicas."""
        values = self._trained if self.is_swapped else self.variables
        self.is_swapped = not self.is_swapped
        kept = self.weights if self.is_swapped else ()
        self._trained = [tf.identity(weight) for weight in kept]
        for weight, value in zip(self.weights, values, strict=True):
            weight.assign(tf.cast(value, weight.dtype))

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Replaces the weights by the averages within a context."""
        self.swap()
        try:
            yield
        finally:
            self.swap()


class UseAverages(tf.keras.callbacks.Callback):
    """Averages weights and statistics in `model.fit`, and evaluates them.

    It works with any Keras optimizer, and updates the averages after each
    batch. The averages replace the weights during validation, for later
    callbacks in the list at the end of each epoch, and after the training:

        model.fit(..., validation_data=..., callbacks=[
            tf.keras.callbacks.BackupAndRestore("backup"),  # trained weights
            training.UseAverages(0.999),
            tf.keras.callbacks.ModelCheckpoint("best.keras", ...),  # averages
        ])

    Each call of `fit` starts its averages from the current weights.

    Args:
        decay: as in `Averages`.
    """

    def __init__(self, decay: float = 0.9999):
        super().__init__()
        self._decay = decay

    def on_train_begin(self, logs: Any = None) -> None:
        self._averages, self._updates = None, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._put(averages=False)
        if self._averages is None and self.model.built:
            self._begin()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._averages is None:  # The first batch has built the model.
            self._begin()
        self._updates += 1
        self._update(tf.constant(self._updates))

    def on_test_begin(self, logs: Any = None) -> None:
        self._put(averages=True)

    def on_test_end(self, logs: Any = None) -> None:
        self._put(averages=False)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._put(averages=True)

    def on_train_end(self, logs: Any = None) -> None:
        self._put(averages=True)
        self._averages = None

    def _begin(self):
        strategy = self.model.distribute_strategy
        with strategy.scope():
            averages = self._averages = Averages(self.model, self._decay)

        @tf.function
        def update(updates):
            strategy.run(averages.update, args=(updates,))

        self._update = update

    def _put(self, averages):
        """Sets the model's weights to the averages or the trained weights."""
        if self._averages and self._averages.is_swapped != averages:
            self._averages.swap()
