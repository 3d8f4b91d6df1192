"""Times networks that people would choose between, for their accuracy.

    python -m benchmarks.networks.comparison             20 minutes
    python -m benchmarks.networks.comparison --only DeiTSmall --seconds 1
    python -m benchmarks.networks.comparison --all       hours

Figure 4 and Table 5 of the paper on this machine: inference and training,
float32, each network at its published size, in a process of its own, with its
published accuracy on ImageNet without further images.
"""

import dataclasses
import math
from collections.abc import Callable

import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from benchmarks.networks import vision_transformer
from benchmarks.networks.speed import compiled_steps
from lambdanet_tf import models
from lambdanet_tf.layers import BatchNormalization
from lambdanet_tf.specs import TABLE_20

# Seconds of a training step of 1024 images on 8 TPUv3 cores, bfloat16: the
# paper's Table 20, and the README of models/official/resnet/resnet_rs in
# github.com/tensorflow/tpu (its batch is 128 a core).
RESNET_RS_STEPS = {
    "ResNetRS50, 160 px": 0.070,
    "ResNetRS101, 160 px": 0.120,
    "ResNetRS101, 192 px": 0.170,
    "ResNetRS152, 192 px": 0.240,
    "ResNetRS152, 224 px": 0.320,
    "ResNetRS152, 256 px": 0.410,
    "ResNetRS200, 256 px": 0.570,
    "ResNetRS270, 256 px": 0.780,
    "ResNetRS350, 256 px": 1.100,
    "ResNetRS350, 320 px": 1.630,
    "ResNetRS420, 320 px": 2.090,
}
STEP_IMAGES = 1024


def published_steps():
    """Seconds an image of training on TPUs, by the key of a network."""
    steps = RESNET_RS_STEPS | {
        f"LambdaResNet{row.depth}, {row.image_size} px": row.step_seconds
        for row in TABLE_20
    }
    return {key: seconds / STEP_IMAGES for key, seconds in steps.items()}


@dataclasses.dataclass(frozen=True)
class Network:
    """A network at a size, with its published accuracy.

    Attributes:
        family: of the network.
        name: of the builder.
        image_size: height and width.
        top1: on ImageNet, per cent.
        build: the builder, with the arguments of `keras.applications`.
    """

    family: str
    name: str
    image_size: int
    top1: float
    build: Callable[..., tf.keras.Model]

    @property
    def key(self):
        return f"{self.name}, {self.image_size} px"

    @property
    def facts(self):
        """What is recorded of the network beside its times."""
        return {
            "family": self.family,
            "top1": self.top1,
            "published": published_steps().get(self.key),
        }

    def model(self):
        """The network with random weights, up to its logits.

        All have the same batch normalization: what is compared are networks.
        """
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


def _lambda_resnets():
    return [
        Network(
            "LambdaResNet",
            f"LambdaResNet{row.depth}",
            row.image_size,
            row.top1,
            getattr(models, f"LambdaResNet{row.depth}"),
        )
        for row in TABLE_20
        if row.top1
    ]


def _rows(family, module, rows):
    return [
        Network(family, name, size, top1, getattr(module, name))
        for name, size, top1 in rows
    ]


_APPLICATIONS = tf.keras.applications
NETWORKS = {
    network.key: network
    for network in (
        *_lambda_resnets(),
        *_rows(
            "ResNet-RS",
            models,
            (
                ("ResNetRS50", 160, 78.8),
                ("ResNetRS101", 160, 80.3),
                ("ResNetRS101", 192, 81.2),
                ("ResNetRS152", 192, 82.0),
                ("ResNetRS152", 224, 82.2),
                ("ResNetRS152", 256, 83.0),
                ("ResNetRS200", 256, 83.4),
                ("ResNetRS270", 256, 83.8),
                ("ResNetRS350", 256, 84.0),
                ("ResNetRS350", 320, 84.2),
                ("ResNetRS420", 320, 84.4),
            ),
        ),
        *_rows(
            "EfficientNet",
            _APPLICATIONS,
            (
                ("EfficientNetB0", 224, 77.1),
                ("EfficientNetB1", 240, 79.1),
                ("EfficientNetB2", 260, 80.1),
                ("EfficientNetB3", 300, 81.6),
                ("EfficientNetB4", 380, 82.9),
                ("EfficientNetB5", 456, 83.6),
                ("EfficientNetB6", 528, 84.0),
                ("EfficientNetB7", 600, 84.3),
            ),
        ),
        *_rows(
            "EfficientNetV2",
            _APPLICATIONS,
            (
                ("EfficientNetV2S", 384, 83.9),
                ("EfficientNetV2M", 480, 85.1),
                ("EfficientNetV2L", 480, 85.7),
            ),
        ),
        *_rows(
            "ViT",
            vision_transformer,
            (("DeiTSmall", 224, 79.8), ("DeiTBase", 224, 81.8)),
        ),
    )
}
# What two cores time in some 20 minutes.
CHOSEN = (
    "LambdaResNet50, 128 px",
    "LambdaResNet50, 160 px",
    "LambdaResNet101, 160 px",
    "LambdaResNet101, 192 px",
    "LambdaResNet152, 192 px",
    "LambdaResNet152, 224 px",
    "LambdaResNet152, 256 px",
    "LambdaResNet270, 256 px",
    "LambdaResNet350, 256 px",
    "ResNetRS50, 160 px",
    "ResNetRS101, 192 px",
    "ResNetRS152, 224 px",
    "EfficientNetB0, 224 px",
    "EfficientNetB1, 240 px",
    "EfficientNetB2, 260 px",
    "EfficientNetB3, 300 px",
    "EfficientNetB4, 380 px",
    "EfficientNetB5, 456 px",
    "EfficientNetB6, 528 px",
    "EfficientNetB7, 600 px",
    "EfficientNetV2S, 384 px",
    "DeiTSmall, 224 px",
    "DeiTBase, 224 px",
)


def measure(key, batch, seconds):
    """Builds a network and times both phases; returns what is recorded."""
    network = NETWORKS[key]
    model = network.model()
    functions = compiled_steps(model, batch, network.image_size)
    # One after the other: the graph of the second need not be in memory yet.
    taken = {}
    for phase, step in zip(("inference", "training"), functions, strict=True):
        taken |= timing.turns({phase: step}, seconds)
    sizes = (math.prod(weight.shape) for weight in model.trainable_weights)
    return {"parameters": sum(sizes), "seconds": taken}


def main(arguments=None):
    recorder, options = records.start(
        "comparison", __doc__, arguments, seconds=5.0, batch=4, all=False
    )

    def measured(case):
        place = *case.values(), options.seconds
        child = "benchmarks.networks.comparison:measure"
        return NETWORKS[place[0]].facts | timing.in_child(child, *place)

    recorder.fill(
        [
            {"network": key, "batch": options.batch}
            for key in (NETWORKS if options.all else CHOSEN)
        ],
        measured,
    )


if __name__ == "__main__":
    main()
