"""What a run needs before its first step: devices, images, network."""

import dataclasses

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.environment import require
from lambdanet_tf.training.devices import make_strategy
from lambdanet_tf.training.devices import number_of_workers
from lambdanet_tf.training.inputs import Inputs
from lambdanet_tf.training.networks import build_network
from lambdanet_tf.training.networks import network_arguments
from lambdanet_tf.training.networks import set_precision
from lambdanet_tf.training.optimisation import recipe_optimizer
from lambdanet_tf.training.optimizer import RecipeOptimizer


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a recipe describes, made.

    Attributes:
        inputs: `Inputs`, with the images.
        arguments: dict. The keyword arguments of the network's builder.
        model: built `tf.keras.Model` that returns logits.
        optimizer: built `RecipeOptimizer`.
    """

    inputs: Inputs
    arguments: dict
    model: tf.keras.Model
    optimizer: RecipeOptimizer


def open_devices(options):
    """The strategy of a run; what is missing for the run is said here.

    Args:
        options: `RunOptions`.

    Returns:
        A `tf.distribute.Strategy`.

    Raises:
        ImportError: if matplotlib is missing.
        ValueError: if the options do not fit the machine or each other.
    """
    require("matplotlib.figure", extra="plot")
    if options.deterministic:
        tf.config.experimental.enable_op_determinism()
    strategy = make_strategy(options)
    if number_of_workers() > 1 and not options.run:
        raise ValueError(
            "Several processes need one folder that all can read: --run."
        )
    return strategy


def make_parts(recipe, options, strategy):
    """Loads the images and builds network and optimiser.

    Args:
        recipe: `Recipe`.
        options: `RunOptions`.
        strategy: `tf.distribute.Strategy`.

    Returns:
        A `Parts`.

    Raises:
        ValueError: if the recipe does not fit its data, network or devices.
        ImportError: if an optional package is missing.
    """
    images = data.load_images(
        recipe.data,
        recipe.holdout,
        options.data_dir or None,
        recipe.shuffle_buffer,
    )
    inputs = Inputs(recipe, images, strategy)
    tf.keras.utils.set_random_seed(recipe.seed)
    set_precision(recipe.precision)
    arguments = network_arguments(recipe, images)
    many = strategy.num_replicas_in_sync > 1
    with strategy.scope():
        model = build_network(recipe.model, arguments, many)
        optimizer = recipe_optimizer(recipe, inputs.steps_per_epoch)
        optimizer.attach(model).build(model.trainable_variables)
    return Parts(inputs, arguments, model, optimizer)
