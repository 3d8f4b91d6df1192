"""The optimisation of a recipe: its schedule and its optimiser."""

from lambdanet_tf.training.optimizer import RecipeOptimizer
from lambdanet_tf.training.schedule import WarmupSchedule


def recipe_schedule(recipe, steps_per_epoch):
    """The schedule of a recipe.

    Args:
        recipe: `Recipe`.
        steps_per_epoch: int. Batches in one epoch.

    Returns:
        A `WarmupSchedule`, over updates of the weights.
    """
    per_epoch = steps_per_epoch / recipe.accumulation
    num_steps = max(round(recipe.epochs * per_epoch), 1)
    return WarmupSchedule(
        peak=peak_rate(recipe),
        num_steps=num_steps,
        warmup_steps=min(round(recipe.warmup_epochs * per_epoch), num_steps),
        shape=recipe.schedule,
        decay=recipe.rate_decay,
        every=max(round(recipe.rate_decay_epochs * per_epoch), 1),
    )


def peak_rate(recipe):
    """The highest learning rate: scaled by the images of one update."""
    if not recipe.rate_batch:
        return recipe.learning_rate
    images = recipe.batch_size * recipe.accumulation
    return recipe.learning_rate * images / recipe.rate_batch


def recipe_optimizer(recipe, steps_per_epoch):
    """The optimiser of a recipe.

    Args:
        recipe: `Recipe`.
        steps_per_epoch: int. Batches in one epoch.

    Returns:
        A `RecipeOptimizer`; `attach` it to the model.
    """
    return RecipeOptimizer(
        recipe_schedule(recipe, steps_per_epoch),
        rule=recipe.optimizer,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        clip_norm=recipe.clip_norm,
        accumulation=recipe.accumulation,
        average_decay=recipe.average_decay,
        scale_losses=recipe.precision == "mixed_float16",
    )
