"""Times networks that people would choose between, beside their accuracy.

    python -m benchmarks.comparison                      # about 20 minutes
    python -m benchmarks.comparison --networks all       # hours
    python -m benchmarks.comparison --rounds 0           # the page alone

Figure 4 and Table 5 of the paper on this machine: images per second in
inference and in training, float32, each network at its published size, beside
its published accuracy on ImageNet without further images. Each network is
timed in a process of its own; with several rounds, all take turns. What is in
`comparison.json` is kept; a round that was interrupted is continued.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from benchmarks import comparison_report
from benchmarks import vision_transformer
from benchmarks.networks import compiled_steps
from benchmarks.timing import interleaved
from lambdanet_tf import models
from lambdanet_tf.layers import BatchNormalization
from lambdanet_tf.specs import TABLE_20


@dataclasses.dataclass(frozen=True)
class Network:
    """A network at a size, with its published accuracy.

    Attributes:
        family: a key of `comparison_report.SOURCES`.
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


def measure(network, batch, repetitions):
    """Builds a network and times it: seconds an image, in both phases."""
    model = network.model()
    inference, training = compiled_steps(model, batch, network.image_size)
    # One after the other: the graph of the second need not be in memory yet.
    times = {
        **interleaved({"inference": inference}, repetitions),
        **interleaved({"training": training}, repetitions),
    }
    return {
        "parameters": sum(
            math.prod(weight.shape) for weight in model.trainable_weights
        ),
        **{
            phase: [seconds / batch for seconds in found]
            for phase, found in times.items()
        },
    }


def measure_apart(key, batch, repetitions):
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.comparison", "--one", key]
    command += ["--batch", str(batch), "--repetitions", str(repetitions)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", nargs="+", default=CHOSEN)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--write", default="docs", help="folder of the page")
    parser.add_argument("--one", choices=NETWORKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        network = NETWORKS[options.one]
        found = measure(network, options.batch, options.repetitions)
        print(json.dumps(found))
        return
    folder = pathlib.Path(options.write)
    path = folder / comparison_report.ROUNDS
    rounds = comparison_report.stored_rounds(folder)
    keys = NETWORKS if options.networks == ["all"] else options.networks
    for number in range(options.rounds):
        if number == len(rounds):
            rounds.append({"batch": options.batch, "networks": {}})
        for key in keys:
            if key in rounds[number]["networks"]:
                continue
            found = measure_apart(key, options.batch, options.repetitions)
            rounds[number]["networks"][key] = found
            path.write_text(json.dumps(rounds, indent=1) + "\n")
            print(key, found, flush=True)
    comparison_report.write(NETWORKS, folder)


if __name__ == "__main__":
    main()
