"""Compares lambda layers with convolutions, attention and a GRU at four tasks.

    python -m benchmarks.studies.mixers --only segmentation

The protocol is that of docs/study.md.
"""

import functools
import math
import pathlib
import sysconfig

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
from lambdanet_tf.environment import require

keras = tf.keras.layers

# Segmentation: scenes of scikit-learn's digits, a class for each pixel.
SIZE, CLASSES = 24, 11


@functools.cache
def segmentation_data():
    pictures, targets = runs.digits()
    members = runs.digit_parts()

    def scenes(count, digits, seed):
        rng = np.random.default_rng(seed)
        images = rng.uniform(0, 0.35, [count, SIZE, SIZE]).astype("float32")
        labels = np.zeros([count, SIZE, SIZE], "int32")
        for image, label in zip(images, labels, strict=True):
            for index in rng.choice(digits, rng.integers(2, 5)):
                y, x = rng.integers(0, SIZE - 8, 2)
                ink = pictures[index, ..., 0] * rng.uniform(0.5, 1.0)
                drawn = ink > 0.2
                image[y : y + 8, x : x + 8][drawn] = ink[drawn]
                label[y : y + 8, x : x + 8][drawn] = targets[index] + 1
        return images[..., None], labels

    counts = {"training": 2000, "validation": 300, "test": 600}
    return {
        part: scenes(count, members[part], seed)
        for seed, (part, count) in enumerate(counts.items(), 1)
    }


def unet(is_residual, variant, start):
    """Of two layers a block; the second is the variant's at low resolution."""
    first, middle, last = variant.widths

    def block(x, width, place=None):
        x = keras.BatchNormalization(momentum=0.9)(
            protocol.convolution(width)(x)
        )
        x, layer = keras.ReLU()(x), protocol.convolution(width)
        if place is not None:
            layer = variant.layer(width, start, place)
        y = keras.BatchNormalization(momentum=0.9)(layer(x))
        return keras.ReLU()(keras.Add()([x, y]) if is_residual else y)

    inputs = tf.keras.Input((SIZE, SIZE, 1))
    high = block(inputs, first)
    low = block(keras.MaxPooling2D()(high), middle, 0)
    x = block(keras.MaxPooling2D()(low), last, 1)
    x = block(keras.Concatenate()([keras.UpSampling2D()(x), low]), middle, 2)
    x = block(keras.Concatenate()([keras.UpSampling2D()(x), high]), first)
    return tf.keras.Model(inputs, keras.Conv2D(CLASSES, 1)(x))


def mean_iou(targets, logits):
    """Returns per cent, the mean over the background and the ten digits."""
    classes, shares = logits.argmax(-1), []
    for number in range(CLASSES):
        ours, true = classes == number, targets == number
        shares.append((ours & true).sum() / max((ours | true).sum(), 1))
    return 100 * float(np.mean(shares))


# A forecast: weekly CO2 on Mauna Loa, from statsmodels.
YEAR, HORIZON, WINDOW = 52, 26, 104


@functools.cache
def forecast_data():
    """Returns changes of windows, and the moves after each of their weeks."""
    shipped = require("statsmodels.api", extra="examples").datasets.co2
    series = shipped.load_pandas().data["co2"].interpolate()
    values = series.to_numpy("float32")
    first, second = (int((series.index < x).sum()) for x in ("1985", "1990"))
    changes = np.diff(values, prepend=values[0])
    mean, scale = changes[:first].mean(), changes[:first].std()

    def windows(starts):
        weeks = starts[:, None] + np.arange(WINDOW)
        ahead = weeks[..., None] + np.arange(1, HORIZON + 1)
        moves = values[ahead] - values[weeks][..., None]
        return ((changes[weeks] - mean) / scale)[..., None], moves

    def after(begin, end):
        return windows(np.arange(begin, end - HORIZON) - WINDOW + 1)

    return {
        "training": windows(np.arange(first - WINDOW - HORIZON)),
        "validation": after(first, second),
        "test": after(second, len(values)),
    }


def series_network(variant, start):
    """Two layers with a residual connection, which nothing else mixes."""
    width, number = variant.widths
    inputs = tf.keras.Input((WINDOW, 1))
    x = keras.Dense(width)(inputs)
    for place in range(number):
        y = variant.layer(width, start, place)(keras.LayerNormalization()(x))
        x = keras.ReLU()(keras.Add()([x, y]))
    return tf.keras.Model(inputs, keras.Dense(HORIZON)(x))


def absolute_error(targets, outputs):
    """Of the weeks that have a year behind them."""
    return tf.reduce_mean(tf.abs(targets - outputs)[:, YEAR:])


def forecast_error(targets, outputs):
    return float(np.abs(targets - outputs)[:, -1].mean())


@functools.cache
def bytes_data(context):
    """Windows of Python's library; of ten files one validates, one tests."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    files = [path.read_bytes() for path in sorted(folder.glob("*.py"))]

    def windows(residues, count=None):
        chosen = (x for i, x in enumerate(files) if i % 10 in residues)
        text = np.frombuffer(b"\n".join(chosen), np.uint8)
        number = (len(text) - 1) // context
        places = np.linspace(0, number - 1, count or number).astype(int)
        places = places[:, None] * context + np.arange(context + 1)
        tokens = text[places].astype("int32")
        return tokens[:, :-1], tokens[:, 1:]

    return {
        "training": windows(range(8)),
        "validation": windows([8], 300),
        "test": windows([9], 600),
    }


def decoder(context, width, blocks, variant, start):
    inputs = tf.keras.Input((context,), dtype="int32")
    x = keras.Embedding(256, width)(inputs)
    x = protocol.residual_blocks(x, variant, start, blocks)
    return tf.keras.Model(inputs, keras.Dense(256)(x))


def bits(targets, logits):
    return float(protocol.cross_entropy(targets, logits)) / math.log(2)


def segmentation(is_residual, variants=None, steps=900, searched=""):
    return Task(
        variants or SEGMENTATION,
        network=functools.partial(unet, is_residual),
        data=segmentation_data,
        loss=protocol.cross_entropy,
        score=mean_iou,
        best=max,
        rates=protocol.RATES[2:5],
        steps=steps,
        batch=16,
        searched=searched,
    )


def of_bytes(variants, context, width, blocks, steps):
    return Task(
        variants,
        network=functools.partial(decoder, context, width, blocks),
        data=functools.partial(bytes_data, context),
        loss=protocol.cross_entropy,
        score=bits,
        steps=steps,
        batch=8,
    )


# Networks of equal widths need the same operations within 8 %, and all but the
# first have equally many weights within 5 %.
WIDTHS = (12, 32, 48)
SEGMENTATION = {
    "convolution": Variant(protocol.convolution, WIDTHS, KERNEL[1:]),
    "convolution, equal weights": Variant(
        protocol.convolution, (12, 27, 40), KERNEL[1:]
    ),
    "lambda, scope 7": Variant(
        protocol.lambda_layer(key_dim=16, scope=7), WIDTHS, LAMBDA[:1]
    ),
    "lambda, global": Variant(
        protocol.lambda_layer(key_dim=8), WIDTHS, LAMBDA[:1]
    ),
    "attention 7x7": Variant(
        protocol.attention(scope=7), WIDTHS, ATTENTION[:1]
    ),
    "attention, global": Variant(protocol.attention(), WIDTHS, ATTENTION[:1]),
}
TWO = {x: SEGMENTATION[x] for x in ("convolution", "lambda, scope 7")}
A_YEAR = Variant(protocol.past(8, 2 * YEAR + 1), (32, 2), LAMBDA)
FORECAST = {
    "GRU": Variant(protocol.gru, (20, 2), protocol.RECURRENT),
    "causal convolution": Variant(
        protocol.causal_convolution(9, (1, 8)), (17, 2), KERNEL
    ),
    "lambda, a year": A_YEAR,
    "lambda, a year, N(0, 1)": A_YEAR._replace(starts=LAMBDA[:1]),
}
SCOPE_63 = Variant(protocol.past(8, 63), (108,), LAMBDA)
BYTES = {
    "lambda, scope 63": SCOPE_63,
    "lambda, scope 63, N(0, 1)": SCOPE_63._replace(starts=LAMBDA[:1]),
    "lambda, global": Variant(protocol.past(8), (84,), LAMBDA),
    "attention, global": Variant(
        protocol.attention(causal=True), (60,), ATTENTION
    ),
    "causal convolution": Variant(
        protocol.causal_convolution(5, (1, 8)), (60,), KERNEL
    ),
}
# Initial weights of the larger decoder: what the search of bytes chose.
DECODER = {
    "lambda, scope 127": Variant(protocol.past(16, 127), (704,), LAMBDA[1:]),
    "attention, global": Variant(
        protocol.keras_attention, (512,), ATTENTION[:1]
    ),
}
TASKS = {
    "segmentation, residual": segmentation(is_residual=True),
    "segmentation, plain": segmentation(is_residual=False),
    "segmentation, residual, doubled": segmentation(
        True, TWO, 1800, "segmentation, residual"
    ),
    "segmentation, plain, doubled": segmentation(
        False, TWO, 1800, "segmentation, plain"
    ),
    "forecast": Task(
        FORECAST,
        network=series_network,
        data=forecast_data,
        loss=absolute_error,
        score=forecast_error,
        steps=200,
        batch=32,
    ),
    "bytes": of_bytes(BYTES, 128, 32, 2, steps=300),
    "decoder": of_bytes(DECODER, 256, 128, 4, steps=1800),
}


@records.script("mixers", seeds=3, steps=0)
def main(recorder, options):
    protocol.compare(TASKS, recorder, options)
