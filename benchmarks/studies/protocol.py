"""The protocol by which studies compare layers: docs/study.md#protocol.

The networks of a task differ in the layer that mixes positions. Each layer
searches its rate and initial weights on validation data, then trains once for
each seed, and the last weights see the test data.
"""

import functools
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks import timing
from benchmarks.studies import runs
from lambdanet_tf import analysis
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)  # the grid is within
SEARCH_SEED, WARM_UP, HEADS = 0, 0.05, 4
keras = tf.keras.layers


class Variant(NamedTuple):
    """A layer that mixes positions, and the network that it stands in."""

    layer: Callable  # of width, start and place
    widths: tuple[int, ...]  # of the network: all variants cost the same
    starts: tuple  # initial weights to try: deviation or Keras' name


class Task(NamedTuple):
    """What is learned, in so many steps, from batches of some size."""

    variants: dict[str, Variant]
    network: Callable  # of a variant and a start
    data: Callable  # to inputs and targets by part
    steps: int
    batch: int
    loss: Callable  # Keras', of targets and outputs
    score: Callable  # of targets and outputs of all examples
    best: Callable = min  # or max, of scores
    rates: tuple[float, ...] = RATES[1:4]  # of the search
    searched: str = ""  # the task that searches, if this one does not


def mixing(kind, **arguments):
    """Returns what makes a layer of ours whose embeddings start somewhere."""

    def layer(width, start, _):
        # A new one: an instance that layers share gives them equal weights.
        if isinstance(start, float):
            start = tf.keras.initializers.RandomNormal(stddev=start)
        return kind(width, embeddings_initializer=start, **arguments)

    return layer


lambda_layer = functools.partial(mixing, LambdaLayer, num_heads=HEADS)
attention = functools.partial(mixing, RelativeAttention, num_heads=HEADS)


def past(key_dim, scope=None):
    return lambda_layer(key_dim=key_dim, scope=scope, causal=True)


def convolution(width, start="glorot_uniform", _=None):
    return keras.Conv2D(
        width, 3, padding="same", use_bias=False, kernel_initializer=start
    )


def causal_convolution(size, dilations):
    return lambda width, start, place: keras.Conv1D(
        width,
        size,
        padding="causal",
        dilation_rate=dilations[place],
        kernel_initializer=start,
    )


def gru(width, start, _):
    return keras.GRU(width, return_sequences=True, recurrent_initializer=start)


def keras_attention(width, _, __):
    layer = keras.MultiHeadAttention(HEADS, width // HEADS)
    return lambda x: layer(x, x, use_causal_mask=True)


# Of the embeddings: the paper's N(0, 1), and a tenth of its deviation; in
# attention N(0, 1 / k), and the same small one. None is the layer's default.
LAMBDA, ATTENTION = (1.0, 0.1), (None, 0.1)
KERNEL = "glorot_uniform", "he_normal"
RECURRENT = "orthogonal", "glorot_uniform"


class Sinusoids(keras.Layer):
    """Adds positions, for layers that have none of their own."""

    def call(self, inputs):
        _, length, width = inputs.shape
        rates = 1e4 ** -np.linspace(0, 1, width // 2)
        angles = np.arange(length)[:, None] * rates
        waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
        return inputs + waves.astype("float32")


def residual_blocks(x, variant, start, blocks):
    """Returns what a decoder's blocks make of embedded inputs `(b, *n, d)`."""
    width, hidden = x.shape[-1], variant.widths[-1]
    if variant.layer is keras_attention:
        x = Sinusoids()(x)
    for place in range(blocks):
        y = variant.layer(width, start, place)(keras.LayerNormalization()(x))
        x = keras.Add()([x, y])
        y = keras.Dense(hidden, "gelu")(keras.LayerNormalization()(x))
        x = keras.Add()([x, keras.Dense(width)(y)])
    return keras.LayerNormalization()(x)


cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def compiled(task, variant, rate, start):
    model = task.network(variant, start)
    model.compile(
        tf.keras.optimizers.Adam(rate, global_clipnorm=1.0), task.loss
    )
    return model


def train(task, variant, rate, start, seed, steps):
    """Returns a network trained by a rate that warms up, then falls."""
    tf.keras.utils.set_random_seed(seed)
    model = compiled(task, variant, rate, start)
    inputs, targets = task.data()["training"]
    rng = np.random.default_rng(seed)
    for step in range(steps):
        warmed = min(1.0, (step + 1) / (WARM_UP * steps))
        cosine = 0.5 + 0.5 * math.cos(math.pi * step / steps)
        model.optimizer.learning_rate.assign(rate * warmed * cosine)
        chosen = rng.integers(0, len(inputs), task.batch)
        model.train_on_batch(inputs[chosen], targets[chosen])
    return model


def cost(model):
    """Returns parameters, and operations of a training step for an example.

    They are those of products, 2 per multiply-add; a step is three passes.
    """
    found = analysis.analyze(model, executed=False)
    forward = found.total("flops")
    for layer in map(model.get_layer, found.not_counted):
        if isinstance(layer, keras.Embedding):
            continue
        _, positions, width = layer.output.shape
        kernels = [w.shape for w in layer.weights if "kernel" in w.name]
        forward += 2 * positions * sum(map(math.prod, kernels))
        if isinstance(layer, keras.MultiHeadAttention):
            forward += 4 * positions**2 * width
    parameters = analysis.trainable_parameters(model)
    return {"parameters": parameters, "flops": 3 * forward}


def record_costs(tasks, recorder, options):
    """Times training steps of all layers of a task, in turns."""
    for name in (x for x in tasks if options.only in x):
        task, steps, facts = tasks[name], {}, {}
        batch = [x[: task.batch] for x in task.data()["training"]]
        for title, variant in task.variants.items():
            model = compiled(task, variant, task.rates[0], variant.starts[0])
            steps[title] = functools.partial(model.train_on_batch, *batch)
            facts[title] = cost(model)
        for title, seconds in timing.turns(steps, options.seconds).items():
            case = {"task": name, "variant": title, "part": "cost"}
            recorder.append(case, seconds=seconds, **facts[title])


def measure(tasks, case):
    task = tasks[case["task"]]
    settings = (case[x] for x in ("rate", "start", "seed", "steps"))
    begin = time.perf_counter()
    model = train(task, task.variants[case["variant"]], *settings)
    seconds = time.perf_counter() - begin
    part = {"search": "validation", "final": "test"}[case["part"]]
    inputs, targets = task.data()[part]
    # Small batches, for the scores of attention over 2,048 positions.
    outputs = model.predict(inputs, batch_size=16, verbose=0)
    score = task.score(targets, outputs)
    facts = {"examples": len(inputs), "seconds": seconds, **cost(model)}
    tf.keras.backend.clear_session()
    return {"score": score if math.isfinite(score) else None, **facts}


def compare(tasks, recorder, options):
    """Searches and trains all variants of the tasks that are asked for."""

    def score(name, title, part, seed, rate, start):
        case = {"task": name, "variant": title}
        case |= {"steps": options.steps or tasks[name].steps}
        case |= {"part": part, "rate": rate, "start": start, "seed": seed}
        return recorder.get(case, functools.partial(measure, tasks))["score"]

    def found(name, title):
        task, variant = tasks[name], tasks[name].variants[title]
        search = functools.partial(score, name, title, "search", SEARCH_SEED)
        return runs.search(RATES, task.rates, search, task.best, variant.starts)

    for name, task in tasks.items():
        wanted = [x for x in task.variants if options.only in f"{name}, {x}"]
        chosen = {x: found(task.searched or name, x) for x in wanted}
        for seed in range(1, options.seeds + 1):
            for title, choice in chosen.items():
                score(name, title, "final", seed, *choice)
