"""Frozen parts stay as they are, slowed ones learn at their own rates."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from tests.support import checks
from tests.support.networks import arrays
from tests.support.networks import same_weights
from tests.support.networks import some_images
from tests.support.networks import tiny
from tests.support.networks import vary

PARTS = ("stem", "stage2", "stage3")


def network(**arguments):
    model = tiny(
        stages=("LL", "C"),
        widths=(8, 16),
        strides=(1, 2),
        share_embeddings=True,
        **arguments,
    )
    vary(model)
    return model


def around(backbone):
    """Somebody's model around a network, with a head of its own."""
    images = tf.keras.Input((16, 16, 3))
    scores = tf.keras.layers.Dense(5, name="mine")(backbone(images))
    return tf.keras.Model(images, scores)


def part_of(name):
    part = name.split("_")[0].split("/")[0]
    return part if part in PARTS else "head"


def of_parts(names, parts):
    return {name for name in names if part_of(name) in parts}


def loss():
    return tf.keras.losses.SparseCategoricalCrossentropy()


def data(count):
    return some_images(count, 16, 16, 3), np.arange(count) % 5


def fit_once(model, optimizer="sgd"):
    """One step; returns the weights of before by name."""
    before = arrays(model)
    model.compile(optimizer, loss())
    model.fit(*data(8), verbose=0)
    return before


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("up_to", "inside"),
    [("stem", False), ("stage2", True)],
)
def test_frozen_parts_stay(up_to, inside):
    backbone = network(include_top=not inside, pooling="avg")
    model = around(backbone) if inside else backbone
    models.freeze(model, up_to)
    before = arrays(backbone)
    fit_once(model)
    frozen = PARTS[: PARTS.index(up_to) + 1]
    assert len(before) == len(backbone.weights)
    assert same_weights(backbone, before) == of_parts(before, frozen)
    models.freeze(model, None)
    assert len(backbone.trainable_weights) > 0
    assert all(layer.trainable for layer in model.layers)


def trained(model):
    """The names of the weights that are trained, or follow the training."""
    named = models.named_weights(model)
    weights = {id(weight) for weight in model.trainable_weights}
    norms = [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, layers.BatchNormalization) and layer.trainable
    ]
    for norm in norms:
        weights |= {id(norm.moving_mean), id(norm.moving_variance)}
    return {name for name, weight in named.items() if id(weight) in weights}


@pytest.mark.slow
def test_frozen_parts_of_files_stay(tmp_path):
    model = network()
    assert trained(model) == set(arrays(model))
    for up_to, normalization in (("stage2", False), (None, True)):
        models.freeze(model, up_to, normalization=normalization)
        copied = checks.COPIES["keras_file"](model, tmp_path)
        left = trained(model)
        assert trained(copied) == left
        parts = {"stage3", "head"} if up_to else {*PARTS, "head"}
        assert {part_of(name) for name in left} == parts
        models.freeze(copied, None)
        assert trained(copied) == set(arrays(copied))
        models.freeze(copied, "stage3")
        assert {part_of(name) for name in trained(copied)} == {"head"}


@pytest.mark.parametrize("outer", [around, tf.keras.layers.TimeDistributed])
def test_freezing_sets_all_that_is_inside(outer):
    backbone = network(include_top=False, pooling="avg")
    inputs = tf.keras.Input((2, 16, 16, 3))
    model = outer(backbone)
    if outer is not around:
        model = tf.keras.Model(inputs, model(inputs))
    backbone.trainable = False
    for layer in backbone.layers[:20]:
        layer.trainable = True
    models.freeze(model, "stage2")
    assert trained(backbone) == of_parts(arrays(backbone), {"stage3"})


@pytest.mark.slow
def test_normalizations_inside_lambda_layers_are_frozen():
    model = network()
    models.freeze(model, None, normalization=True)
    norms = ("gamma", "beta", "moving_mean", "moving_variance")
    still = {n for n in arrays(model) if n.split("/")[-1] in norms}
    assert any("lambda" in name for name in still)
    assert trained(model) == set(arrays(model)) - still
    assert same_weights(model, fit_once(model)) == still
    # Any model, also where layers are made in layers.
    inputs = tf.keras.Input((5, 6))
    outputs = tf.keras.Sequential(
        [layers.LambdaLayer(6, num_heads=2, key_dim=3)]
    )(inputs)
    model = tf.keras.Model(inputs, outputs)
    models.freeze(model, None, normalization=True)
    assert len(model.trainable_weights) == 4


OPTIMIZERS = {
    "sgd": lambda rate: tf.keras.optimizers.SGD(rate, 0.9, nesterov=True),
    "adamw": lambda rate: tf.keras.optimizers.AdamW(rate, weight_decay=0.1),
}


def steps(model, optimizers):
    """Two steps of optimizers by part, or of one; the losses."""
    images, labels = data(6)
    for _ in range(2):
        with tf.GradientTape() as tape:
            error = loss()(labels, model(images, training=False))
        weights = model.trainable_weights
        pairs = list(zip(tape.gradient(error, weights), weights, strict=True))
        names = {id(w): n for n, w in models.named_weights(model).items()}
        for part, optimizer in optimizers.items():
            optimizer.apply_gradients(
                (gradient, weight)
                for gradient, weight in pairs
                if part in ("all", part_of(names[id(weight)]))
            )


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_rates_are_those_of_an_optimizer_for_each_part(kind):
    make, decay = OPTIMIZERS[kind], 0.5
    model, expected = network(), network()
    steps(model, {"all": models.rates_by_depth(make(0.01), model, decay)})
    rates = {part: 0.01 * decay ** (3 - i) for i, part in enumerate(PARTS)}
    rates["head"] = 0.01
    steps(expected, {part: make(rate) for part, rate in rates.items()})
    ours = arrays(model)
    checks.assert_all_close(ours, arrays(expected), 1e-5)
    moving = {name for name in ours if "moving" in name}
    assert same_weights(model, network()) <= moving


@pytest.mark.thorough
def test_fit_uses_the_rates_also_where_losses_are_scaled():
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = network()
    optimizer = tf.keras.optimizers.SGD(1.0)
    before = fit_once(model, models.rates_by_depth(optimizer, model, 0.0))
    same = {n for n in same_weights(model, before) if "moving" not in n}
    learned = {name for name in before if "moving" not in name}
    assert same == of_parts(learned, PARTS)


@pytest.mark.slow
def test_unfrozen_parts_have_their_rates():
    model = network()
    optimizer = models.rates_by_depth(tf.keras.optimizers.SGD(0.1), model, 0.0)
    models.freeze(model, "stage2")
    before = arrays(model)
    models.freeze(model, None)
    steps(model, {"all": optimizer})
    same = same_weights(model, before)
    assert "stem_conv1/kernel" in same
    assert "predictions/kernel" not in same


@pytest.mark.thorough
def test_rates_on_two_replicas(two_replicas):
    def trained(strategy):
        with strategy.scope():
            model = network()
            optimizer = tf.keras.optimizers.SGD(0.1)
            models.rates_by_depth(optimizer, model, 0.5)
        images, labels = data(6)

        @tf.function
        def step():
            def on_replica():
                with tf.GradientTape() as tape:
                    scores = model(images, training=False)
                    errors = tf.keras.losses.sparse_categorical_crossentropy(
                        labels, scores
                    )
                    error = tf.reduce_mean(errors)
                    error /= strategy.num_replicas_in_sync
                weights = model.trainable_weights
                gradients = tape.gradient(error, weights)
                optimizer.apply_gradients(zip(gradients, weights, strict=True))

            strategy.run(on_replica)

        before = arrays(model)
        step()
        return {n: v - before[n] for n, v in arrays(model).items()}

    one = trained(tf.distribute.get_strategy())
    # Of small differences.
    checks.assert_all_close(trained(two_replicas), one, 1e-3)
