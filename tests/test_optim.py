"""The optimiser against formulas written out in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf.training import RecipeOptimizer
from lambdanet_tf.training.kernels import decayed_weights
from lambdanet_tf.training.kernels import raw_variable

STEPS = 6


def small_model():
    """A kernel, a bias, and a batch normalisation with its statistics."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((3,)),
            tf.keras.layers.Dense(5, bias_initializer="ones"),
            tf.keras.layers.BatchNormalization(),
        ]
    )


def values(model):
    return [w.numpy() for w in model.trainable_variables]


def apply(optimizer, model, grads):
    grads = [tf.constant(g, tf.float32) for g in grads]
    optimizer.apply_gradients(
        zip(grads, model.trainable_variables, strict=True)
    )


def random_gradients(model, rng, steps=STEPS):
    return [
        [rng.normal(size=w.shape) for w in model.trainable_variables]
        for _ in range(steps)
    ]


def train(optimizer, model, steps):
    """Weights after every step."""
    optimizer.build(model.trainable_variables)
    history = [values(model)]
    for grads in steps:
        apply(optimizer, model, grads)
        history.append(values(model))
    return history


# The rules.


def test_sgd_with_coupled_decay_of_kernels_only(rng):
    model = small_model()
    optimizer = RecipeOptimizer(0.3, momentum=0.9, weight_decay=0.05)
    steps = random_gradients(model, rng)
    history = train(optimizer.attach(model), model, steps)

    expected = [w.astype(np.float64) for w in history[0]]
    moments = [np.zeros_like(w) for w in expected]
    for step, actual in zip(steps, history[1:], strict=True):
        for i, w in enumerate(expected):
            g = step[i] + (0.05 * w if w.ndim == 2 else 0.0)
            moments[i] = 0.9 * moments[i] + g
            expected[i] = w - 0.3 * moments[i]
            np.testing.assert_allclose(actual[i], expected[i], rtol=1e-5)


def test_coupled_decay_is_an_l2_penalty_in_the_loss(rng):
    """The gradient of 0.05 / 2 * |w|^2, by Keras' own optimiser."""
    ours, theirs = small_model(), small_model()
    theirs.set_weights(ours.get_weights())
    optimizer = RecipeOptimizer(0.1, weight_decay=0.05).attach(ours)
    keras = tf.keras.optimizers.SGD(0.1, momentum=0.9)
    train(optimizer, ours, [[np.zeros(w.shape) for w in values(ours)]] * STEPS)
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            kernel = tf.convert_to_tensor(theirs.trainable_variables[0])
            loss = 0.025 * tf.reduce_sum(tf.square(kernel))
        grads = tape.gradient(loss, theirs.trainable_variables[:1])
        keras.apply_gradients(
            zip(grads, theirs.trainable_variables[:1], strict=True)
        )
    np.testing.assert_allclose(values(ours)[0], values(theirs)[0], rtol=1e-5)


def test_rmsprop(rng):
    model = small_model()
    optimizer = RecipeOptimizer(0.1, rule="rmsprop", momentum=0.8)
    steps = random_gradients(model, rng)
    history = train(optimizer, model, steps)
    for i, w in enumerate(history[0]):
        square, moment = np.ones(w.shape), np.zeros(w.shape)
        for step, actual in zip(steps, history[1:], strict=True):
            square = 0.9 * square + 0.1 * step[i] ** 2
            moment = 0.8 * moment + 0.1 * step[i] / np.sqrt(square + 0.001)
            w = w - moment
            np.testing.assert_allclose(actual[i], w, rtol=1e-4, atol=1e-6)


def test_adam(rng):
    model = small_model()
    optimizer = RecipeOptimizer(0.1, rule="adam", momentum=0.8)
    steps = random_gradients(model, rng)
    history = train(optimizer, model, steps)
    for i, w in enumerate(history[0]):
        first, second = np.zeros(w.shape), np.zeros(w.shape)
        for t, step in enumerate(steps, start=1):
            first = 0.8 * first + 0.2 * step[i]
            second = 0.999 * second + 0.001 * step[i] ** 2
            mean, scale = first / (1 - 0.8**t), second / (1 - 0.999**t)
            w = w - 0.1 * mean / (np.sqrt(scale) + 1e-8)
            np.testing.assert_allclose(history[t][i], w, rtol=1e-4, atol=1e-5)


# Clipping and accumulation.


def test_clipping_bounds_the_norm_of_all_gradients_together(rng):
    model = small_model()
    (grads,) = random_gradients(model, rng, steps=1)
    optimizer = RecipeOptimizer(1.0, momentum=0.0, clip_norm=0.25)
    before, after = train(optimizer, model, [grads])
    norm = np.sqrt(sum(np.sum(g**2) for g in grads))
    for w, new, g in zip(before, after, grads, strict=True):
        np.testing.assert_allclose(w - new, g * 0.25 / norm, rtol=1e-4)


def test_small_gradients_are_not_clipped(rng):
    model = small_model()
    (grads,) = random_gradients(model, rng, steps=1)
    optimizer = RecipeOptimizer(1.0, momentum=0.0, clip_norm=1e3)
    before, after = train(optimizer, model, [grads])
    for w, new, g in zip(before, after, grads, strict=True):
        np.testing.assert_allclose(w - new, g, rtol=1e-4, atol=1e-6)


def test_gradients_are_summed_over_replicas_before_clipping(two_replicas):
    """-10 and +1 make -9, clipped to -1; clipped first they would cancel."""
    with two_replicas.scope():
        weight = tf.keras.layers.Dense(1, use_bias=False)
        weight.build((None, 1))
        optimizer = RecipeOptimizer(1.0, momentum=0.0, clip_norm=1.0)
        optimizer.build(weight.trainable_variables)
    before = weight.get_weights()[0]

    @tf.function
    def step():
        def replica():
            which = tf.distribute.get_replica_context()
            grad = tf.gather(
                [[[-10.0]], [[1.0]]], which.replica_id_in_sync_group
            )
            optimizer.apply_gradients([(grad, weight.trainable_variables[0])])

        two_replicas.run(replica)

    step()
    assert weight.get_weights()[0] - before == pytest.approx(1.0, abs=1e-5)


def test_accumulated_batches_are_one_step_with_their_mean(rng):
    together, apart = small_model(), small_model()
    apart.set_weights(together.get_weights())
    steps = random_gradients(together, rng, steps=4)
    means = [
        [(a + b) / 2 for a, b in zip(*pair, strict=True)]
        for pair in (steps[:2], steps[2:])
    ]
    options = {"momentum": 0.9, "weight_decay": 0.1, "average_decay": 0.99}
    expected = train(
        RecipeOptimizer(0.1, **options).attach(together), together, means
    )
    optimizer = RecipeOptimizer(0.1, accumulation=2, **options).attach(apart)
    actual = train(optimizer, apart, steps)
    for i in range(len(expected[0])):
        np.testing.assert_array_equal(actual[1][i], expected[0][i])
        np.testing.assert_allclose(actual[2][i], expected[1][i], rtol=1e-5)
        np.testing.assert_allclose(actual[4][i], expected[2][i], rtol=1e-5)
    assert int(optimizer.updates) == 2


# Averages.


def test_average_follows_model_gardens_formula():
    """After 50 steps in which the weight is the step: 44.9 (0.9999)."""
    model = small_model()
    optimizer = RecipeOptimizer(1.0, momentum=0.0, average_decay=0.9999)
    zeros = [np.zeros(w.shape, np.float32) for w in model.get_weights()]
    model.set_weights(zeros)
    optimizer.attach(model)
    minus_one = [-np.ones(w.shape) for w in values(model)]
    train(optimizer, model, [minus_one] * 50)
    np.testing.assert_allclose(values(model)[0], 50.0)
    optimizer.swap_averages()
    np.testing.assert_allclose(values(model)[0], 44.9, rtol=1e-4)


def test_statistics_are_averaged_too(rng):
    model = small_model()
    optimizer = RecipeOptimizer(0.0, average_decay=0.9).attach(model)
    optimizer.build(model.trainable_variables)
    expected = model.get_weights()[-1]
    zero = [np.zeros(w.shape) for w in values(model)]
    for t in range(1, STEPS):
        model(rng.normal(size=(7, 3)).astype("float32"), training=True)
        apply(optimizer, model, zero)
        decay = min(0.9, (1 + t) / (10 + t))
        expected = decay * expected + (1 - decay) * model.get_weights()[-1]
    optimizer.swap_averages()
    np.testing.assert_allclose(model.get_weights()[-1], expected, rtol=1e-5)


def test_swapping_twice_changes_nothing(rng):
    model = small_model()
    optimizer = RecipeOptimizer(0.1, average_decay=0.9).attach(model)
    train(optimizer, model, random_gradients(model, rng))
    before = model.get_weights()
    optimizer.swap_averages()
    assert not np.array_equal(model.get_weights()[0], before[0])
    optimizer.swap_averages()
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_unsynchronised_statistics_are_averaged_over_replicas(two_replicas):
    with two_replicas.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((1,)),
                tf.keras.layers.BatchNormalization(momentum=0.0),
            ]
        )
        optimizer = RecipeOptimizer(0.0, average_decay=0.5).attach(model)
        optimizer.build(model.trainable_variables)

    @tf.function
    def step():
        def replica():
            which = tf.distribute.get_replica_context()
            number = tf.cast(which.replica_id_in_sync_group, tf.float32)
            model(tf.fill([4, 1], number), training=True)
            zeros = [tf.zeros(w.shape) for w in model.trainable_variables]
            optimizer.apply_gradients(
                zip(zeros, model.trainable_variables, strict=True)
            )

        two_replicas.run(replica)

    step()
    optimizer.swap_averages()
    # From 0 towards the mean of 0 and 1, with the decay 2 / 11.
    assert model.get_weights()[2] == pytest.approx(0.5 * 9 / 11)


# Float16.


def test_a_gradient_that_overflows_changes_nothing_but_the_scale(rng):
    model = small_model()
    optimizer = RecipeOptimizer(0.1, average_decay=0.9, scale_losses=True)
    (grads,) = random_gradients(model, rng, steps=1)
    grads[0][0, 0] = np.inf
    before, after = train(optimizer.attach(model), model, [grads])
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    assert float(optimizer.scale_loss(1.0)) == 2.0**14


def test_the_loss_scale_cancels(rng):
    scaled, plain = small_model(), small_model()
    scaled.set_weights(plain.get_weights())
    (grads,) = random_gradients(plain, rng, steps=1)
    expected = train(RecipeOptimizer(0.1), plain, [grads])
    optimizer = RecipeOptimizer(0.1, scale_losses=True)
    actual = train(optimizer, scaled, [[g * 2.0**15 for g in grads]])
    for a, b in zip(actual[1], expected[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


# What is decayed, and Keras' ways.


def test_only_kernels_are_decayed():
    inputs = tf.keras.layers.Input((5, 7, 3))
    x = tf.keras.layers.Conv2D(4, 3)(inputs)
    x = tf.keras.layers.BatchNormalization()(x)
    layer = layers.LambdaLayer(filters=8, num_heads=2, key_dim=3)
    x = layer(x)
    model = tf.keras.Model(inputs, x)
    shapes = sorted(tuple(w.shape) for w in decayed_weights(model))
    assert shapes == sorted(
        [
            (3, 3, 3, 4),
            tuple(layer.query.kernel.shape),
            tuple(layer.key.kernel.shape),
            tuple(layer.value.kernel.shape),
        ]
    )


@pytest.mark.parametrize("option", ["weight_decay", "average_decay"])
def test_a_forgotten_model_is_an_error(option):
    model = small_model()
    optimizer = RecipeOptimizer(0.1, **{option: 0.5})
    with pytest.raises(ValueError, match=r"optimizer\.attach\(model\)"):
        optimizer.build(model.trainable_variables)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "lion"}, "`rule` must be one of .*'lion'"),
        ({"accumulation": 0}, "`accumulation` must be at least 1"),
        ({"average_decay": 1.0}, r"`average_decay` must lie in \[0, 1\)"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        RecipeOptimizer(0.1, **arguments)


def test_gradients_of_other_weights_are_an_error():
    model = small_model()
    optimizer = RecipeOptimizer(0.1)
    optimizer.build(model.trainable_variables)
    with pytest.raises(ValueError, match="built for 4"):
        optimizer.apply_gradients(
            [(tf.zeros([3, 5]), model.trainable_variables[0])]
        )


def test_the_weights_of_the_model_are_not_the_optimizers(rng):
    """Keras 3 would list those that stand in the optimiser's attributes."""
    model = small_model()
    optimizer = RecipeOptimizer(0.1, average_decay=0.9).attach(model)
    train(optimizer, model, random_gradients(model, rng))
    weights = {id(raw_variable(w)) for w in model.weights}
    kept = [raw_variable(v) for v in optimizer.variables]
    assert not weights & {id(v) for v in kept}
    # Momenta of 4 weights and averages of 6; steps and rate are scalars.
    assert sum(bool(v.shape.rank) for v in kept) == 4 + 6


def test_config_round_trip():
    optimizer = RecipeOptimizer(0.25, "rmsprop", 0.8, 1e-4, 2.0, 3, 0.99, True)
    again = RecipeOptimizer.from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()


def test_compile_and_fit(rng):
    model = small_model()
    optimizer = RecipeOptimizer(0.01, weight_decay=1e-4, average_decay=0.9)
    model.compile(optimizer.attach(model), loss="mse", jit_compile=False)
    inputs = rng.normal(size=(64, 3)).astype("float32")
    targets = inputs @ rng.normal(size=(3, 5)).astype("float32")
    history = model.fit(inputs, targets, epochs=8, verbose=0).history["loss"]
    assert history[-1] < history[0]
    assert int(optimizer.iterations) == 16
