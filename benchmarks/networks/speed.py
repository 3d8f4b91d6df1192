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
    x: functools.partial(models.ResNet50, pattern=x)
    for x in ("CCCC", "CCLL", "LLLL")
}
NETWORKS["ResNetRS50-SE"] = models.ResNetRS50
NETWORKS["LambdaResNet50"] = models.LambdaResNet50
PHASES = ("inference", "training")
COMPARED = {"CCLL": "CCCC", "LLLL": "CCCC", "LambdaResNet50": "ResNetRS50-SE"}


def compiled_steps(model, batch, size):
    """Compiled inference and training step of a model of logits."""
    shape = [batch, size, size, model.input_shape[-1]]
    images = tf.random.stateless_uniform(shape, (0, 1)) * 255
    labels = tf.range(batch) % model.output_shape[-1]
    weights = model.trainable_weights
    variables = [tf.Variable(tf.zeros(weight.shape)) for weight in weights]

    @tf.function(autograph=False)
    def inference():
        return model(images, training=False)

    @tf.function(autograph=False)
    def training():
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, logits
            )
            loss = tf.reduce_mean(losses)
        rows = weights, variables, tape.gradient(loss, weights)
        for weight, momentum, gradient in zip(*rows, strict=True):
            momentum.assign(0.9 * momentum + gradient)
            weight.assign(weight - 1e-6 * momentum)
        return loss

    return inference, training


@records.script("networks", seconds=30.0, batch=8, size=224)
def main(recorder, options):
    size, names = options.size, [x for x in NETWORKS if options.only in x]
    arguments = {"input_shape": (size, size, 3), "classifier_activation": None}
    functions = {
        name: compiled_steps(NETWORKS[name](**arguments), options.batch, size)
        for name in names
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
