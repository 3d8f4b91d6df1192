"""Times whole networks at 224 px: inference and training steps.

    python -m benchmarks.networks
    python -m benchmarks.networks --networks CCCC LLLL --batch 4
    python -m benchmarks.networks --norm --write docs
    python -m benchmarks.networks --timm --write docs

Images per second of all networks, taking turns, on the CPU in float32. A
training step is the forward pass with batch statistics, the gradient of the
cross-entropy with respect to all weights, and a step of SGD with momentum.
Networks that are compared take turns in pairs as well; the ratio is the median
of the turns, with the interval of 95 % for it.
With `--norm`, each beside itself with Keras' own batch normalization instead.
With `--timm` (extra `timm`), the networks of `benchmarks.timm_speed` instead.
"""

import argparse
import math
import os
import pathlib
import unittest.mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from benchmarks import report
from benchmarks import timing
from benchmarks import timm_speed
from lambdanet_tf import layers
from lambdanet_tf import models

NETWORKS = {
    "CCCC": lambda **kw: models.ResNet50(pattern="CCCC", **kw),
    "CCLL": lambda **kw: models.ResNet50(pattern="CCLL", **kw),
    "LLLL": lambda **kw: models.ResNet50(pattern="LLLL", **kw),
    "ResNetRS50-SE": lambda **kw: models.ResNetRS50(**kw),
    "LambdaResNet50": lambda **kw: models.LambdaResNet50(**kw),
}
IMAGE_SIZE = 224
# What each is compared with, and the paper's ratio of throughputs (TPUv3).
COMPARED = {
    "CCLL": ("CCCC", "4980/7240 = 0.69 (Table 12)"),
    "LLLL": ("CCCC", "1160/7240 = 0.16 (Table 12)"),
    "LambdaResNet50": ("ResNetRS50-SE", "1.01 at depth 101 (Table 13)"),
}


def build(name, size):
    """A network of `NETWORKS`, up to its logits."""
    return NETWORKS[name](
        input_shape=(size, size, 3), weights=None, classifier_activation=None
    )


def steps(name, batch, size):
    """Compiled inference and training step of a network."""
    return compiled_steps(build(name, size), batch, size)


def compiled_steps(model, batch, size, jit_compile=False):
    """Compiled inference and training step of a model of logits."""
    images = tf.random.stateless_uniform([batch, size, size, 3], (0, 1)) * 255
    labels = tf.range(batch) % 1000
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", nargs="+")
    parser.add_argument("--batch", type=int, nargs="+")
    parser.add_argument("--size", type=int, help="of the images (224; 256)")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=15, help="turns (15)")
    parser.add_argument("--write", help="folder of engine.md")
    parser.add_argument(
        "--norm", action="store_true", help="beside Keras' normalization"
    )
    timm_speed.add_arguments(parser)
    arguments = parser.parse_args()
    if arguments.timm:
        timm_speed.measure(arguments)
        return
    for batch in arguments.batch or [8]:
        (compare_norms if arguments.norm else compare)(arguments, batch)


def compare(arguments, batch):
    """Times all networks at a batch, prints the rows and writes the table."""
    inference, training, size = {}, {}, arguments.size or IMAGE_SIZE
    for name in arguments.networks or NETWORKS:
        inference[name], training[name] = steps(name, batch, size)
    phases = {"inference": inference, "training": training}
    lines = [
        "| network | phase | images/s | slowest to fastest | compared with | "
        "ratio | the paper's (TPUv3) |",
        "|" + "---|" * 7,
    ]
    for phase, functions in phases.items():
        times = timing.interleaved(functions, arguments.repetitions)
        for name in times:
            ratio = None
            if name in COMPARED and COMPARED[name][0] in functions:
                pair = {x: functions[x] for x in (name, COMPARED[name][0])}
                taken = timing.turns(pair, arguments.pairs, slow=math.inf)
                ratio = timing.ratio(*taken.values())
            lines.append(_row(name, phase, times[name], ratio, batch))
            print(lines[-1], flush=True)
    _write(arguments, batch, "networks", lines)


def compare_norms(arguments, batch):
    """Times networks beside themselves with Keras' batch normalization."""
    size = arguments.size or IMAGE_SIZE
    lines = [
        "| network | phase | time with Keras' layer / with this one |",
        "|" + "---|" * 3,
    ]
    for name in arguments.networks or NETWORKS:
        model = build(name, size)
        ours, theirs = (compiled_steps(model, batch, size) for _ in range(2))
        with unittest.mock.patch.object(
            layers.BatchNormalization,
            "call",
            tf.keras.layers.BatchNormalization.call,
        ):
            for step in theirs:
                step()  # traced with it
        for phase, *pair in zip(
            ("inference", "training"), ours, theirs, strict=True
        ):
            functions = dict(zip(("ours", "theirs"), pair, strict=True))
            taken = timing.turns(functions, arguments.pairs, slow=math.inf)
            median, low, high = timing.ratio(*taken.values())
            lines.append(
                f"| {name} | {phase} | {median:.2f} ({low:.2f} to {high:.2f}) |"
            )
            print(lines[-1], flush=True)
        tf.keras.backend.clear_session()
    _write(arguments, batch, "norms", lines)


def _write(arguments, batch, section, lines):
    """Writes a table into its section of engine.md, if that is wanted."""
    if arguments.write:
        title = f"Batch {batch}, {arguments.size or IMAGE_SIZE} px."
        text = "\n".join([title, "", *lines])
        report.insert(pathlib.Path(arguments.write), section, text)


def _row(name, phase, times, ratio, batch):
    """One line of the table."""
    middle, fast, slow = times
    cells = [name, phase, f"{batch / middle:.2f}"]
    cells.append(f"{batch / slow:.2f}-{batch / fast:.2f}")
    if ratio:
        other, paper = COMPARED[name]
        median, low, high = ratio
        cells += [other, f"{median:.2f} ({low:.2f} to {high:.2f})", paper]
    else:
        cells += ["", "", ""]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
