"""Optimizers and averages against formulas written out in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf.environment import tf_variable
from lambdanet_tf.training import Averages
from lambdanet_tf.training import Recipe
from lambdanet_tf.training import recipe_optimizer
from lambdanet_tf.training.optimizer import apply_gradients
from lambdanet_tf.training.optimizer import scale_loss
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.steps import update_step
from tests.support.arrays import assert_same

STEPS = 6
WITHOUT = {
    "weight_decay": 0.0,
    "ema_decay": 0.0,
    "base_batch_size": 0,
    "warmup_epochs": 0.0,
    "schedule": "constant",
    "epochs": 1,
}


def small_model(**arguments):
    """A kernel, a bias, and a batch normalization with its statistics."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((3,)),
            tf.keras.layers.Dense(5, bias_initializer="ones", **arguments),
            tf.keras.layers.BatchNormalization(),
        ]
    )


def values(model):
    return [w.numpy() for w in model.trainable_variables]


def move(model):
    """Adds 1 to every trainable weight."""
    for weight in model.trainable_variables:
        weight.assign_add(tf.ones(weight.shape))


def random_gradients(model, rng, steps=STEPS):
    return [
        [rng.normal(size=w.shape) for w in model.trainable_variables]
        for _ in range(steps)
    ]


def optimize(model, steps, **fields):
    """Weights after every step, and the optimizer."""
    recipe = Recipe(**{**WITHOUT, **fields})
    optimizer = recipe_optimizer(recipe, len(steps))
    optimizer.build(model.trainable_variables)
    history = [values(model)]
    for gradients in steps:
        scale = float(scale_loss(optimizer, tf.constant(1.0)))
        scaled = [tf.constant(g * scale, tf.float32) for g in gradients]
        apply_gradients(optimizer, scaled, model.trainable_variables)
        history.append(values(model))
    return history, optimizer


# The rules.


def sgd(w, gradients):
    """As the docstring of `recipe_optimizer` has it: the rate is in m."""
    moment = np.zeros(w.shape)
    for t, gradient in enumerate(gradients):
        rate = 0.15 * (1 + np.cos(np.pi * t / STEPS))
        moment = 0.8 * moment - rate * gradient
        w = w + moment
        yield w


def rmsprop(w, gradients):
    square, moment = np.zeros(w.shape), np.zeros(w.shape)
    for gradient in gradients:
        square = 0.9 * square + 0.1 * gradient**2
        moment = 0.8 * moment + 0.1 * gradient / np.sqrt(square + 0.001)
        w = w - moment
        yield w


def adam(w, gradients):
    first, second = np.zeros(w.shape), np.zeros(w.shape)
    for t, gradient in enumerate(gradients, start=1):
        first = 0.8 * first + 0.2 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        mean, scale = first / (1 - 0.8**t), second / (1 - 0.999**t)
        w = w - 0.1 * mean / (np.sqrt(scale) + 1e-8)
        yield w


RULES = {  # The weights after each step, how, and how exactly.
    "sgd": (sgd, {"learning_rate": 0.3, "schedule": "cosine"}, 1e-5),
    "rmsprop": (rmsprop, {"learning_rate": 0.1}, 1e-4),
    "adam": (adam, {"learning_rate": 0.1}, 1e-4),
}


@pytest.mark.parametrize("name", RULES)
def test_rules(name, rng):
    rule, fields, tolerance = RULES[name]
    model = small_model()
    steps = random_gradients(model, rng)
    history, optimizer = optimize(
        model, steps, optimizer=name, momentum=0.8, **fields
    )
    kinds = {"sgd": "SGD", "rmsprop": "RMSprop", "adam": "Adam"}
    assert type(optimizer) is getattr(tf.keras.optimizers, kinds[name])
    again = type(optimizer).from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()
    for i, w in enumerate(history[0]):
        expected = rule(w, [step[i] for step in steps])
        for weights, w in zip(history[1:], expected, strict=True):
            np.testing.assert_allclose(
                weights[i], w, rtol=tolerance, atol=tolerance / 10
            )


# Weight decay is a regularizer.

NETWORKS = {
    "LambdaResNetSmall": {
        "stages": ["CL", "LL"],
        "widths": [8, 8],
        "strides": [1, 2],
        "se_ratio": 0.25,
        "share_embeddings": True,
    },
    "ResNet50": {"stages": ["C", "L", "C", "L"], "widths": [8, 8, 8, 8]},
    "LambdaMobileNetV2": {},
}


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_kernel_decays_and_nothing_else(name):
    """The gradient of the penalty is d w: what coupled weight decay adds."""
    model = models.build(
        name,
        input_shape=(32, 32, 1),
        classes=3,
        kernel_regularizer=tf.keras.regularizers.L2(0.05 / 2),
        **NETWORKS[name],
    )
    named = models.named_weights(model)
    with tf.GradientTape() as tape:
        penalty = tf.add_n(model.losses)
    gradients = tape.gradient(
        penalty,
        [tf_variable(weight) for weight in model.trainable_variables],
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    names = {id(weight): name for name, weight in named.items()}
    pairs = zip(model.trainable_variables, gradients, strict=True)
    decayed = {}
    for weight, gradient in pairs:
        key = names[id(weight)]
        is_kernel = len(weight.shape) > 1 and not key.endswith("embeddings")
        decayed[key] = is_kernel
        expected = 0.05 * weight.numpy() if is_kernel else 0.0
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-9)
    assert sum(decayed.values()) > 8
    for kind in ("embeddings", "gamma", "beta", "bias"):
        assert [k for k, v in decayed.items() if k.endswith(kind) and not v]


def linear_model(**arguments):
    """Logits of two classes from an image of one pixel, and no statistics."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((1, 1, 3)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(2, use_bias=False, **arguments),
        ]
    )


def take_steps(strategy, arguments, batches, **fields):
    """A linear model after steps of `update_step` on some batches."""
    recipe = Recipe(**WITHOUT, batch_size=4, label_smoothing=0.0, **fields)
    with strategy.scope():
        tf.keras.utils.set_random_seed(1)
        model = linear_model(**arguments)
        optimizer = recipe_optimizer(recipe, len(batches))
        state = TrainState(model, optimizer, Averages(model, recipe.ema_decay))
        step = update_step(state, recipe)
    replicas = strategy.num_replicas_in_sync

    def on_replica(images, labels, number):
        mine = tf.distribute.get_replica_context().replica_id_in_sync_group
        parts = [tf.split(x, replicas) for x in (images, labels)]
        return step(*(tf.gather(part, mine) for part in parts), number)

    @tf.function
    def run(*batch):
        sums = strategy.run(on_replica, args=batch)
        return strategy.reduce("sum", sums, axis=None)

    for number, (images, labels) in enumerate(batches):
        run(images, labels, tf.constant(number, tf.int64))
    return model


def batches_of(rng, number=3):
    return [
        (
            tf.constant(rng.normal(size=(4, 1, 1, 3)), tf.float32),
            tf.one_hot(rng.integers(0, 2, 4), 2),
        )
        for _ in range(number)
    ]


def gradient_of(kernel, batch):
    """Of the mean cross-entropy of a batch, in NumPy."""
    images, labels = (x.numpy() for x in batch)
    pixels = images.reshape(4, 3)
    odds = np.exp(pixels @ kernel)
    probabilities = odds / odds.sum(axis=1, keepdims=True)
    return pixels.T @ (probabilities - labels) / 4


@pytest.fixture(params=[1, 2])
def strategy(request):
    """One replica, or two."""
    if request.param == 1:
        return tf.distribute.get_strategy()
    return request.getfixturevalue("two_replicas")


def test_a_penalty_counts_once_for_each_batch(rng, strategy):
    """However many replicas there are; by NumPy."""
    arguments = {"kernel_regularizer": tf.keras.regularizers.L2(0.3 / 2)}
    batches = batches_of(rng)
    model = take_steps(
        strategy, arguments, batches, learning_rate=0.5, momentum=0.9
    )
    tf.keras.utils.set_random_seed(1)
    kernel = linear_model().get_weights()[0].astype(np.float64)
    moment = np.zeros_like(kernel)
    for batch in batches:
        gradient = gradient_of(kernel, batch) + 0.3 * kernel
        moment = 0.9 * moment - 0.5 * gradient
        kernel = kernel + moment
    np.testing.assert_allclose(
        model.get_weights()[0], kernel, rtol=1e-4, atol=1e-5
    )


def test_constraints_are_honored(rng, strategy):
    norms = []
    for constraint in (None, tf.keras.constraints.MaxNorm(0.1)):
        arguments, batches = {"kernel_constraint": constraint}, batches_of(rng)
        model = take_steps(strategy, arguments, batches, learning_rate=1.0)
        norms.append(np.linalg.norm(model.get_weights()[0], axis=0))
    assert norms[0].min() > 0.2
    assert norms[1].max() <= 0.1 + 1e-6


# Clipping.


@pytest.mark.parametrize("bound", [0.25, 1e3])
def test_clipping_bounds_the_norm_of_all_gradients_together(rng, bound):
    model = small_model()
    (gradients,) = random_gradients(model, rng, steps=1)
    fields = {"learning_rate": 1.0, "momentum": 0.0, "global_clipnorm": bound}
    (before, after), _ = optimize(model, [gradients], **fields)
    norm = np.sqrt(sum(np.sum(g**2) for g in gradients))
    expected = [g * min(1.0, bound / norm) for g in gradients]
    taken = [w - new for w, new in zip(before, after, strict=True)]
    assert_same(taken, expected, rtol=1e-4, atol=1e-6)


def different_gradients(strategy, pair, **fields):
    """The change of a weight whose gradients differ between two replicas."""
    recipe = Recipe(**WITHOUT, learning_rate=1.0, momentum=0.0, **fields)
    with strategy.scope():
        layer = tf.keras.layers.Dense(1, use_bias=False)
        layer.build((None, 1))
        optimizer = recipe_optimizer(recipe, 10)
        optimizer.build(layer.trainable_variables)
    before = layer.get_weights()[0]

    @tf.function
    def step():
        def replica():
            which = tf.distribute.get_replica_context()
            gradient = tf.gather(
                tf.constant(pair), which.replica_id_in_sync_group
            )
            gradient = scale_loss(optimizer, tf.reshape(gradient, [1, 1]))
            apply_gradients(optimizer, [gradient], layer.trainable_variables)

        strategy.run(replica)

    step()
    return float((layer.get_weights()[0] - before)[0, 0])


def test_gradients_are_summed_over_replicas_before_clipping(two_replicas):
    """-10 and +1 make -9, clipped to -1; clipped first they would cancel."""
    pair = [-10.0, 1.0]
    assert different_gradients(two_replicas, pair) == pytest.approx(9.0)
    change = different_gradients(two_replicas, pair, global_clipnorm=1.0)
    assert change == pytest.approx(1.0, abs=1e-5)


@pytest.mark.slow
def test_an_overflow_in_one_replica_stops_the_update(two_replicas):
    for one, other, expected in (
        (-10.0, 1.0, 9.0),
        (-10.0, np.inf, 0.0),
        (np.inf, 1.0, 0.0),
    ):
        change = different_gradients(
            two_replicas, [one, other], precision="mixed_float16"
        )
        assert change == pytest.approx(expected, rel=1e-5)


# Averages.


def test_averages_follow_their_formula():
    """After 50 updates in which the weight is the update: 44.9 (0.9999)."""
    model = small_model()
    model.set_weights([np.zeros_like(w) for w in model.get_weights()])
    averages = Averages(model, 0.9999)
    for number in range(1, 51):
        move(model)
        averages.update(number)
    np.testing.assert_allclose(values(model)[0], 50.0)
    averages.swap()
    np.testing.assert_allclose(values(model)[0], 44.9, rtol=1e-4)


def test_swapping_twice_changes_nothing():
    model = small_model()
    averages = Averages(model, 0.9)
    move(model)
    before = model.get_weights()
    with averages.applied():
        assert averages.is_swapped
        assert not np.array_equal(model.get_weights()[0], before[0])
    assert not averages.is_swapped
    assert_same(model.get_weights(), before)


def test_without_a_decay_there_are_no_averages():
    model = small_model()
    averages = Averages(model, 0.0)
    before = model.get_weights()
    averages.update(1)
    averages.swap()
    assert averages.variables == []
    assert_same(model.get_weights(), before)
    with pytest.raises(ValueError, match=r"`decay` must be .*\[0, 1\)"):
        Averages(model, 1.0)


def test_statistics_of_replicas_are_averaged_over_them(two_replicas):
    with two_replicas.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((1,)),
                tf.keras.layers.BatchNormalization(momentum=0.0),
            ]
        )
        averages = Averages(model, 0.5)

    @tf.function
    def step():
        def replica():
            which = tf.distribute.get_replica_context()
            number = tf.cast(which.replica_id_in_sync_group, tf.float32)
            model(tf.fill([4, 1], number), training=True)
            averages.update(1)

        two_replicas.run(replica)

    step()
    averages.swap()
    # From 0 towards the mean of 0 and 1, with the decay 2 / 11.
    assert model.get_weights()[2] == pytest.approx(0.5 * 9 / 11)


# Float16.


def test_a_gradient_that_overflows_changes_no_weight(rng):
    model = small_model()
    good, bad = random_gradients(model, rng, steps=2)
    bad[0][0, 0] = np.inf
    history, optimizer = optimize(
        model, [bad, good], precision="mixed_float16", learning_rate=0.1
    )
    assert_same(history[1], history[0])
    assert not np.array_equal(history[1][0], history[2][0])
    assert float(scale_loss(optimizer, tf.constant(1.0))) == 2.0**14


def test_the_loss_scale_cancels(rng):
    scaled, plain = small_model(), small_model()
    scaled.set_weights(plain.get_weights())
    steps = random_gradients(plain, rng, steps=2)
    expected, _ = optimize(plain, steps, learning_rate=0.1)
    actual, _ = optimize(
        scaled, steps, learning_rate=0.1, precision="mixed_float16"
    )
    assert_same(actual[2], expected[2], rtol=1e-5, atol=1e-6)
