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


def trained(model):
    """The names of the weights that are trained, or follow the training."""
    weights = {id(weight) for weight in model.trainable_weights}
    for layer in model._flatten_layers():
        if isinstance(layer, layers.BatchNormalization) and layer.trainable:
            weights |= {id(layer.moving_mean), id(layer.moving_variance)}
    named = models.named_weights(model)
    return {name for name, weight in named.items() if id(weight) in weights}


def moved_by_fit(model):
    """The names of the weights that one step changes."""
    before = arrays(model)
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.fit(some_images(8, 16, 16, 3), np.arange(8) % 5, verbose=0)
    return before.keys() - same_weights(model, before)


@pytest.mark.slow
def test_frozen_parts_stay(tmp_path):
    model = network()
    models.freeze(model, "stage2")
    learning = of_parts(arrays(model), {"stage3", "head"})
    copied = checks.COPIES["keras_file"](model, tmp_path)
    assert trained(copied) == trained(model) == learning
    assert moved_by_fit(model) == learning
    # Also the normalizations inside lambda layers.
    models.freeze(model, None, normalization=True)
    norms = ("gamma", "beta", "moving_mean", "moving_variance")
    still = {n for n in arrays(model) if n.split("/")[-1] in norms}
    assert trained(model) == moved_by_fit(model) == {*arrays(model)} - still


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


def steps(model, optimizers):
    """Two steps of optimizers by part, or of one."""
    loss = tf.keras.losses.SparseCategoricalCrossentropy()
    images, labels = some_images(6, 16, 16, 3), np.arange(6) % 5
    for _ in range(2):
        with tf.GradientTape() as tape:
            error = loss(labels, model(images, training=False))
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
def test_rates_are_those_of_an_optimizer_for_each_part():
    def make(rate):
        return tf.keras.optimizers.AdamW(rate, weight_decay=0.1)

    model, expected = network(), network()
    steps(model, {"all": models.rates_by_depth(make(0.01), model, 0.5)})
    rates = {part: 0.01 * 0.5 ** (3 - i) for i, part in enumerate(PARTS)}
    rates["head"] = 0.01
    steps(expected, {part: make(rate) for part, rate in rates.items()})
    checks.assert_all_close(arrays(model), arrays(expected), 1e-5)
    moving = {name for name in arrays(model) if "moving" in name}
    assert same_weights(model, network()) <= moving
