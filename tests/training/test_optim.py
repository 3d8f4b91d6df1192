"""Optimizers, rates and averages against formulas written out in NumPy."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import training
from lambdanet_tf.training import Averages
from lambdanet_tf.training.optimizer import scale_loss
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.steps import update_step
from tests.support.arrays import assert_same

STEPS = 6
WITHOUT = {"weight_decay": 0.0, "ema_decay": 0.0, "warmup_epochs": 0.0}
WITHOUT |= {"base_batch_size": 0, "schedule": "constant", "epochs": 1}
WITHOUT |= {"batch_size": 4, "label_smoothing": 0.1, "momentum": 0.8}


def take_steps(strategy, batches, **fields):
    """Kernel and bias before `update_step`, and the state after it."""
    recipe = training.Recipe(**{**WITHOUT, **fields})
    with strategy.scope():
        tf.keras.utils.set_random_seed(1)
        regularizer = tf.keras.regularizers.L2(0.3 / 2)
        dense = tf.keras.layers.Dense(2, kernel_regularizer=regularizer)
        layers = [tf.keras.Input((1, 1, 3)), tf.keras.layers.Flatten(), dense]
        model = tf.keras.Sequential(layers)
        optimizer = training.recipe_optimizer(recipe, len(batches))
        state = TrainState(model, optimizer, Averages(model, recipe.ema_decay))
        step = update_step(state, recipe)
    before = model.get_weights()

    replicas = strategy.num_replicas_in_sync

    def on_replica(*batch):
        mine = tf.distribute.get_replica_context().replica_id_in_sync_group
        parts = [tf.gather(tf.split(x, replicas), mine) for x in batch[:2]]
        return step(*parts, batch[2])

    def run(*batch):
        strategy.run(on_replica, args=batch)

    if replicas > 1:  # One takes its steps without a graph.
        run = tf.function(run)
    for number, batch in enumerate(batches):
        run(*batch, tf.constant(number, tf.int64))
    return before, state


def random_batches(rng, number=STEPS):
    """Images of one pixel, and one-hot labels of two classes."""
    images = rng.normal(size=(number, 4, 1, 1, 3)).astype(np.float32)
    labels = np.eye(2, dtype=np.float32)[rng.integers(0, 2, (number, 4))]
    return list(zip(images, labels, strict=True))


# What is added to the weights in step t, of a gradient g and what is kept.
def sgd(t, g, kept):
    rate = 0.15 * (1 + np.cos(np.pi * t / STEPS))
    kept["m"] = 0.8 * kept["m"] - rate * g
    return kept["m"]


def rmsprop(t, g, kept):
    kept["s"] = 0.9 * kept["s"] + 0.1 * g**2
    kept["m"] = 0.8 * kept["m"] - 0.1 * g / np.sqrt(kept["s"] + 0.001)
    return kept["m"]


def adam(t, g, kept):
    kept["m"] = 0.8 * kept["m"] + 0.2 * g
    kept["s"] = 0.999 * kept["s"] + 0.001 * g**2
    mean = kept["m"] / (1 - 0.8 ** (t + 1))
    scale = kept["s"] / (1 - 0.999 ** (t + 1))
    return -0.1 * mean / (np.sqrt(scale) + 1e-8)


RULES = {  # How they are asked for, and how exact they are.
    sgd: ({"learning_rate": 0.3, "schedule": "cosine"}, 1e-5),
    rmsprop: ({"learning_rate": 0.1}, 1e-4),
    adam: ({"learning_rate": 0.1}, 1e-4),
}


@pytest.fixture(params=[1, 2])
def strategy(request):
    """One replica, or two."""
    if request.param == 1:
        return tf.distribute.get_strategy()
    return request.getfixturevalue("two_replicas")


@pytest.mark.parametrize("bound", [0.0, 0.1])
@pytest.mark.parametrize("rule", RULES)
def test_a_penalty_counts_once_for_each_batch(rng, strategy, rule, bound):
    """However many replicas; gradients are clipped together, and averaged."""
    changes, tolerance = RULES[rule]
    batches = random_batches(rng)
    fields = {"optimizer": rule.__name__, "global_clipnorm": bound, **changes}
    before, state = take_steps(strategy, batches, ema_decay=0.3, **fields)
    weights, kept = np.vstack(before), collections.defaultdict(float)
    averages = weights
    for t, (images, labels) in enumerate(batches):
        pixels = np.insert(images.reshape(4, 3), 3, 1.0, axis=1)
        odds = np.exp(pixels @ weights)
        error = odds / odds.sum(axis=1, keepdims=True) - (0.9 * labels + 0.05)
        penalty = 0.3 * weights * [[1.0], [1.0], [1.0], [0.0]]
        gradient = pixels.T @ error / 4 + penalty
        norm = np.linalg.norm(gradient)
        gradient *= min(1.0, (bound or norm) / norm)
        weights = weights + rule(t, gradient, kept)
        decay = min(0.3, (2 + t) / (11 + t))
        averages = decay * averages + (1 - decay) * weights
    trained, optimizer = state.model.get_weights(), state.optimizer
    assert_same(np.vstack(trained), weights, tolerance, tolerance / 10)
    with state.averages.applied():
        found = np.vstack(state.model.get_weights())
    assert_same(found, averages, tolerance, tolerance / 10)
    assert_same(state.model.get_weights(), trained)
    again = type(optimizer).from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()


def test_float16_skips_an_overflow_and_cancels_its_scale(rng):
    strategy = tf.distribute.get_strategy()
    ((images, labels), good) = random_batches(rng, 2)
    images[0] = np.inf
    batches, fields = [(images, labels), good], {"learning_rate": 0.1}
    _, expected = take_steps(strategy, [good], **fields)
    fields["precision"] = "mixed_float16"
    _, state = take_steps(strategy, batches, **fields)
    weights = state.model.get_weights()
    assert_same(weights, expected.model.get_weights(), rtol=1e-5, atol=1e-6)
    assert float(scale_loss(state.optimizer, tf.constant(1.0))) == 2.0**14


def test_statistics_that_replicas_do_not_share_are_averaged(two_replicas):
    with two_replicas.scope():
        norm = tf.keras.layers.BatchNormalization()
        model = tf.keras.Sequential([tf.keras.Input((3,)), norm])
        averages = Averages(model, 0.9999)
    before = model.get_weights()

    @tf.function
    def update():
        for weight in averages.weights:
            weight.assign_add(tf.ones(weight.shape))
        averages.update(1)

    two_replicas.run(update)
    with averages.applied():
        expected = [weight + 1 - 2 / 11 for weight in before]
        assert_same(model.get_weights(), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"`decay` must be .*\[0, 1\)"):
        Averages(model, 1.0)


def test_rates_at_every_step():
    schedule = training.WarmupSchedule(1.6, num_steps=100, warmup_steps=20)
    for step in range(101):
        expected = 1.6 * step / 20
        if step >= 20:
            expected = 0.8 * (1 + np.cos(np.pi * (step - 20) / 80))
        assert float(schedule(step)) == pytest.approx(expected, abs=1e-6)
    assert float(schedule(250)) == pytest.approx(0.0, abs=1e-6)
    arguments = {"shape": "exponential", "decay": 0.99, "every": 30}
    schedule = training.WarmupSchedule(0.1, 1000, warmup_steps=10, **arguments)
    for step, stairs in ((10, 0), (39, 0), (40, 1), (10 + 7 * 30, 7)):
        assert float(schedule(step)) == pytest.approx(0.1 * 0.99**stairs)
    with pytest.raises(ValueError, match=r"`shape` must be .*'linear'"):
        training.WarmupSchedule(0.1, 10, shape="linear")
    # The paper's for a batch of 4096; one can be absolute.
    recipe = training.Recipe(batch_size=4096, epochs=90, warmup_epochs=5.0)
    schedule = training.recipe_schedule(recipe, 312)
    assert schedule.peak == pytest.approx(1.6)
    assert (schedule.warmup_steps, schedule.num_steps) == (5 * 312, 90 * 312)
    recipe = training.Recipe(epochs=2, learning_rate=2.5e-3, base_batch_size=0)
    schedule = training.recipe_schedule(recipe, 10)
    assert schedule.peak == pytest.approx(2.5e-3)
    assert schedule.warmup_steps == schedule.num_steps == 20
