"""Training: recipes, the paper's optimisation, runs that lose nothing."""

from lambdanet_tf.training.loop import RunOptions
from lambdanet_tf.training.loop import recipe_optimizer
from lambdanet_tf.training.loop import train
from lambdanet_tf.training.optimizer import RecipeOptimizer
from lambdanet_tf.training.recipes import RECIPES
from lambdanet_tf.training.recipes import Recipe
from lambdanet_tf.training.recipes import resolve
from lambdanet_tf.training.runs import RunFolder
from lambdanet_tf.training.schedule import WarmupSchedule

__all__ = [
    "RECIPES",
    "Recipe",
    "RecipeOptimizer",
    "RunFolder",
    "RunOptions",
    "WarmupSchedule",
    "recipe_optimizer",
    "resolve",
    "train",
]
