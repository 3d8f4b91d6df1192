"""Compares lambda layers with convolutions, attention and a GRU at four tasks.

    python -m benchmarks.studies.mixers --only segmentation

Of every network only the layer differs that mixes positions; the protocol is
docs/study.md.
"""

import functools
import math
import pathlib
import sysconfig
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks import records
from benchmarks.studies import runs
from lambdanet_tf import analysis
from lambdanet_tf.environment import require
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)  # the grid is within
SEARCH_SEED, WARM_UP = 0, 0.05
keras = tf.keras.layers


class Variant(NamedTuple):
    """A layer that mixes positions, and the network that it stands in."""

    layer: Callable  # of width, start and place
    widths: tuple[int, ...]  # of the network: all variants cost the same
    starts: tuple  # initial weights to try: deviation or Keras' name


def mixing(kind, **arguments):
    """Returns what makes a layer of ours whose embeddings start somewhere."""

    def layer(width, start, _):
        # A new one: an instance that layers share gives them equal weights.
        if isinstance(start, float):
            start = tf.keras.initializers.RandomNormal(stddev=start)
        return kind(width, embeddings_initializer=start, **arguments)

    return layer


lambda_layer = functools.partial(mixing, LambdaLayer, num_heads=4)
attention = functools.partial(mixing, RelativeAttention, num_heads=4)


def convolution(width, start="glorot_uniform", _=None):
    return keras.Conv2D(
        width, 3, padding="same", use_bias=False, kernel_initializer=start
    )


def gru(width, start, _):
    return keras.GRU(width, return_sequences=True, recurrent_initializer=start)


def causal_convolution(size):
    return lambda width, start, place: keras.Conv1D(
        width,
        size,
        padding="causal",
        dilation_rate=(1, 8)[place],
        kernel_initializer=start,
    )


def keras_attention(width, _, __):
    layer = keras.MultiHeadAttention(4, width // 4)
    return lambda x: layer(x, x, use_causal_mask=True)


# Of the embeddings: the paper's N(0, 1), and a tenth of its deviation; in
# attention N(0, 1 / k), and the same small one. None is the layer's default.
LAMBDA, ATTENTION = (1.0, 0.1), (None, 0.1)
KERNEL = "glorot_uniform", "he_normal"


# Segmentation: scenes of scikit-learn's digits, a class for each pixel.
SIZE, CLASSES = 24, 11


@functools.cache
def segmentation_data():
    pictures, targets = runs.digits()
    order = np.random.default_rng(0).permutation(len(pictures))

    def scenes(count, members, seed):
        rng = np.random.default_rng(seed)
        images = rng.uniform(0, 0.35, [count, SIZE, SIZE]).astype("float32")
        labels = np.zeros([count, SIZE, SIZE], "int32")
        for image, label in zip(images, labels, strict=True):
            for index in rng.choice(members, rng.integers(2, 5)):
                y, x = rng.integers(0, SIZE - 8, 2)
                ink = pictures[index, ..., 0] * rng.uniform(0.5, 1.0)
                drawn = ink > 0.2
                image[y : y + 8, x : x + 8][drawn] = ink[drawn]
                label[y : y + 8, x : x + 8][drawn] = targets[index] + 1
        return images[..., None], labels

    return {
        "training": scenes(2000, order[:1100], seed=1),
        "validation": scenes(300, order[1100:1400], seed=2),
        "test": scenes(600, order[1400:], seed=3),
    }


def unet(variant, start):
    """Of two layers a block; the second is the variant's at low resolution."""
    first, middle, last = variant.widths

    def block(x, width, place=None):
        for mixes in (False, place is not None):
            layer = convolution(width)
            if mixes:
                layer = variant.layer(width, start, place)
            x = keras.BatchNormalization(momentum=0.9)(layer(x))
            x = keras.ReLU()(x)
        return x

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


class Sinusoids(keras.Layer):
    """Adds positions, for layers that have none of their own."""

    def call(self, inputs):
        _, length, width = inputs.shape
        rates = 1e4 ** -np.linspace(0, 1, width // 2)
        angles = np.arange(length)[:, None] * rates
        waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
        return inputs + waves.astype("float32")


def decoder(context, width, blocks, variant, start):
    (hidden,) = variant.widths
    inputs = tf.keras.Input((context,), dtype="int32")
    x = keras.Embedding(256, width)(inputs)
    if variant.layer is keras_attention:
        x = Sinusoids()(x)
    for place in range(blocks):
        y = variant.layer(width, start, place)(keras.LayerNormalization()(x))
        x = keras.Add()([x, y])
        y = keras.Dense(hidden, "gelu")(keras.LayerNormalization()(x))
        x = keras.Add()([x, keras.Dense(width)(y)])
    logits = keras.Dense(256)(keras.LayerNormalization()(x))
    return tf.keras.Model(inputs, logits)


cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def bits(targets, logits):
    return float(cross_entropy(targets, logits)) / math.log(2)


class Task(NamedTuple):
    """What is learned, in so many steps, from batches of some size."""

    variants: dict[str, Variant]
    network: Callable  # of a variant and a start
    data: Callable  # to inputs and targets by part
    steps: int
    batch: int
    loss: Callable = cross_entropy  # Keras', of targets and outputs
    score: Callable = bits  # of targets and outputs of all examples
    best: Callable = min  # or max, of scores
    rates: tuple[float, ...] = RATES[1:4]  # of the search


def of_bytes(variants, context, width, blocks, steps):
    network = functools.partial(decoder, context, width, blocks)
    data = functools.partial(bytes_data, context)
    return Task(variants, network, data, steps, batch=8)


def past(key_dim, scope=None):
    return lambda_layer(key_dim=key_dim, scope=scope, causal=True)


# Initial weights of segmentation and of the larger decoder: what the searches
# of 300 updates and of bytes chose.
SCOPE_7 = Variant(lambda_layer(key_dim=16, scope=7), (12, 20, 96), LAMBDA[:1])
SEGMENTATION = {
    "convolution 3x3": Variant(convolution, (12, 28, 40), KERNEL[1:]),
    "lambda, scope 7": SCOPE_7,
    "lambda, small embeddings": SCOPE_7._replace(starts=LAMBDA[1:]),
    "attention 7x7": Variant(attention(scope=7), (12, 24, 72), ATTENTION[:1]),
    "attention, global": Variant(attention(), (12, 20, 80), ATTENTION[:1]),
}
FORECAST = {
    "GRU": Variant(gru, (20, 2), ("orthogonal", "glorot_uniform")),
    "causal convolution": Variant(causal_convolution(9), (17, 2), KERNEL),
    "lambda, a year": Variant(past(8, 2 * YEAR + 1), (32, 2), LAMBDA),
}
BYTES = {
    "lambda, scope 63": Variant(past(8, 63), (108,), LAMBDA),
    "lambda, global": Variant(past(8), (84,), LAMBDA),
    "attention, global": Variant(attention(causal=True), (60,), ATTENTION),
    "causal convolution": Variant(causal_convolution(5), (60,), KERNEL),
}
DECODER = {
    "lambda, scope 127": Variant(past(16, 127), (704,), LAMBDA[1:]),
    "attention, global": Variant(keras_attention, (512,), ATTENTION[:1]),
}
TASKS = {
    "segmentation": Task(
        SEGMENTATION,
        network=unet,
        data=segmentation_data,
        score=mean_iou,
        best=max,
        rates=RATES[2:5],
        steps=900,
        batch=16,
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


def train(task, variant, rate, start, seed, steps):
    """Returns a network trained by a rate that warms up, then falls."""
    tf.keras.utils.set_random_seed(seed)
    model = task.network(variant, start)
    model.compile(
        tf.keras.optimizers.Adam(rate, global_clipnorm=1.0), task.loss
    )
    inputs, targets = task.data()["training"]
    rng = np.random.default_rng(seed)
    for step in range(steps):
        warmed = min(1.0, (step + 1) / (WARM_UP * steps))
        cosine = 0.5 + 0.5 * math.cos(math.pi * step / steps)
        model.optimizer.learning_rate.assign(rate * warmed * cosine)
        chosen = rng.integers(0, len(inputs), task.batch)
        model.train_on_batch(inputs[chosen], targets[chosen])
    return model


def measure(case):
    task = TASKS[case["task"]]
    settings = (case[x] for x in ("rate", "start", "seed", "steps"))
    begin = time.perf_counter()
    model = train(task, task.variants[case["variant"]], *settings)
    seconds = time.perf_counter() - begin
    part = {"search": "validation", "final": "test"}[case["part"]]
    inputs, targets = task.data()[part]
    outputs = model.predict(inputs, batch_size=64, verbose=0)
    score = task.score(targets, outputs)
    # Operations of products, 2 per multiply-add; a step is three passes.
    forward = analysis.analyze(model, executed=False).total("flops")
    tf.keras.backend.clear_session()
    return {
        "score": score if math.isfinite(score) else None,
        "examples": len(inputs),
        "parameters": analysis.trainable_parameters(model),
        "flops": 3 * forward,
        "seconds": seconds,
    }


@records.script("mixers", seeds=3, steps=0)
def main(recorder, options):
    for name, task in TASKS.items():
        steps, chosen = options.steps or task.steps, {}

        def score(variant, part, seed, rate, start, *, name=name, steps=steps):
            case = {"task": name, "variant": variant, "steps": steps}
            case |= {"part": part, "rate": rate, "start": start, "seed": seed}
            return recorder.get(case, measure)["score"]

        for title, variant in task.variants.items():
            if options.only in f"{name}, {title}":
                search = functools.partial(score, title, "search", SEARCH_SEED)
                ways = search, task.best, variant.starts
                chosen[title] = runs.search(RATES, task.rates, *ways)
        for seed in range(1, options.seeds + 1):
            for title, choice in chosen.items():
                score(title, "final", seed, *choice)
