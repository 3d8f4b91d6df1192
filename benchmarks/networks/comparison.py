"""Times networks that people would choose between, for their accuracy.

    python -m benchmarks.networks.comparison    35 minutes

Figure 4 and Table 5 of the paper on this machine: inference and training,
float32, each network at its published size, in a process of its own, with its
published accuracy on ImageNet without further images. Each takes turns with
the first network, because the speed of a machine changes within minutes.
"""

from typing import NamedTuple

import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from benchmarks.networks.speed import PHASES
from benchmarks.networks.speed import compiled_steps
from lambdanet_tf import models
from lambdanet_tf.analysis import trainable_parameters
from lambdanet_tf.layers import BatchNormalization
from lambdanet_tf.specs import TABLE_20

SLOW = ((350, 288), (350, 320), (420, 320))  # hours on two cores
STEP_IMAGES = 1024  # of a published step


class Network(NamedTuple):
    """A network at a size, with what is published of it."""

    family: str
    name: str
    image_size: int
    top1: float  # on ImageNet, per cent
    # Seconds of a training step on 8 TPUv3 cores in bfloat16: the paper's Table
    # 20, and for ResNet-RS the README of models/official/resnet/resnet_rs in
    # github.com/tensorflow/tpu (its batch is 128 a core).
    step: float | None = None

    def model(self):
        """The network with random weights, up to its logits."""
        build = getattr(models, self.name, None)
        model = (build or getattr(tf.keras.applications, self.name))(
            weights=None,
            input_shape=(self.image_size, self.image_size, 3),
            classifier_activation=None,
        )
        return tf.keras.models.clone_model(model, clone_function=_renormed)


ROWS = (
    *(
        Network(
            *("LambdaResNet", f"LambdaResNet{x.depth}"),
            *(x.image_size, x.top1, x.step_seconds),
        )
        for x in TABLE_20
        if x.top1 and (x.depth, x.image_size) not in SLOW
    ),
    Network("ResNet-RS", "ResNetRS50", 160, 78.8, 0.070),
    Network("ResNet-RS", "ResNetRS101", 192, 81.2, 0.170),
    Network("ResNet-RS", "ResNetRS152", 224, 82.2, 0.320),
    Network("EfficientNet", "EfficientNetB0", 224, 77.1),
    Network("EfficientNet", "EfficientNetB1", 240, 79.1),
    Network("EfficientNet", "EfficientNetB2", 260, 80.1),
    Network("EfficientNet", "EfficientNetB3", 300, 81.6),
    Network("EfficientNet", "EfficientNetB4", 380, 82.9),
    Network("EfficientNet", "EfficientNetB5", 456, 83.6),
    Network("EfficientNet", "EfficientNetB6", 528, 84.0),
    Network("EfficientNet", "EfficientNetB7", 600, 84.3),
    Network("EfficientNetV2", "EfficientNetV2S", 384, 83.9),
)
NETWORKS = {f"{x.name}, {x.image_size} px": x for x in ROWS}


def _renormed(layer):
    """A copy of a layer, with this package's batch normalization for Keras'."""
    layer_type = type(layer)
    if layer_type is tf.keras.layers.BatchNormalization:
        layer_type = BatchNormalization
    return layer_type.from_config(layer.get_config())


def measure(key, batch, seconds):
    network, first = NETWORKS[key], next(iter(NETWORKS.values()))
    model = network.model()
    functions = compiled_steps(model, batch, network.image_size)
    firsts = compiled_steps(first.model(), batch, first.image_size)
    # One after the other: the graph of the second need not be in memory yet.
    taken = {}
    for phase, *steps in zip(PHASES, functions, firsts, strict=True):
        names = phase, f"{phase}, first"
        taken |= timing.turns(dict(zip(names, steps, strict=True)), seconds)
    return {
        "family": network.family,
        "top1": network.top1,
        "published": network.step and network.step / STEP_IMAGES,
        "parameters": trainable_parameters(model),
        "seconds": taken,
    }


@records.script("comparison", seconds=5.0, batch=4)
def main(recorder, options):
    child = "benchmarks.networks.comparison:measure"
    recorder.fill(
        records.cases(network=NETWORKS, batch=[options.batch]),
        lambda case: timing.in_child(child, *case.values(), options.seconds),
    )
