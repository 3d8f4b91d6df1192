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

import dataclasses
import os
from collections.abc import Callable
from collections.abc import Mapping

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from benchmarks import records
from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf.environment import KERAS_3

EXACT = 384  # training images of the exact statistics
FIRST_EPOCH = 3  # from which on validation must follow training


@dataclasses.dataclass(frozen=True)
class Candidate:
    """How the statistics of batches become those of inference.

    Attributes:
        momentum: of the package's layers and networks.
        keras_momentum: of `tf.keras.layers.BatchNormalization`; None for
            `momentum`.
        start: "default" for mean 0 and variance 1, as Keras starts; "first"
            for the statistics of the first batch; "debiased" for averages that
            are divided by the sum of their weights, as Adam's; "implied" for
            the default, but queries with the variance 1 / key_dim that their
            initializer gives them.
    """

    momentum: float
    keras_momentum: float | None = None
    start: str = "default"

    def momentum_of(self, norm):
        is_keras = type(norm) is tf.keras.layers.BatchNormalization
        if is_keras and self.keras_momentum is not None:
            return self.keras_momentum
        return self.momentum

    def first(self, norm, key_dim):
        """Mean and variance before the first batch; numbers or None."""
        if self.start == "first":
            return None
        if self.start == "debiased":
            return 0.0, 0.0
        is_implied = self.start == "implied" and key_dim
        return 0.0, 1.0 / key_dim if is_implied else 1.0


CANDIDATES = {
    "0.99": Candidate(0.99),
    "0.9": Candidate(0.9),
    "0.9, Keras' own 0.99": Candidate(0.9, keras_momentum=0.99),
    "0.99 from the first batch": Candidate(0.99, start="first"),
    "0.99 debiased": Candidate(0.99, start="debiased"),
    "0.99 from the initializers": Candidate(0.99, start="implied"),
    "0.9 from the first batch": Candidate(0.9, start="first"),
    "0.9 from the initializers": Candidate(0.9, start="implied"),
}


@dataclasses.dataclass(frozen=True)
class Data:
    """What a network is trained on, and what validates it."""

    x: np.ndarray
    y: np.ndarray
    validation_x: np.ndarray
    validation_y: np.ndarray


def digits(size=None, scale=1.0):
    """Handwritten digits `(n, size, size, 1)`, in [0, scale]."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - an extra

    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype(np.float32) / 16.0 * scale
    if size:
        images = tf.image.resize(images, [size, size]).numpy()
    return Data(images[:1437], labels[:1437], images[1437:], labels[1437:])


def digit_sequences():
    """Digits as sequences of 64 levels of gray, and the level that follows."""
    data = digits(scale=16.0)
    x, validation_x = (
        part.reshape(-1, 64).astype(np.int32)
        for part in (data.x, data.validation_x)
    )
    return Data(x[:, :-1], x[:, 1:], validation_x[:, :-1], validation_x[:, 1:])


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
    y, last = (first > second).astype(np.int32), count - 400
    return Data(x[:last], y[:last], x[last:], y[last:])


def readme_cell():
    """The network of README's cell."""
    return tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.LambdaLayer(64, num_heads=4, key_dim=16, scope=7),
            layers.BatchNormalization(),
            tf.keras.layers.ReLU(),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense(10),
        ]
    )


def first_image():
    """The first image of layers.md, with Keras' own normalization."""
    images = tf.keras.Input((28, 28, 1))
    x = tf.keras.layers.Conv2D(
        32, 3, strides=2, padding="same", activation="relu"
    )(images)
    x = layers.LambdaLayer(num_heads=4, key_dim=16, scope=7)(x)
    x = tf.keras.layers.BatchNormalization()(x)
    return _image_classifier(images, tf.keras.layers.ReLU()(x))


def first_text():
    """The first text of layers.md."""
    words = tf.keras.Input((None,), dtype="int32")
    x = tf.keras.layers.Embedding(1000, 64, mask_zero=True)(words)
    x = layers.LambdaLayer(num_heads=4, key_dim=16, scope=31)(x)
    x = tf.keras.layers.LayerNormalization()(x)
    x = tf.keras.layers.GlobalAveragePooling1D()(x)
    return tf.keras.Model(words, tf.keras.layers.Dense(2)(x))


def causal_model():
    """A causal layer that predicts the next element."""
    tokens = tf.keras.Input((63,), dtype="int32")
    x = tf.keras.layers.Embedding(17, 32)(tokens)
    x = layers.LambdaLayer(num_heads=4, key_dim=16, scope=31, causal=True)(x)
    x = tf.keras.layers.LayerNormalization()(x)
    x = tf.keras.layers.Dense(64, activation="relu")(x)
    return tf.keras.Model(tokens, tf.keras.layers.Dense(17)(x))


def lambda_convolutions():
    """Two lambda convolutions of other widths where strided ones stood."""
    images = tf.keras.Input((28, 28, 1))
    x = tf.keras.layers.Conv2D(
        16, 3, strides=2, padding="same", activation="relu"
    )(images)
    for filters, key_dim in ((24, 8), (80, 32)):
        x = layers.LambdaConv(
            filters, 7, strides=2, num_heads=8, key_dim=key_dim
        )(x)
        x = layers.BatchNormalization()(x)
        x = tf.keras.layers.ReLU()(x)
        x = tf.keras.layers.Conv2D(filters, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = tf.keras.layers.ReLU()(x)
    return _image_classifier(images, x)


def attention():
    """`RelativeAttention` and the package's batch normalization."""
    images = tf.keras.Input((28, 28, 1))
    x = tf.keras.layers.Conv2D(32, 3, strides=4, padding="same")(images)
    x = layers.BatchNormalization()(x)
    x = tf.keras.layers.ReLU()(x)
    x = layers.RelativeAttention(num_heads=4, scope=None)(x)
    x = layers.BatchNormalization()(x)
    return _image_classifier(images, tf.keras.layers.ReLU()(x))


def convolutions():
    """Convolutions and Keras' batch normalization, no layer of ours."""
    images = tf.keras.Input((28, 28, 1))
    x = images
    for filters in (16, 32, 64):
        x = tf.keras.layers.Conv2D(filters, 3, strides=2, padding="same")(x)
        x = tf.keras.layers.BatchNormalization()(x)
        x = tf.keras.layers.ReLU()(x)
    return _image_classifier(images, x)


def _image_classifier(images, x):
    x = tf.keras.layers.GlobalAveragePooling2D()(x)
    return tf.keras.Model(images, tf.keras.layers.Dense(10)(x))


def small_network():
    return models.LambdaResNetSmall(classifier_activation=None)


def large_network():
    """LambdaResNet-50 for small images, a quarter as wide."""
    return models.LambdaResNet50(
        input_shape=(32, 32, 1),
        classes=10,
        classifier_activation=None,
        widths=(16, 32, 64, 128),
        stem_filters=(8, 8, 16, 16),
        stem_strides=(1, 1, 1, 2),
    )


def mobile_network():
    return models.LambdaMobileNetV2(
        input_shape=(32, 32, 1), classes=10, classifier_activation=None
    )


@dataclasses.dataclass(frozen=True)
class Task:
    """A network, its data, and how long it is trained.

    Attributes:
        build: makes the model.
        load: makes the `Data`.
        max_steps: of an epoch.
        epochs: by batch size: a large one makes few updates of few images.
    """

    build: Callable[[], tf.keras.Model]
    load: Callable[[], Data]
    max_steps: int = 50
    epochs: Mapping[int, int] = dataclasses.field(
        default_factory=lambda: {8: 4, 32: 5, 256: 10}
    )


def _network(build, load):
    return Task(build, load, max_steps=20, epochs={8: 4, 32: 4, 256: 6})


TASKS = {
    "README's cell": Task(readme_cell, digits),
    "first image": Task(first_image, lambda: digits(28)),
    "first text": Task(first_text, texts),
    "causal": Task(causal_model, digit_sequences),
    "LambdaConv": Task(lambda_convolutions, lambda: digits(28)),
    "RelativeAttention": Task(attention, lambda: digits(28)),
    "convolutions alone": Task(convolutions, lambda: digits(28)),
    "LambdaResNetSmall": _network(small_network, lambda: digits(None, 255.0)),
    "LambdaResNet50": _network(large_network, lambda: digits(32, 255.0)),
    "LambdaMobileNetV2": _network(mobile_network, lambda: digits(32, 255.0)),
}
BATCHES = (8, 32, 256)


def norms(model):
    """Every batch normalization of a model, with the key_dim of queries."""
    for layer in model.layers:
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            yield layer, None
        for name in ("query_norm", "value_norm"):
            norm = getattr(layer, name, None)
            if norm is not None:
                yield norm, layer.key_dim if name == "query_norm" else None


class Averages(tf.keras.callbacks.Callback):
    """Averages batch statistics in many ways; validates with each."""

    def __init__(self, network, data):
        super().__init__()
        self._network, self._data = network, data
        self._steps = 0
        self._values = {
            name: [candidate.first(*pair) for pair in norms(network.model)]
            for name, candidate in CANDIDATES.items()
        }
        self.epochs = []

    def on_train_batch_end(self, batch, logs=None):
        self._steps += 1
        found = [
            (norm, norm.moving_mean.numpy(), norm.moving_variance.numpy())
            for norm, _ in norms(self._network.model)
        ]
        for name, candidate in CANDIDATES.items():
            values = self._values[name]
            for i, (norm, mean, variance) in enumerate(found):
                keep = candidate.momentum_of(norm)
                old = values[i] or (mean, variance)
                values[i] = (
                    keep * old[0] + (1.0 - keep) * mean,
                    keep * old[1] + (1.0 - keep) * variance,
                )

    def on_epoch_end(self, epoch, logs=None):
        row = {"training": round(float(logs["accuracy"]), 3)}
        self._network.collect(self._data.x[:EXACT])
        row["exact"] = self._validate()
        for name, candidate in CANDIDATES.items():
            pairs = zip(
                norms(self._network.model), self._values[name], strict=True
            )
            for (norm, _), value in pairs:
                scale = 1.0
                if candidate.start == "debiased":
                    scale -= candidate.momentum_of(norm) ** self._steps
                norm.moving_mean.assign(value[0] / scale)
                norm.moving_variance.assign(value[1] / scale)
            row[name] = self._validate()
        self.epochs.append(row)

    def _validate(self):
        logits = self._network.logits(self._data.validation_x).numpy()
        is_right = logits.argmax(-1) == self._data.validation_y
        return round(float(is_right.mean()), 3)


class Network:
    """A compiled model, traced once, that starts anew with every seed."""

    def __init__(self, task):
        self._task = task
        self.model = task.build()
        for norm, _ in norms(self.model):
            norm.momentum = 0.0  # it keeps the statistics of the last batch
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build(self.model.trainable_variables)
        variables = optimizer.variables
        self._state = variables() if callable(variables) else variables
        self._initial = [variable.numpy() for variable in self._state]
        self.model.compile(
            optimizer,
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            jit_compile=False,
        )
        self.logits = tf.function(lambda x: self.model(x, training=False))
        self.collect = tf.function(lambda x: self.model(x, training=True))

    def train(self, data, batch_size, seed, short=False):
        """Accuracies after each epoch, from the weights of a seed."""
        max_steps = 1 if short else self._task.max_steps
        tf.keras.utils.set_random_seed(seed)
        self.model.set_weights(self._task.build().get_weights())
        for variable, value in zip(self._state, self._initial, strict=True):
            variable.assign(value)
        averages = Averages(self, data)
        count = batch_size * min(max_steps, len(data.x) // batch_size)
        self.model.fit(
            data.x[:count],
            data.y[:count],
            batch_size=batch_size,
            epochs=FIRST_EPOCH if short else self._task.epochs[batch_size],
            callbacks=[averages],
            verbose=0,
        )
        return averages.epochs


def main(arguments=None):
    parser = records.parser(__doc__, seeds=3)
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument(
        "--short", action="store_true", help="a step an epoch: proves it runs"
    )
    options = parser.parse_args(arguments)
    recorder = records.Recorder("norm_defaults", options)
    keras = "Keras 3" if KERAS_3 else "Keras 2"
    for task in (task for task in TASKS if options.only in task):
        cases = [
            {"keras": keras, "task": task, "batch": batch, "seed": seed}
            | ({"short": True} if options.short else {})
            for batch in options.batches
            for seed in range(options.seeds)
        ]
        cases = [case for case in cases if not recorder.has(case)]
        if not cases:
            continue
        network, data = Network(TASKS[task]), TASKS[task].load()
        for case in cases:
            pair = case["batch"], case["seed"]
            epochs = network.train(data, *pair, options.short)
            recorder.append(case, epochs=epochs)
            print(f"{case}: {epochs[-1]}", flush=True)
        tf.keras.backend.clear_session()


if __name__ == "__main__":
    main()
