"""Times whole networks at 224 px: inference and training steps.

    python -m benchmarks.networks.speed                  ten minutes
    python -m benchmarks.networks.speed --only CCCC --batch 2 --seconds 1
    python -m benchmarks.networks.speed --norm           fifteen minutes

All networks take turns, on the CPU in float32. A training step is the forward
pass with batch statistics, the gradient of the cross-entropy with respect to
all weights, and a step of SGD with momentum. Networks that are compared take
turns in pairs as well. With `--norm` each is compared with itself with Keras'
own batch normalization.
"""

import functools
import unittest.mock

import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from lambdanet_tf import layers
from lambdanet_tf import models

NETWORKS = {
    **{
        pattern: functools.partial(models.ResNet50, pattern=pattern)
        for pattern in ("CCCC", "CCLL", "LLLL")
    },
    "ResNetRS50-SE": models.ResNetRS50,
    "LambdaResNet50": models.LambdaResNet50,
}
IMAGE_SIZE = 224
PHASES = ("inference", "training")
COMPARED = {"CCLL": "CCCC", "LLLL": "CCCC", "LambdaResNet50": "ResNetRS50-SE"}
NORM = "itself with Keras' batch normalization"
LEAST = 6  # turns of a pair: with fewer there is no interval of 95 %


def build(name, size):
    """A network of `NETWORKS`, up to its logits."""
    return NETWORKS[name](
        input_shape=(size, size, 3), weights=None, classifier_activation=None
    )


def steps(name, batch, size):
    return compiled_steps(build(name, size), batch, size)


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


def compare(recorder, options):
    """Times all networks, and those that are compared in pairs."""
    size, names = options.size, [x for x in NETWORKS if options.only in x]
    functions = {name: steps(name, options.batch, size) for name in names}
    for number, phase in enumerate(PHASES):
        chosen = {name: both[number] for name, both in functions.items()}
        case = {"phase": phase, "batch": options.batch, "size": size}
        for name, taken in timing.turns(chosen, options.seconds).items():
            recorder.append({"network": name, **case}, seconds=taken)
        for pair in COMPARED.items():
            if chosen.keys() >= {*pair}:
                both = {name: chosen[name] for name in pair}
                record_pair(recorder, both, case, options.seconds)


def record_pair(recorder, pair, case, seconds):
    """Times two steps in turns; records how they compare."""
    name, other = pair
    recorder.get(
        {"network": name, "against": other, **case},
        lambda _: {"seconds": timing.turns(pair, seconds, least=LEAST)},
    )


def compare_norms(recorder, options):
    """Times networks against themselves with Keras' batch normalization."""
    for name in (x for x in NETWORKS if options.only in x):
        case = {"batch": options.batch, "size": options.size}
        model = build(name, options.size)
        ours, theirs = (compiled_steps(model, *case.values()) for _ in range(2))
        with unittest.mock.patch.object(
            layers.BatchNormalization,
            "call",
            tf.keras.layers.BatchNormalization.call,
        ):
            for step in theirs:
                step()  # traced with it
        for phase, one, other in zip(PHASES, ours, theirs, strict=True):
            own = {"phase": phase, **case}
            pair = {name: one, NORM: other}
            record_pair(recorder, pair, own, options.seconds)
        tf.keras.backend.clear_session()


def main(arguments=None):
    choices = {"batch": 8, "size": IMAGE_SIZE, "norm": False}
    recorder, options = records.start(
        "networks", __doc__, arguments, seconds=30.0, **choices
    )
    (compare_norms if options.norm else compare)(recorder, options)


if __name__ == "__main__":
    main()
