"""Times networks that people would choose between, for their accuracy.

    python -m benchmarks.networks.comparison             20 minutes
    python -m benchmarks.networks.comparison --only B0 --seconds 1

Figure 4 and Table 5 of the paper on this machine: inference and training,
float32, each network at its published size, in a process of its own, with its
published accuracy on ImageNet without further images.
"""

import dataclasses
from collections.abc import Callable

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
# Size, top-1, seconds of a training step on 8 TPUv3 cores in bfloat16: the
# paper's Table 20, and for ResNet-RS the README of
# models/official/resnet/resnet_rs in github.com/tensorflow/tpu (its batch is
# 128 a core). The others without a step.
TABLES = {
    "LambdaResNet": [
        (f"LambdaResNet{x.depth}", x.image_size, x.top1, x.step_seconds)
        for x in TABLE_20
        if x.top1 and (x.depth, x.image_size) not in SLOW
    ],
    "ResNet-RS": [
        ("ResNetRS50", 160, 78.8, 0.070),
        ("ResNetRS101", 192, 81.2, 0.170),
        ("ResNetRS152", 224, 82.2, 0.320),
    ],
    "EfficientNet": [
        ("EfficientNetB0", 224, 77.1),
        ("EfficientNetB1", 240, 79.1),
        ("EfficientNetB2", 260, 80.1),
        ("EfficientNetB3", 300, 81.6),
        ("EfficientNetB4", 380, 82.9),
        ("EfficientNetB5", 456, 83.6),
        ("EfficientNetB6", 528, 84.0),
        ("EfficientNetB7", 600, 84.3),
    ],
    "EfficientNetV2": [
        ("EfficientNetV2S", 384, 83.9),
    ],
}
MODULES = {
    "LambdaResNet": models,
    "ResNet-RS": models,
}


@dataclasses.dataclass(frozen=True)
class Network:
    """A network at a size, with what is published of it."""

    family: str
    name: str
    image_size: int
    top1: float  # on ImageNet, per cent
    step: float | None  # seconds of a training step on TPUs
    build: Callable[..., tf.keras.Model]

    @property
    def key(self):
        return f"{self.name}, {self.image_size} px"

    @property
    def facts(self):
        published = self.step and self.step / STEP_IMAGES
        facts = {"family": self.family, "top1": self.top1}
        return {**facts, "published": published}

    def model(self):
        """The network with random weights, up to its logits."""
        model = self.build(
            weights=None,
            input_shape=(self.image_size, self.image_size, 3),
            classifier_activation=None,
        )
        return tf.keras.models.clone_model(model, clone_function=_renormed)


def _renormed(layer):
    """A copy of a layer, with this package's batch normalization for Keras'."""
    layer_type = type(layer)
    if layer_type is tf.keras.layers.BatchNormalization:
        layer_type = BatchNormalization
    return layer_type.from_config(layer.get_config())


def _networks():
    for family, rows in TABLES.items():
        module = MODULES.get(family, tf.keras.applications)
        for name, size, top1, *step in rows:
            facts = name, size, top1, *(step or [None])
            yield Network(family, *facts, getattr(module, name))


NETWORKS = {network.key: network for network in _networks()}


def measure(key, batch, seconds):
    network = NETWORKS[key]
    model = network.model()
    functions = compiled_steps(model, batch, network.image_size)
    # One after the other: the graph of the second need not be in memory yet.
    taken = {}
    for phase, step in zip(PHASES, functions, strict=True):
        taken |= timing.turns({phase: step}, seconds)
    return {"parameters": trainable_parameters(model), "seconds": taken}


@records.script("comparison", seconds=5.0, batch=4)
def main(recorder, options):
    def measured(case):
        place = *case.values(), options.seconds
        child = "benchmarks.networks.comparison:measure"
        return NETWORKS[place[0]].facts | timing.in_child(child, *place)

    cases = records.cases(network=NETWORKS, batch=[options.batch])
    recorder.fill(cases, measured)
