"""Lowers a step of `train.py` to StableHLO, with TensorFlow alone.

It is lowered for one core, so it has no sums over cores.
"""

import collections
import types

import tensorflow as tf

from benchmarks.tpu.operations import audit
from benchmarks.tpu.programs import POLICY
from benchmarks.tpu.programs import PROGRAMS
from lambdanet_tf.analysis import analyze
from lambdanet_tf.analysis.traced_flops import executed_flops
from lambdanet_tf.models import clone_network
from lambdanet_tf.ops import planning_for
from lambdanet_tf.training import Averages
from lambdanet_tf.training import recipe_network
from lambdanet_tf.training import recipe_optimizer
from lambdanet_tf.training import resolve
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.steps import update_step

CORES = 128  # of the paper's batch of 4096
IMAGENET = types.SimpleNamespace(channels=3, classes=range(1000))
STEPS_PER_EPOCH = 1_281_167 // 4096
# A gradient of a product is two products.
PASSES = 3


def lower(key):
    """Returns the StableHLO of a program, and what is expected of it."""
    program = PROGRAMS[key]
    tf.keras.mixed_precision.set_global_policy(POLICY)
    with planning_for("tpu"):
        model, step, arguments = recipe_step(program)
        compiled = tf.function(step, jit_compile=True)
        found = audit(compiled.get_concrete_function(*arguments))
        make = compiled.experimental_get_compiler_ir(*arguments)
        text = make(stage="stablehlo", platform_name="CPU")
        shape, batch = model.inputs[0].shape[1:], program.batch
        images = tf.keras.Input(shape, batch_size=batch)
        analysis = analyze(clone_network(model, input_tensors=images))
        flops = executed_flops(model, (batch, *shape), training=True).total()
    used = sorted(x.algorithm for x in analysis.layers if x.algorithm)
    return text, {
        "counted_flops": PASSES * flops,
        "algorithms": collections.Counter(used),
        "without_kernel": [*found.without_kernel, *found.dynamic],
        "double": found.double,
    }


def recipe_step(program):
    """The network of a program, its step for one of many cores, and inputs."""
    arguments = program.changes.get("model_arguments", {})
    place = {
        "model_arguments": {**arguments, "use_sync_bn": True},
        "image_size": program.image_size,
        "batch_size": program.batch * CORES,
        "precision": POLICY,
    }
    recipe = resolve(program.recipe, {**program.changes, **place})
    model = recipe_network(recipe, IMAGENET)
    optimizer = recipe_optimizer(recipe, STEPS_PER_EPOCH)
    averages = Averages(model, recipe.ema_decay)
    step = update_step(TrainState(model, optimizer, averages), recipe)
    batch, size = program.batch, program.image_size
    images = tf.TensorSpec([batch, size, size, 3], tf.bfloat16)
    labels = tf.TensorSpec([batch, len(IMAGENET.classes)], tf.float32)
    return model, step, (images, labels, tf.TensorSpec([], tf.int64))
