"""Lowers a program of the table to StableHLO, with TensorFlow alone.

The step of a recipe is the one that `train.py` takes: the recipe's network,
loss, gradients, optimizer and averages, in mixed bfloat16. It is lowered for
one core, so it has no sums over cores.
"""

import types

import tensorflow as tf

from benchmarks.tpu.operations import audit
from benchmarks.tpu.programs import PROGRAMS
from lambdanet_tf.analysis import analyze
from lambdanet_tf.layers import LambdaLayer
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
    """The StableHLO of one of `PROGRAMS`; see `lower_program`."""
    return lower_program(PROGRAMS[key])


def lower_program(program, device="tpu"):
    """The StableHLO of a program for a device, and what is expected of it.

    `counted_flops` are the products that `lambdanet_tf.analysis` counts, for
    the batch, three times for training; `algorithms`, how often each is used;
    `without_kernel` and `double`, see `benchmarks.tpu.operations`.
    """
    tf.keras.mixed_precision.set_global_policy(program.precision)
    with planning_for(device):
        make = _recipe_step if program.recipe else _layer_step
        step, arguments, facts = make(program)
        compiled = tf.function(step, jit_compile=True)
        found = audit(compiled.get_concrete_function(*arguments))
        text = stablehlo(compiled, arguments)
    facts["without_kernel"] = [*found.without_kernel, *found.dynamic]
    facts["double"] = list(found.double)
    return text, facts


def stablehlo(compiled, arguments):
    """The StableHLO of a `tf.function`, from a flat list of `tf.TensorSpec`."""
    make = compiled.experimental_get_compiler_ir(*arguments)
    return make(stage="stablehlo", platform_name="CPU")


def program_analysis(program):
    """The `Analysis` of a recipe's network, planned for a TPU."""
    tf.keras.mixed_precision.set_global_policy(program.precision)
    with planning_for("tpu"):
        network = recipe_network(_recipe(program), IMAGENET)
        return analyze(network, batch_size=program.batch)


def _recipe(program):
    model_arguments = program.changes.get("model_arguments", {})
    return resolve(
        program.recipe,
        {
            **program.changes,
            "model_arguments": {**model_arguments, "use_sync_bn": True},
            "image_size": program.image_size,
            "batch_size": program.batch * CORES,
            "precision": program.precision,
        },
    )


def _recipe_step(program):
    recipe = _recipe(program)
    model = recipe_network(recipe, IMAGENET)
    optimizer = recipe_optimizer(recipe, STEPS_PER_EPOCH)
    averages = Averages(model, recipe.ema_decay)
    step = update_step(TrainState(model, optimizer, averages), recipe)
    batch, size = program.batch, program.image_size
    images = tf.TensorSpec([batch, size, size, 3], tf.bfloat16)
    labels = tf.TensorSpec([batch, len(IMAGENET.classes)], tf.float32)
    number = tf.TensorSpec([], tf.int64)
    return step, (images, labels, number), _facts(model, program)


def _layer_step(program):
    """The outputs of a layer, or the gradients of its inputs and weights."""
    shape = (program.image_size, program.image_size, program.changes["filters"])
    inputs = tf.keras.Input(shape, batch_size=program.batch)
    model = tf.keras.Model(inputs, LambdaLayer(**program.changes)(inputs))

    def step(images):
        if not program.training:
            return model(images, training=False)
        with tf.GradientTape() as tape:
            tape.watch(images)
            outputs = tf.cast(model(images, training=True), tf.float32)
            loss = tf.reduce_sum(outputs**2)
        return tape.gradient(loss, [images, *model.trainable_variables])

    dtype = tf.bfloat16 if "bfloat16" in program.precision else tf.float32
    images = tf.TensorSpec([program.batch, *shape], dtype)
    return step, (images,), _facts(model, program)


def _facts(model, program):
    analysis = analyze(model, batch_size=program.batch)
    flops = analysis.total("executed_flops")
    passes = PASSES if program.training else 1
    algorithms = [x.algorithm for x in analysis.layers if x.algorithm]
    return {
        "parameters": model.count_params(),
        "counted_flops": passes * program.batch * flops,
        "algorithms": {a: algorithms.count(a) for a in sorted({*algorithms})},
    }
