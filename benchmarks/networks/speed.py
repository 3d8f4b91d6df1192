"""Times whole networks at 224 px: inference and training steps.

    python -m benchmarks.networks.speed         ten minutes

All take turns, on the CPU in float32, and those that are compared again in
pairs. A training step is the forward pass with batch statistics, the gradient
of the cross-entropy, and a step of SGD with momentum.
"""

import functools

import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from lambdanet_tf import models

NETWORKS = {
    **{
        pattern: functools.partial(models.ResNet50, pattern=pattern)
        for pattern in ("CCCC", "CCLL", "LLLL")
    },
    "ResNetRS50-SE": models.ResNetRS50,
    "LambdaResNet50": models.LambdaResNet50,
}
PHASES = ("inference", "training")
COMPARED = {"CCLL": "CCCC", "LLLL": "CCCC", "LambdaResNet50": "ResNetRS50-SE"}


def build(name, size):
    return NETWORKS[name](
        input_shape=(size, size, 3), weights=None, classifier_activation=None
    )


def compiled_steps(model, batch, size, jit_compile=False):
    """Compiled inference and training step of a model of logits."""
    shape = [batch, size, size, model.input_shape[-1]]
    images = tf.random.stateless_uniform(shape, (0, 1)) * 255
    labels = tf.range(batch) % model.output_shape[-1]
    variables = [
        tf.Variable(tf.zeros(w.shape)) for w in model.trainable_weights
    ]

    @tf.function(autograph=False, jit_compile=jit_compile)
    def inference():
        return model(images, training=False)

    @tf.function(autograph=False, jit_compile=jit_compile)
    def training():
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, logits
            )
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_weights)
        for weight, momentum, gradient in zip(
            model.trainable_weights, variables, gradients, strict=True
        ):
            momentum.assign(0.9 * momentum + gradient)
            weight.assign(weight - 1e-6 * momentum)
        return loss

    return inference, training


@records.script("networks", seconds=30.0, batch=8, size=224)
def main(recorder, options):
    size, names = options.size, [x for x in NETWORKS if options.only in x]
    functions = {
        x: compiled_steps(build(x, size), options.batch, size) for x in names
    }
    for number, phase in enumerate(PHASES):
        chosen = {name: both[number] for name, both in functions.items()}
        case = {"phase": phase, "batch": options.batch, "size": size}
        for name, taken in timing.turns(chosen, options.seconds).items():
            recorder.append({"network": name, **case}, seconds=taken)
        for name, other in COMPARED.items():
            if chosen.keys() >= {name, other}:
                pair = {x: chosen[x] for x in (name, other)}
                taken = timing.turns(pair, options.seconds, timing.FEW)
                against = {"network": name, "against": other}
                recorder.append({**against, **case}, seconds=taken)
