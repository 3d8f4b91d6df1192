"""Compares layers where an output depends on inputs far away: long_range.md.

    python -m benchmarks.studies.long_range --only "copying, 128"
    python -m benchmarks.studies.long_range --only "copying, 128" --costs

The protocol is that of docs/study.md. All data but the digits are generated.
"""

import functools
import math

import numpy as np
import tensorflow as tf

from benchmarks import records
from benchmarks.studies import protocol
from benchmarks.studies import runs
from benchmarks.studies.protocol import ATTENTION
from benchmarks.studies.protocol import KERNEL
from benchmarks.studies.protocol import LAMBDA
from benchmarks.studies.protocol import Task
from benchmarks.studies.protocol import Variant

keras = tf.keras.layers
BLOCKS, WIDTH, STEPS = 2, 48, 600
LENGTHS = {128: 32, 512: 16, 2048: 8}  # positions, and sequences of a batch
FEW, SOME, MANY = 4, 8, 16  # pairs to recall
RECALLED = 64  # positions of their sequences
SYMBOLS = 10  # that are copied
PATHS = (24, 6), (24, 12), (32, 18)  # pixels of an image, and of a path
UNASKED = -1  # the target of a position that does not count


def copying(rng, count, length):
    """Ten of eight symbols, blanks, a signal, and then the same again.

    Arjovsky et al., "Unitary Evolution Recurrent Neural Networks", 4.1.
    """
    symbols = rng.integers(1, 9, [count, SYMBOLS])
    inputs = np.zeros([count, length], "int32")
    inputs[:, :SYMBOLS] = symbols
    inputs[:, -SYMBOLS - 1] = 9
    return inputs, symbols


def adding(rng, count, length):
    """Numbers in [0, 1], of which two are marked: their sum.

    Hochreiter and Schmidhuber, "Long Short-Term Memory", 5.4, as in Arjovsky
    et al.: one mark in each half.
    """
    inputs = np.zeros([count, length, 2], "float32")
    inputs[..., 0] = rng.uniform(size=[count, length])
    half = length // 2
    marked = rng.integers(0, half, [count, 2]) + [0, half]
    np.put_along_axis(inputs[..., 1], marked, 1, axis=1)
    return inputs, inputs.prod(-1).sum(1, keepdims=True)


def recall(rng, count, length, pairs):
    """Keys with values, then each key asked for once, among blanks.

    Arora et al., "Zoology: Measuring and Improving Recall", 3.
    """
    keys = rng.permuted(np.tile(np.arange(1, 32), [count, 1]), axis=1)
    keys = keys[:, :pairs]
    values = rng.integers(32, 64, [count, pairs])
    inputs = np.zeros([count, length], "int32")
    inputs[:, 0 : 2 * pairs : 2] = keys
    inputs[:, 1 : 2 * pairs : 2] = values
    targets = np.full([count, length], UNASKED, "int32")
    places = np.tile(np.arange(2 * pairs, length), [count, 1])
    places = rng.permuted(places, axis=1)[:, :pairs]
    np.put_along_axis(inputs, places, keys, axis=1)
    np.put_along_axis(targets, places, values, axis=1)
    return inputs, targets


@functools.cache
def generated(task, count, *arguments):
    """Returns data by part: inputs and targets."""
    counts = {"training": count, "validation": 512, "test": 2048}
    return {
        part: task(np.random.default_rng(seed), number, *arguments)
        for seed, (part, number) in enumerate(counts.items())
    }


def digits_data():
    """scikit-learn's digits, a pixel at a time (Le et al., 2015)."""
    images, labels = runs.digits()
    sequences = images.reshape(len(images), -1, 1)
    parts = runs.digit_parts()
    return {part: (sequences[x], labels[x]) for part, x in parts.items()}


def path(rng, size, length):
    """Returns the pixels of a smooth path, or None if it leaves the image."""
    place, angle = rng.uniform(2, size - 2, 2), rng.uniform(0, 2 * np.pi)
    pixels = []
    while len(pixels) < length:
        pixel = tuple(np.rint(place).astype(int))
        if not all(0 < x < size - 1 for x in pixel):
            return None
        if pixel not in pixels:
            pixels.append(pixel)
        angle += rng.normal(0, 0.25)
        place = place + [np.sin(angle), np.cos(angle)]
    return np.array(pixels)


def pathfinder(rng, count, size, length):
    """Two dots and two paths: whether one path joins the dots.

    Linsley et al., "Learning Long-Range Spatial Dependencies", 4; Tay et al.,
    "Long Range Arena", 2.2. Paths are 1, dots 2.
    """
    images = np.zeros([count, size, size, 1], "float32")
    labels = rng.integers(0, 2, count)
    for image, label in zip(images, labels, strict=True):
        one = other = None
        while one is None:
            one = path(rng, size, length)
        while other is None or np.abs(one[:, None] - other).max(-1).min() < 4:
            other = path(rng, size, length)
        image[tuple(np.concatenate([one, other]).T)] = 1
        for y, x in (one[0], one[-1] if label else other[-1]):
            image[y - 1 : y + 2, x - 1 : x + 2] = 2
    return images, labels


def sequence_network(embed, kept, outputs, shape, variant, start):
    """Of the last positions as many come out as are asked for."""
    inputs = tf.keras.Input(shape)
    x = embed(variant.widths[0])(inputs)
    x = protocol.residual_blocks(x, variant, start, BLOCKS)
    x = x[:, -kept:] if kept > 1 else x[:, -1]
    return tf.keras.Model(inputs, keras.Dense(outputs)(x))


def image_network(size, variant, start):
    """A pixel of the first map is one of 4x4 of the image."""
    inputs = tf.keras.Input((size, size, 1))
    x = keras.Conv2D(variant.widths[0], 4, 2, padding="same")(inputs)
    x = protocol.residual_blocks(x, variant, start, 2 * BLOCKS)
    logits = keras.Dense(2)(keras.GlobalAveragePooling2D()(x))
    return tf.keras.Model(inputs, logits)


def embedded_pairs(width):
    """A token with the two before it, so that a value knows its key."""
    table = keras.Embedding(64, width)
    convolution = keras.Conv1D(width, 3, padding="causal")
    return lambda tokens: convolution(table(tokens))


def near(targets, outputs):
    """Returns the per cent of sums that are right within 0.04."""
    return 100 * float(np.mean(np.abs(targets - outputs) < 0.04))


def right(targets, logits):
    """Returns the per cent of what is asked that is answered."""
    asked = targets != UNASKED
    return 100 * float(np.mean((logits.argmax(-1) == targets)[asked]))


asked_entropy = tf.keras.losses.SparseCategoricalCrossentropy(
    from_logits=True, ignore_class=UNASKED
)


# Inner widths by length or image size, so that all have as many weights.
HIDDEN = {
    "recall": (156, 164, 104, 96, 373, 48),
    64: (156, 164, 104, 96, 288, 48),
    128: (144, 164, 88, 96, 244, 48),
    512: (168, 252, 80, 184, 288, 136),
    2048: (292, 628, 76, 560, 760, 512),
}
IMAGE_HIDDEN = {24: (90, 129, 83, 215), 32: (54, 129, 81, 215)}


def sequence_layers(length, widths=None):
    taps = math.isqrt(length - 1) + 1  # two layers see the whole sequence
    dilated = protocol.causal_convolution(taps, (1, taps))
    attention = protocol.attention(causal=True)
    lambdas, local, *others = HIDDEN[widths or length]
    wide = WIDTH, lambdas
    return {
        "lambda, global": Variant(protocol.past(8), wide, LAMBDA[1:]),
        "lambda, global, N(0, 1)": Variant(protocol.past(8), wide, LAMBDA[:1]),
        "lambda, scope 31": Variant(
            protocol.past(8, 31), (WIDTH, local), LAMBDA[1:]
        ),
        "attention": Variant(attention, (WIDTH, others[0]), ATTENTION),
        "Keras' attention": Variant(
            protocol.keras_attention, (WIDTH, others[1]), ATTENTION[:1]
        ),
        "convolution": Variant(dilated, (WIDTH // 2, others[2]), KERNEL[:1]),
        "GRU": Variant(
            protocol.gru, (WIDTH, others[3]), protocol.RECURRENT[:1]
        ),
    }


# More key channels, or fewer heads and so deeper values; and inner widths.
KEYED = {
    f"key_dim={keys}, num_heads={heads}": Variant(
        protocol.lambda_layer(key_dim=keys, num_heads=heads, causal=True),
        (WIDTH, width),
        LAMBDA[1:],
    )
    for keys, heads, width in ((16, 4, 126), (32, 4, 65), (8, 1, 150))
}


def dilated(width, start, place):
    return keras.Conv2D(
        width, 3, padding="same", dilation_rate=(1, 2, 4, 1)[place]
    )


def image_layers(size):
    lambdas = protocol.lambda_layer(key_dim=8)
    local = protocol.lambda_layer(key_dim=8, scope=7)
    first, second, third, last = IMAGE_HIDDEN[size]
    return {
        "lambda, global": Variant(lambdas, (WIDTH, first), LAMBDA),
        "lambda, scope 7": Variant(local, (WIDTH, second), LAMBDA),
        "attention": Variant(protocol.attention(), (WIDTH, third), ATTENTION),
        "convolution": Variant(dilated, (WIDTH // 2, last), KERNEL[:1]),
    }


def task(variants, network, data, batch=32, **changes):
    usual = {"steps": STEPS, "loss": asked_entropy, "score": right, "best": max}
    network, data = functools.partial(*network), functools.partial(*data)
    return Task(variants, network, data, batch=batch, **usual | changes)


def copied(length):
    batch, embed = LENGTHS[length], functools.partial(keras.Embedding, 10)
    network = sequence_network, embed, SYMBOLS, 10, (length,)
    data = generated, copying, STEPS * batch, length
    return task(sequence_layers(length), network, data, batch)


def added(length):
    batch, loss = LENGTHS[length], tf.keras.losses.MeanSquaredError()
    network = sequence_network, keras.Dense, 1, 1, (length, 2)
    data = generated, adding, STEPS * batch, length
    layers = sequence_layers(length)
    return task(layers, network, data, batch, loss=loss, score=near)


def recalled(pairs, layers=None):
    network = sequence_network, embedded_pairs, RECALLED, 64, (RECALLED,)
    data = generated, recall, STEPS * 32, RECALLED, pairs
    return task(layers or sequence_layers(RECALLED, "recall"), network, data)


def read_digits():
    network = sequence_network, keras.Dense, 1, 10, (64, 1)
    loss = protocol.cross_entropy
    return task(sequence_layers(64), network, (digits_data,), loss=loss)


def found_paths(size, length):
    network, data = (image_network, size), (generated, pathfinder, 9600)
    settings = {"steps": 2 * STEPS, "loss": protocol.cross_entropy}
    return task(image_layers(size), network, (*data, size, length), **settings)


def tasks():
    """Yields tasks by name; the first of a kind searches for the others."""
    lengths, pairs = [(x,) for x in LENGTHS], ((SOME,), (FEW,), (MANY,))
    for kind, make, sizes in (
        ("copying", copied, lengths),
        ("adding", added, lengths),
        ("recall", recalled, pairs),
        ("keys", functools.partial(recalled, layers=KEYED), pairs),
        ("digits", read_digits, [()]),
    ):
        names = [", ".join([kind, *map(str, size)]) for size in sizes]
        for name, size in zip(names, sizes, strict=True):
            searched = names[0] if name != names[0] else ""
            yield name, make(*size)._replace(searched=searched)
    for size in PATHS:  # each searches: its length decides what is learned
        yield ", ".join(["pathfinder", *map(str, size)]), found_paths(*size)


TASKS = dict(tasks())


@records.script("long_range", seeds=3, steps=0, costs=False, seconds=60.0)
def main(recorder, options):
    record = protocol.record_costs if options.costs else protocol.compare
    record(TASKS, recorder, options)
