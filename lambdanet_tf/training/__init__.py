"""Training: recipes, the paper's optimisation, runs that lose nothing."""

from lambdanet_tf.training.callbacks import KeepRun
from lambdanet_tf.training.callbacks import UseAverages
from lambdanet_tf.training.compiling import SmoothedCrossEntropy
from lambdanet_tf.training.compiling import compile_network
from lambdanet_tf.training.compiling import recipe_loss
from lambdanet_tf.training.compiling import recipe_metrics
from lambdanet_tf.training.inputs import Inputs
from lambdanet_tf.training.loop import train
from lambdanet_tf.training.networks import recipe_network
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
from lambdanet_tf.training.trial import dry_run

__all__ = [
    "RECIPES",
    "Inputs",
    "KeepRun",
    "NotFinite",
    "Recipe",
    "RecipeOptimizer",
    "RunFolder",
    "RunOptions",
    "SmoothedCrossEntropy",
    "Stopped",
    "UseAverages",
    "WarmupSchedule",
    "compile_network",
    "dry_run",
    "read_recipe",
    "recipe_loss",
    "recipe_metrics",
    "recipe_network",
    "recipe_optimizer",
    "recipe_schedule",
    "resolve",
    "train",
]
