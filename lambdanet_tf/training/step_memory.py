"""How much memory a training step takes on a device: an estimate."""

import dataclasses
import math
import os

import tensorflow as tf

from lambdanet_tf.analysis.lifetimes import peak_bytes
from lambdanet_tf.training.devices import is_cpu
from lambdanet_tf.training.devices import number_of_hosts
from lambdanet_tf.training.kernels import raw_variable
from lambdanet_tf.training.kernels import size_in_bytes
from lambdanet_tf.training.losses import cross_entropy


@dataclasses.dataclass(frozen=True)
class StepMemory:
    """What a training step keeps on each device, in bytes.

    Attributes:
        weights: of the model.
        slots: of the optimiser, without the averages: momentum and the like.
        averages: of the weights.
        gradients: of all trainable weights.
        activations: what else lives together at the peak of forward and
            backward pass, the batch included.
    """

    weights: int
    slots: int
    averages: int
    gradients: int
    activations: int

    @property
    def total(self):
        """All of it."""
        return sum(dataclasses.astuple(self))

    @property
    def text(self):
        """The estimate in words."""
        parts = ", ".join(
            f"{field.name} {_mib(getattr(self, field.name))}"
            for field in dataclasses.fields(self)
        )
        return (
            f"about {_mib(self.total)} MiB of tensors in a step on each "
            f"device (estimate): {parts}"
        )


def step_memory(recipe, parts, strategy):
    """Estimates the memory of a training step on each device.

    The weights and what the optimiser keeps are counted. For the rest the
    forward and backward pass is traced, and the tensors that live together are
    summed (`lambdanet_tf.analysis.lifetimes`). What TensorFlow itself, its
    kernels and the input pipeline take is not in it.

    Args:
        recipe: `Recipe`.
        parts: `Parts`.
        strategy: `tf.distribute.Strategy`.

    Returns:
        A `StepMemory`.
    """
    model = parts.model
    batch = recipe.batch_size // strategy.num_replicas_in_sync
    weights = size_in_bytes(model.weights)
    floats = [w for w in model.weights if raw_variable(w).dtype.is_floating]
    averages = size_in_bytes(floats) if recipe.average_decay else 0
    gradients = size_in_bytes(model.trainable_weights)
    image_shape = parts.inputs.image_shape
    graph = _passes(recipe, model, (batch, *image_shape))
    images = 4 * batch * math.prod(image_shape)
    return StepMemory(
        weights=weights,
        slots=size_in_bytes(parts.optimizer.variables) - averages,
        averages=averages,
        gradients=gradients,
        activations=peak_bytes(graph) - gradients + images,
    )


def check_memory(recipe, memory, strategy):
    """Raises if a step cannot fit into the memory of a machine without GPU.

    Args:
        recipe: `Recipe`.
        memory: `StepMemory`.
        strategy: `tf.distribute.Strategy`.

    Raises:
        ValueError: naming both amounts.
    """
    if not is_cpu(strategy):
        return
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    replicas = strategy.num_replicas_in_sync // number_of_hosts(strategy)
    needed = memory.total * replicas
    if needed > there:
        raise ValueError(
            f"`batch_size` {recipe.batch_size} is too large for this machine: "
            f"a step needs about {needed / 2**30:,.0f} GiB, and it has "
            f"{there / 2**30:,.0f} GiB."
        )


def _passes(recipe, model, shape):
    """The graph of the forward and backward pass of one replica."""
    labels = tf.TensorSpec(shape[:1], tf.int32)
    if recipe.mixup or recipe.cutmix:
        labels = tf.TensorSpec([shape[0], model.output.shape[-1]], tf.float32)

    @tf.function(autograph=False)
    def gradients(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_sum(cross_entropy(labels, logits))
        return tape.gradient(loss, model.trainable_variables)

    images = tf.TensorSpec(shape, tf.float32)
    return gradients.get_concrete_function(images, labels).graph


def _mib(number):
    digits = 0 if number >= 10 * 2**20 else 1
    return f"{number / 2**20:,.{digits}f}"
