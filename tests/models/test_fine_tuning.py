"""Frozen parts stay as they are."""

import re

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf.models.graph import layers_in
from tests.support import checks
from tests.support import networks
from tests.support.networks import arrays
from tests.support.networks import same_weights


def network(**arguments):
    model = networks.tiny(
        stages=("LL", "C"),
        widths=(8, 16),
        strides=(1, 2),
        share_embeddings=True,
        **arguments,
    )
    networks.vary(model)
    return model


def of_parts(model, *parts):
    """The names of the weights of parts; "head" are all others."""
    part = re.compile("stem|stage2|stage3")
    return {n for n in arrays(model) if (part.match(n) or ["head"])[0] in parts}


def trained(model):
    """The names of the weights that are trained, or follow the training."""
    weights = {id(weight) for weight in model.trainable_weights}
    for layer in layers_in(model):
        if isinstance(layer, layers.BatchNormalization) and layer.trainable:
            weights |= {id(layer.moving_mean), id(layer.moving_variance)}
    named = models.named_weights(model)
    return {name for name, weight in named.items() if id(weight) in weights}


def moved_by_fit(model):
    before = arrays(model)
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.fit(networks.some_images(8, 16, 16, 3), np.arange(8) % 5, verbose=0)
    return before.keys() - same_weights(model, before)


@pytest.mark.slow
def test_frozen_parts_stay(tmp_path):
    model = network()
    models.freeze(model, "stage2")
    learning = of_parts(model, "stage3", "head")
    copied = checks.COPIES["keras_file"](model, tmp_path)
    assert trained(copied) == trained(model) == learning
    assert moved_by_fit(model) == learning
    # Also the normalizations inside lambda layers.
    models.freeze(model, None, normalization=True)
    norms = ("/gamma", "/beta", "/moving_mean", "/moving_variance")
    still = {name for name in arrays(model) if name.endswith(norms)}
    assert trained(model) == moved_by_fit(model) == {*arrays(model)} - still


def test_freezing_sets_all_that_is_inside():
    backbone = network(include_top=False, pooling="avg")
    images, clips = tf.keras.Input((16, 16, 3)), tf.keras.Input((2, 16, 16, 3))
    around = tf.keras.Model(images, tf.keras.layers.Dense(5)(backbone(images)))
    scores = tf.keras.layers.TimeDistributed(around)(clips)
    model = tf.keras.Model(clips, scores)
    backbone.trainable = False
    for layer in backbone.layers[:20]:
        layer.trainable = True
    models.freeze(model, "stage2")
    assert trained(backbone) == of_parts(backbone, "stage3")


def test_a_model_without_parts_is_told_what_a_part_is():
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.ReLU()])
    with pytest.raises(ValueError, match="it has none.*'stage4_block1"):
        models.freeze(model, "stage3")
    with pytest.raises(ValueError, match="stem, stage2, stage3. .Names"):
        models.freeze(network(), "stage9")
