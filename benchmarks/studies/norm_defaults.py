"""Compares defaults of batch normalization's moving statistics.

    python -m benchmarks.studies.norm_defaults           hours
    TF_USE_LEGACY_KERAS=1 python -m benchmarks.studies.norm_defaults
    python -m benchmarks.studies.norm_defaults --only "first text" --seeds 1

Moving statistics do not change training, only what inference computes. So one
training run serves every candidate: the layers keep the statistics of the last
batch (a momentum of 0), each candidate averages them in its own way, and after
each epoch the validation images are classified with the averages of each. For
comparison they are classified with `exact` statistics: those of the weights at
that time on `EXACT` training images at once. What a candidate lacks of that
accuracy is due to its averages alone.
"""

import functools

import numpy as np
import tensorflow as tf

from benchmarks import records
from benchmarks.studies import runs
from benchmarks.views.studies import FIRST_EPOCH
from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf.environment import KERAS_3

EXACT = 384  # training images of the exact statistics
BATCHES = (8, 32, 256)
KERAS_NORM = tf.keras.layers.BatchNormalization

# The momentum of the package's layers and that of Keras' own, and what the
# averages start from: mean 0 and variance 1, as Keras; the statistics of the
# "first" batch; "debiased", divided by the sum of their weights, as Adam's;
# "implied", for queries the variance 1 / key_dim that their initializer gives.
CANDIDATES = {
    "0.99": (0.99, 0.99, ""),
    "0.9": (0.9, 0.9, ""),
    "0.9, Keras' own 0.99": (0.9, 0.99, ""),
    "0.99 from the first batch": (0.99, 0.99, "first"),
    "0.99 debiased": (0.99, 0.99, "debiased"),
    "0.99 from the initializers": (0.99, 0.99, "implied"),
    "0.9 from the first batch": (0.9, 0.9, "first"),
    "0.9 from the initializers": (0.9, 0.9, "implied"),
}


def digits(size=None, scale=1.0):
    """Digits `(n, size, size, 1)` in [0, scale], and their labels."""
    images, labels = runs.digits(scale)
    if size:
        images = tf.image.resize(images, [size, size]).numpy()
    return images, labels


def digit_sequences():
    """Digits as sequences of 64 levels of gray, and the level that follows."""
    x = digits(scale=16.0)[0].reshape(-1, 64).astype(np.int32)
    return x[:, :-1], x[:, 1:]


def texts(count=2000, length=24, words=1000, marked=20):
    """Made texts: which of two sets of words has more words in a text."""
    rng = np.random.default_rng(0)
    x = rng.integers(2 * marked + 1, words, [count, length])
    is_marked = rng.random(x.shape) < 0.5
    x = np.where(is_marked, rng.integers(1, 2 * marked + 1, x.shape), x)
    lengths = rng.integers(length // 2, length + 1, [count, 1])
    x = np.where(np.arange(length) < lengths, x, 0).astype(np.int32)
    first = np.sum((x > 0) & (x <= marked), axis=1)
    second = np.sum((x > marked) & (x <= 2 * marked), axis=1)
    return x, (first > second).astype(np.int32)


def images_of(size, parts):
    """A classifier of digits, from the layers between pixels and the mean."""
    pool = tf.keras.layers.GlobalAveragePooling2D()
    ends = [pool, tf.keras.layers.Dense(10)]
    return tf.keras.Sequential([tf.keras.Input((size, size, 1)), *parts, *ends])


def words_of(length, words, filters, parts, **layer):
    """A lambda layer between embedded words and further layers."""
    embedding = tf.keras.layers.Embedding
    return tf.keras.Sequential(
        [
            tf.keras.Input((length,), dtype="int32"),
            embedding(words, filters, mask_zero=length is None),
            layers.LambdaLayer(num_heads=4, key_dim=16, scope=31, **layer),
            tf.keras.layers.LayerNormalization(),
            *parts,
        ]
    )


def conv(filters, **arguments):
    return tf.keras.layers.Conv2D(filters, 3, padding="same", **arguments)


def normalized(layer, norm=layers.BatchNormalization):
    """A layer, its normalization and an activation."""
    return [layer, norm(), tf.keras.layers.ReLU()]


def lambda_convolutions():
    """Two lambda convolutions of other widths where strided ones stood."""
    parts = [conv(16, strides=2, activation="relu")]
    for filters, key_dim in ((24, 8), (80, 32)):
        layer = layers.LambdaConv(
            filters, 7, strides=2, num_heads=8, key_dim=key_dim
        )
        parts += [*normalized(layer), *normalized(conv(filters))]
    return images_of(28, parts)


def convolutions():
    """Convolutions and Keras' batch normalization, no layer of ours."""
    parts = []
    for filters in (16, 32, 64):
        parts += normalized(conv(filters, strides=2), KERAS_NORM)
    return images_of(28, parts)


def first_image():
    """The first image of layers.md, with Keras' own normalization."""
    layer = layers.LambdaLayer(num_heads=4, key_dim=16, scope=7)
    first = conv(32, strides=2, activation="relu")
    return images_of(28, [first, *normalized(layer, KERAS_NORM)])


def readme_cell():
    layer = layers.LambdaLayer(64, num_heads=4, key_dim=16, scope=7)
    return images_of(8, [conv(32, activation="relu"), *normalized(layer)])


def attention():
    """`RelativeAttention` and the package's batch normalization."""
    layer = layers.RelativeAttention(num_heads=4, scope=None)
    return images_of(28, normalized(conv(32, strides=4)) + normalized(layer))


def first_text():
    pool = tf.keras.layers.GlobalAveragePooling1D()
    return words_of(None, 1000, 64, [pool, tf.keras.layers.Dense(2)])


def causal_model():
    """A causal layer that predicts the next element."""
    dense = tf.keras.layers.Dense
    parts = [dense(64, activation="relu"), dense(17)]
    return words_of(63, 17, 32, parts, causal=True)


LOGITS = {"classifier_activation": None}
SMALL = {"input_shape": (32, 32, 1), "classes": 10, **LOGITS}
# LambdaResNet-50 for small images, a quarter as wide.
NARROW = {
    "widths": (16, 32, 64, 128),
    "stem_filters": (8, 8, 16, 16),
    "stem_strides": (1, 1, 1, 2),
}
# What makes a model, and its data. A large batch makes few updates of few
# images: steps of an epoch at most, and epochs of each of `BATCHES`.
LAYERS, NETWORKS = (50, (4, 5, 10)), (20, (4, 4, 6))
DIGITS = {
    size: functools.partial(digits, size, scale)
    for size, scale in ((28, 1.0), (32, 255.0), (None, 255.0))
}
TASKS = {
    "README's cell": (readme_cell, digits, *LAYERS),
    "first image": (first_image, DIGITS[28], *LAYERS),
    "first text": (first_text, texts, *LAYERS),
    "causal": (causal_model, digit_sequences, *LAYERS),
    "LambdaConv": (lambda_convolutions, DIGITS[28], *LAYERS),
    "RelativeAttention": (attention, DIGITS[28], *LAYERS),
    "convolutions alone": (convolutions, DIGITS[28], *LAYERS),
    **{
        name: (
            functools.partial(getattr(models, name), **arguments),
            DIGITS[arguments.get("input_shape", [None])[0]],
            *NETWORKS,
        )
        for name, arguments in {
            "LambdaResNetSmall": LOGITS,
            "LambdaResNet50": SMALL | NARROW,
            "LambdaMobileNetV2": SMALL,
        }.items()
    },
}


def norms(model):
    """Every batch normalization of a model, with the key_dim of queries."""
    for layer in model.layers:
        if isinstance(layer, KERAS_NORM):
            yield layer, None
        if norm := getattr(layer, "query_norm", None):
            yield norm, layer.key_dim
        if norm := getattr(layer, "value_norm", None):
            yield norm, None


class Averages(tf.keras.callbacks.Callback):
    """Averages batch statistics in many ways; validates with each."""

    def __init__(self, network, x, validation):
        super().__init__()
        self._x, self._validation = x, validation
        self._norms = list(norms(network))
        self._logits = tf.function(lambda x: network(x, training=False))
        self._collect = tf.function(lambda x: network(x, training=True))
        self._steps, self._values, self.epochs = 0, {}, []
        for norm, _ in self._norms:
            norm.momentum = 0.0  # it keeps the statistics of the last batch

    def on_train_batch_end(self, batch, logs=None):
        self._steps += 1
        for name, (*_, start) in CANDIDATES.items():
            for norm, key_dim in self._norms:
                pair = norm.moving_mean.numpy(), norm.moving_variance.numpy()
                firsts = {"first": pair, "debiased": (0.0, 0.0)}
                if key_dim:
                    firsts["implied"] = 0.0, 1.0 / key_dim
                first = firsts.get(start, (0.0, 1.0))
                old = self._values.get((name, id(norm)), first)
                keep = _momentum(name, norm)
                self._values[name, id(norm)] = [
                    keep * x + (1.0 - keep) * y
                    for x, y in zip(old, pair, strict=True)
                ]

    def on_epoch_end(self, epoch, logs=None):
        row = {"training": round(float(logs["accuracy"]), 3)}
        for name, (*_, start) in CANDIDATES.items():
            for norm, _ in self._norms:
                mean, variance = self._values[name, id(norm)]
                scale = 1.0
                if start == "debiased":
                    scale -= _momentum(name, norm) ** self._steps
                norm.moving_mean.assign(mean / scale)
                norm.moving_variance.assign(variance / scale)
            row[name] = self._validate()
        self._collect(self._x[:EXACT])
        row["exact"] = self._validate()
        self.epochs.append(row)

    def _validate(self):
        x, y = self._validation
        is_right = self._logits(x).numpy().argmax(-1) == y
        return round(float(is_right.mean()), 3)


def _momentum(name, norm):
    ours, keras, _ = CANDIDATES[name]
    return keras if type(norm) is KERAS_NORM else ours


def train(task, batch_size, seed, short=False):
    """Accuracies after each epoch of one of `TASKS`, from a seed's weights."""
    build, load, steps, epochs = TASKS[task]
    x, y = load()
    last = 4 * len(x) // 5  # what follows validates
    steps = 1 if short else min(steps, last // batch_size)
    tf.keras.utils.set_random_seed(seed)
    model = build()
    model.compile(
        tf.keras.optimizers.Adam(),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )
    averages = Averages(model, x[:last], (x[last:], y[last:]))
    model.fit(
        x[: batch_size * steps],
        y[: batch_size * steps],
        batch_size=batch_size,
        epochs=FIRST_EPOCH if short else epochs[BATCHES.index(batch_size)],
        callbacks=[averages],
        verbose=0,
    )
    tf.keras.backend.clear_session()
    return averages.epochs


def main(arguments=None):
    choices = {"batches": BATCHES, "short": False}
    recorder, options = records.start(
        "norm_defaults", __doc__, arguments, seeds=3, **choices
    )
    cases = records.cases(
        keras=["Keras 3" if KERAS_3 else "Keras 2"],
        task=TASKS,
        batch=options.batches,
        seed=range(options.seeds),
        **({"short": [True]} if options.short else {}),
    )

    def measure(case):
        _, *place = case.values()  # which Keras it is
        return {"epochs": train(*place)}

    recorder.fill(cases, measure)


if __name__ == "__main__":
    main()
