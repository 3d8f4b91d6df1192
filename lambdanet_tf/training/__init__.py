"""Training: recipes, the paper's optimisation, runs that lose nothing."""

from lambdanet_tf.training.loop import train
from lambdanet_tf.training.optimisation import recipe_optimizer
from lambdanet_tf.training.optimisation import recipe_schedule
from lambdanet_tf.training.optimizer import RecipeOptimizer
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.overrides import read_recipe
from lambdanet_tf.training.overrides import resolve
from lambdanet_tf.training.recipes import RECIPES
from lambdanet_tf.training.recipes import Recipe
from lambdanet_tf.training.runs import RunFolder
from lambdanet_tf.training.schedule import WarmupSchedule
from lambdanet_tf.training.stopping import NotFinite
from lambdanet_tf.training.stopping import Stopped

__all__ = [
    "RECIPES",
    "NotFinite",
    "Recipe",
    "RecipeOptimizer",
    "RunFolder",
    "RunOptions",
    "Stopped",
    "WarmupSchedule",
    "read_recipe",
    "recipe_optimizer",
    "recipe_schedule",
    "resolve",
    "train",
]
