"""What was said of a layer holds for its copies: files, clones, pickles.

Every public layer goes through every way that Keras has to make another
layer or model of one.
"""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.environment import KERAS_3
from tests.support import cases
from tests.support import checks

# A row of the table for every public layer.
ONE_OF_EACH = {case.layer: case for case in reversed(cases.CASES)}.values()
every_layer = pytest.mark.parametrize("case", ONE_OF_EACH, ids=lambda x: x.name)


def layer_of(model, layer_type):
    return next(x for x in model.layers if isinstance(x, layer_type))


def trains(model, data):
    """Which parts of a model train: none moves in a step if none trains."""
    before = model.get_weights()
    model(data, training=True)
    pairs = zip(before, model.get_weights(), strict=True)
    moved = sum(not np.array_equal(*pair) for pair in pairs)
    model.set_weights(before)
    return len(model.trainable_weights), moved


@pytest.mark.slow
@pytest.mark.representatives(3)
@every_layer
def test_frozen_layers_stay_frozen(case, tmp_path):
    data = case.data(batch=2)
    frozen = {"in the constructor": case.model(trainable=False)}
    layer = case.make()
    layer.trainable = False
    frozen["before it was built"] = case.model(layer)
    model = case.model()
    if model.trainable_weights:
        assert trains(model, data) != (0, 0)
    layer_of(model, case.layer).trainable = False
    frozen["once built"] = model
    for way, copied in checks.COPIES.items():
        frozen[way] = copied(model, tmp_path)
    for when, model in frozen.items():
        assert trains(model, data) == (0, 0), when
        layer = layer_of(model, case.layer)
        assert not layer.trainable, when
        layer.trainable = True
        assert len(model.trainable_weights) == case.trainable, when


def sublayers(layer):
    return {
        name: value
        for name, value in sorted(vars(layer).items())
        if isinstance(value, tf.keras.layers.Layer)
    }


@pytest.mark.parametrize("way", ["keras_file", "clone_model"])
@every_layer
def test_partly_frozen_layers_stay_so(case, way, tmp_path):
    model = case.model()
    own = sublayers(layer_of(model, case.layer))
    names = list(own)
    for frozen in (names[:1], names[1:]):
        for name in names:
            own[name].trainable = name not in frozen
        copied = layer_of(checks.COPIES[way](model, tmp_path), case.layer)
        for name, sublayer in sublayers(copied).items():
            assert sublayer.trainable == (name not in frozen), name
            assert bool(sublayer.trainable_weights) == (name not in frozen)


@every_layer
def test_what_is_set_for_sublayers_counts_until_the_layer_is_set(case):
    layer = layer_of(case.model(), case.layer)
    for sublayer in sublayers(layer).values():
        sublayer.trainable = False
    config = checks.plain(layer.get_config())
    # Once more, without having been built in between.
    config = checks.plain(case.layer.from_config(config).get_config())
    assert config == checks.plain(layer.get_config())
    again = case.layer.from_config(config)
    again.trainable = False
    case.model(again)
    again.trainable = True
    assert len(again.trainable_weights) == case.trainable


@every_layer
def test_what_keras_takes_for_any_layer_is_kept(case):
    data = case.data(batch=2)
    layer = case.make(activity_regularizer="l2", autocast=False)
    case.call(layer, data)
    again = case.layer.from_config(checks.plain(layer.get_config()))
    case.call(again, data)
    assert len(again.losses) == len(layer.losses) > 0
    assert again.get_config() == layer.get_config()


@pytest.mark.skipif(not KERAS_3, reason="Keras 2 fixes the policy")
@every_layer
def test_policy_that_is_set_later(case):
    data = case.data(batch=2)
    layer = case.make()
    expected = case.call(layer, data)
    layer.dtype_policy = "mixed_bfloat16"
    output = case.call(layer, data)
    assert output.dtype == "bfloat16"
    checks.assert_close(tf.cast(output, tf.float32), expected, 1e-1)
