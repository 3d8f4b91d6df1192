"""The optimizer of a recipe: Keras' own, with the recipe's schedule."""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lambdanet_tf.arguments import one_of
from lambdanet_tf.environment import KERAS_3
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
