"""Compares lambda layers with convolutions, attention and a GRU at three tasks.

    python -m benchmarks.studies.mixers --only segmentation
    python -m benchmarks.studies.mixers --steps 20 --seeds 1   # a first look

Of every network only the layer differs that mixes positions. `docs/mixers.md`
has the protocol: a search of the same size for each layer, decided by
validation data and one seed, then runs of other seeds that see the test data
once. Cases that have a record are not run again.
"""

import dataclasses
import functools
import math
import pathlib
import sysconfig
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from benchmarks import records
from benchmarks.studies import runs
from examples import language_model as example
from lambdanet_tf import analysis
from lambdanet_tf.environment import require
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)  # the grid is within
SEARCH_SEED, WARM_UP = 0, 0.05
keras = tf.keras.layers


@dataclasses.dataclass(frozen=True)
class Variant:
    """A layer that mixes positions, and the network that it stands in."""

    # Function of width, start and place; of the example's decoder its kind.
    layer: Callable | str
    widths: tuple[int, ...]  # of the network: all variants cost the same
    starts: tuple  # initial weights to try: deviation or Keras' name
    rate: float | None = None  # of an ablation, which searches nothing


@dataclasses.dataclass(frozen=True)
class Task:
    """What is learned, in so many steps, from batches of some size."""

    variants: dict[str, Variant]
    network: Callable  # of a variant and a start
    data: Callable  # to inputs and targets by part
    loss: Callable  # of targets and answers
    score: Callable  # of targets and answers of all examples
    best: Callable  # max or min, of scores
    rates: tuple[float, ...]  # of the search
    steps: int
    batch: int


def mixing(kind, **arguments):
    """What makes a layer of ours whose embeddings start somewhere."""

    def layer(width, start, _):
        # A new one: an instance that layers share gives them equal weights.
        if isinstance(start, float):
            start = tf.keras.initializers.RandomNormal(stddev=start)
        return kind(width, embeddings_initializer=start, **arguments)

    return layer


lambda_layer = functools.partial(mixing, LambdaLayer)
attention = functools.partial(mixing, RelativeAttention)


def ablation(settings, widths, start, rate, changes):
    """Variants of lambda layers that change one setting each."""
    changes |= {
        "1 head": {"num_heads": 1},
        "content only": {"use_position": False, "scope": None},
        "position only": {"use_content": False},
        "keys of L2": {"key_normalization": "l2"},
    }
    return {
        f"lambda, {name}": Variant(
            lambda_layer(**{**settings, **change}), widths, (start,), rate
        )
        for name, change in changes.items()
    }


# Of the embeddings: the paper's N(0, 1), and a tenth of its deviation; in
# attention N(0, 1 / k), and the same small one. None is the layer's default.
LAMBDA, ATTENTION = (1.0, 0.1), (None, 0.1)
KERNEL = "glorot_uniform", "he_normal"


# Segmentation: scenes of scikit-learn's digits, a class for each pixel.

SIZE, CLASSES = 24, 11


@functools.cache
def segmentation_data():
    digits = require("sklearn.datasets", extra="data").load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))

    def scenes(count, members, seed):
        rng = np.random.default_rng(seed)
        images = rng.uniform(0, 0.35, [count, SIZE, SIZE]).astype("float32")
        labels = np.zeros([count, SIZE, SIZE], "int32")
        for image, label in zip(images, labels, strict=True):
            for index in rng.choice(members, rng.integers(2, 5)):
                y, x = rng.integers(0, SIZE - 8, 2)
                ink = digits.images[index] / 16 * rng.uniform(0.5, 1.0)
                drawn = ink > 0.2
                image[y : y + 8, x : x + 8][drawn] = ink[drawn]
                label[y : y + 8, x : x + 8][drawn] = digits.target[index] + 1
        return images[..., None], labels

    return {
        "training": scenes(2000, order[:1100], seed=1),
        "validation": scenes(300, order[1100:1400], seed=2),
        "test": scenes(600, order[1400:], seed=3),
    }


def unet(variant, start):
    """Of two layers a block; the second is the variant's at low resolution."""
    first, middle, last = variant.widths
    layer = variant.layer

    def convolution(width, *_):
        return keras.Conv2D(width, 3, padding="same", use_bias=False)

    def block(x, width, number=None):
        second = convolution if number is None else layer
        for make in (convolution, second):
            x = make(width, start, number)(x)
            x = keras.BatchNormalization(momentum=0.9)(x)
            x = keras.ReLU()(x)
        return x

    inputs = tf.keras.Input((SIZE, SIZE, 1))
    high = block(inputs, first)
    low = block(keras.MaxPooling2D()(high), middle, 0)
    x = block(keras.MaxPooling2D()(low), last, 1)
    x = keras.Concatenate()([keras.UpSampling2D()(x), low])
    x = block(x, middle, 2)
    x = keras.Concatenate()([keras.UpSampling2D()(x), high])
    x = block(x, first)
    return tf.keras.Model(inputs, keras.Conv2D(CLASSES, 1)(x))


def cross_entropy(targets, logits):
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
    )


def mean_iou(targets, logits):
    """In per cent, the mean over the background and the ten digits."""
    answers, shares = logits.argmax(-1), []
    for number in range(CLASSES):
        ours, true = answers == number, targets == number
        shares.append((ours & true).sum() / max((ours | true).sum(), 1))
    return 100 * float(np.mean(shares))


def kernel(width, start, _):
    return keras.Conv2D(
        width, 3, padding="same", use_bias=False, kernel_initializer=start
    )


SEGMENTATION_LAMBDA = {"num_heads": 4, "key_dim": 16, "scope": 7}


# A forecast: weekly CO2 on Mauna Loa, from statsmodels.

YEAR, HORIZON, WINDOW = 52, 26, 104
FIRST_YEARS = {"validation": "1985", "test": "1990"}


@functools.cache
def forecast_data():
    """Scaled changes of windows, and the moves after each of their weeks."""
    shipped = require("statsmodels.api", extra="examples").datasets.co2
    series = shipped.load_pandas().data["co2"].interpolate()
    values = series.to_numpy("float32")
    first, second = (
        int((series.index < year).sum()) for year in FIRST_YEARS.values()
    )
    changes = np.diff(values, prepend=values[0])
    mean, scale = changes[:first].mean(), changes[:first].std()
    ahead = np.arange(1, HORIZON + 1)

    def windows(starts):
        weeks = starts[:, None] + np.arange(WINDOW)
        inputs = (changes[weeks] - mean) / scale
        moves = values[weeks[..., None] + ahead] - values[weeks][..., None]
        return inputs[..., None], moves

    def origins(begin, end):
        return windows(np.arange(begin, end - HORIZON) - WINDOW + 1)

    return {
        "training": windows(np.arange(first - WINDOW - HORIZON)),
        "validation": origins(first, second),
        "test": origins(second, len(values)),
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


def absolute_error(targets, answers):
    """Of the weeks that have a year behind them."""
    return tf.reduce_mean(tf.abs(targets - answers)[:, YEAR:])


def forecast_error(targets, answers):
    """In ppm, of the last week of each window."""
    return float(np.abs(targets - answers)[:, -1].mean())


def gru(width, start, _):
    return keras.GRU(width, return_sequences=True, recurrent_initializer=start)


def causal_convolution(size, dilations):
    return lambda width, start, place: keras.Conv1D(
        width,
        size,
        padding="causal",
        dilation_rate=dilations[place],
        kernel_initializer=start,
    )


CAUSAL = {"num_heads": 4, "causal": True}
BYTES_LAMBDA = {"key_dim": 8, "scope": 63, **CAUSAL}


# Bytes of Python's standard library.

CONTEXT, WIDTH, BLOCKS = 128, 32, 2


@functools.cache
def bytes_data(context):
    """Windows of files; of ten files one validates and one tests."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    files = [path.read_bytes() for path in sorted(folder.glob("*.py"))]

    def windows(residues, count=None):
        text = b"\n".join(
            file for i, file in enumerate(files) if i % 10 in residues
        )
        number = (len(text) - 1) // context
        chosen = np.arange(number)
        if count is not None:
            chosen = np.linspace(0, number - 1, count).astype(int)
        places = chosen[:, None] * context + np.arange(context + 1)
        tokens = np.frombuffer(text, np.uint8)[places].astype("int32")
        return tokens[:, :-1], tokens[:, 1:]

    return {
        "training": windows(range(8)),
        "validation": windows([8], 300),
        "test": windows([9], 600),
    }


def language_model(variant, start):
    """Bytes to logits: blocks of the variant's layer and two dense ones."""
    (hidden,) = variant.widths
    inputs = tf.keras.Input((CONTEXT,), dtype="int32")
    x = keras.Embedding(256, WIDTH)(inputs)
    for place in range(BLOCKS):
        y = variant.layer(WIDTH, start, place)(keras.LayerNormalization()(x))
        x = keras.Add()([x, y])
        y = keras.Dense(hidden, "gelu")(keras.LayerNormalization()(x))
        x = keras.Add()([x, keras.Dense(WIDTH)(y)])
    logits = keras.Dense(256)(keras.LayerNormalization()(x))
    return tf.keras.Model(inputs, logits)


def example_model(variant, start):
    """The decoder of `examples/language_model.py` that a variant names."""
    model = example.LanguageModel(variant.layer, start)
    inputs = tf.keras.Input((example.CONTEXT,), dtype="int32")
    return tf.keras.Model(inputs, model.call(inputs))


def bits(targets, logits):
    """A byte, on average."""
    return float(cross_entropy(targets, logits)) / math.log(2)


TASKS = {
    "segmentation": Task(
        # Initial weights: what the search of 300 updates chose.
        variants={
            "convolution 3x3": Variant(kernel, (12, 28, 40), KERNEL[1:]),
            "lambda, scope 7": Variant(
                lambda_layer(**SEGMENTATION_LAMBDA), (12, 20, 96), LAMBDA[:1]
            ),
            "lambda, small embeddings": Variant(
                lambda_layer(**SEGMENTATION_LAMBDA), (12, 20, 96), LAMBDA[1:]
            ),
            "attention 7x7": Variant(
                attention(num_heads=4, scope=7), (12, 24, 72), ATTENTION[:1]
            ),
            **ablation(
                SEGMENTATION_LAMBDA,
                *((12, 20, 96), LAMBDA[0], 1e-2),
                {
                    "scope 3": {"scope": 3},
                    "global": {"scope": None},
                    "no batch norm": {"use_batch_norm": False},
                },
            ),
            "attention, global": Variant(
                attention(num_heads=4), (12, 20, 80), ATTENTION[:1]
            ),
        },
        network=unet,
        data=segmentation_data,
        loss=cross_entropy,
        score=mean_iou,
        best=max,
        rates=RATES[2:5],
        steps=900,
        batch=16,
    ),
    "forecast": Task(
        variants={
            "GRU": Variant(gru, (20, 2), ("orthogonal", "glorot_uniform")),
            "causal convolution": Variant(
                causal_convolution(9, (1, 8)), (17, 2), KERNEL
            ),
            "lambda, a year": Variant(
                lambda_layer(key_dim=8, scope=2 * YEAR + 1, **CAUSAL),
                (32, 2),
                LAMBDA,
            ),
        },
        network=series_network,
        data=forecast_data,
        loss=absolute_error,
        score=forecast_error,
        best=min,
        rates=RATES[1:4],
        steps=200,
        batch=32,
    ),
    "bytes": Task(
        variants={
            "lambda, scope 63": Variant(
                lambda_layer(**BYTES_LAMBDA), (108,), LAMBDA
            ),
            "lambda, global": Variant(
                lambda_layer(key_dim=8, **CAUSAL), (84,), LAMBDA
            ),
            "attention, global": Variant(attention(**CAUSAL), (60,), ATTENTION),
            "causal convolution": Variant(
                causal_convolution(5, (1, 8)), (60,), KERNEL
            ),
            **ablation(
                BYTES_LAMBDA,
                *((108,), LAMBDA[1], 1e-2),
                {"scope 15": {"scope": 15}},
            ),
        },
        network=language_model,
        data=functools.partial(bytes_data, CONTEXT),
        loss=cross_entropy,
        score=bits,
        best=min,
        rates=RATES[1:4],
        steps=300,
        batch=8,
    ),
    "decoder": Task(
        # Initial weights: of the embeddings what the search of bytes chose.
        variants={
            "lambda, scope 127": Variant("lambda", (), LAMBDA[1:]),
            "attention, global": Variant("attention", (), ATTENTION[:1]),
        },
        network=example_model,
        data=functools.partial(bytes_data, example.CONTEXT),
        loss=cross_entropy,
        score=bits,
        best=min,
        rates=RATES[1:4],
        steps=1800,
        batch=8,
    ),
}


def flops(model):
    """Of a training step with one example: three times those of a forward pass.

    Operations of products, 2 per multiply-add, by the paper's convention.
    """
    return 3 * analysis.analyze(model, executed=False).total("flops")


class Trainer:
    """Trains the network of a variant from new weights, as often as asked."""

    def __init__(self, task, variant):
        self.task, self.variant = task, variant
        self.model = task.network(variant, variant.starts[0])
        self.optimizer = tf.keras.optimizers.Adam(global_clipnorm=1.0)
        self.optimizer.build(self.model.trainable_variables)
        self._zeros = [np.zeros(x.shape) for x in self._state()]
        self._update = tf.function(self._updated, reduce_retracing=True)

    def _state(self):
        found = self.optimizer.variables
        return found() if callable(found) else found  # tf_keras: a method

    def _updated(self, inputs, targets):
        weights = self.model.trainable_variables
        with tf.GradientTape() as tape:
            answers = self.model(inputs, training=True)
            loss = self.task.loss(targets, answers)
        gradients = tape.gradient(loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))

    def run(self, rate, start, seed, steps):
        """Trains with a rate that warms up, then falls as a cosine."""
        tf.keras.utils.set_random_seed(seed)
        fresh = self.task.network(self.variant, start)
        self.model.set_weights(fresh.get_weights())
        for variable, zeros in zip(self._state(), self._zeros, strict=True):
            variable.assign(zeros)
        data, rng = self.task.data()["training"], np.random.default_rng(seed)
        for step in range(steps):
            warmed = min(1.0, (step + 1) / (WARM_UP * steps))
            cosine = 0.5 + 0.5 * math.cos(math.pi * step / steps)
            self.optimizer.learning_rate.assign(rate * warmed * cosine)
            chosen = rng.integers(0, len(data[0]), self.task.batch)
            self._update(*(tf.constant(array[chosen]) for array in data))

    def score(self, part):
        """That of the present weights; None if it is not a number."""
        inputs, targets = self.task.data()[part]
        answers = self.model.predict(inputs, batch_size=64, verbose=0)
        found = self.task.score(targets, answers)
        return found if math.isfinite(found) else None


class Study:
    """The runs of a variant: its search, then the final ones."""

    def __init__(self, name, variant, steps, recorder):
        self.task, self.recorder = TASKS[name], recorder
        self.variant = self.task.variants[variant]
        steps = steps or self.task.steps
        self.case = {"task": name, "variant": variant, "steps": steps}

    @functools.cached_property
    def trainer(self):
        return Trainer(self.task, self.variant)

    def score(self, part, rate, start, seed):
        """The score of a run, which is recorded if it was not before."""
        case = self.case | {"part": part, "rate": rate, "start": start}
        return self.recorder.get(case | {"seed": seed}, self._run)["score"]

    def _run(self, case):
        where = {"search": "validation", "final": "test"}[case["part"]]
        settings = (case[x] for x in ("rate", "start", "seed", "steps"))
        begin, model = time.perf_counter(), self.trainer.model
        self.trainer.run(*settings)
        seconds = time.perf_counter() - begin
        return {
            "score": self.trainer.score(where),
            "examples": len(self.task.data()[where][0]),
            "parameters": analysis.trainable_parameters(model),
            "flops": flops(model),
            "seconds": seconds,
        }

    def choice(self):
        """Rate and start of the best search run on the validation data."""
        if self.variant.rate is not None:
            return self.variant.rate, self.variant.starts[0]
        return runs.search(
            RATES,
            self.task.rates,
            self.variant.starts,
            lambda *choice: self.score("search", *choice, SEARCH_SEED),
            self.task.best,
        )


def main(arguments=None):
    recorder, options = records.start(
        "mixers", __doc__, arguments, seeds=3, steps=0
    )
    for name, task in TASKS.items():
        studies = [
            Study(name, variant, options.steps, recorder)
            for variant in task.variants
            if options.only in f"{name}, {variant}"
        ]
        chosen = {study: study.choice() for study in studies}
        for seed in range(1, options.seeds + 1):
            for study, choice in chosen.items():
                study.score("final", *choice, seed)


if __name__ == "__main__":
    main()
