"""What was said of a layer holds for its copies: files, clones, pickles.

Every public layer goes through every way that Keras has to make another
layer or model of one.
"""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.environment import KERAS_3
from tests.support import cases
from tests.support import checks

# A row of the table for every public layer.
ONE_OF_EACH = {case.layer: case for case in reversed(cases.CASES)}.values()
every_layer = pytest.mark.parametrize(
    "case", ONE_OF_EACH, ids=lambda case: case.name
)


def layer_of(model, layer_type):
    return next(x for x in model.layers if isinstance(x, layer_type))


def trains(model, data):
    """Which parts of a model train: none moves in a step if none trains."""
    before = model.get_weights()
    model(data, training=True)
    moved = [
        not np.array_equal(one, other)
        for one, other in zip(before, model.get_weights(), strict=True)
    ]
    model.set_weights(before)
    return len(model.trainable_weights), sum(moved)


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


@every_layer
def test_inputs_that_keras_does_not_cast(case):
    # With `autocast=False` they come in whatever precision they have.
    data = case.data(batch=2)
    layer = case.make()
    expected = case.call(layer, data)
    for policy, tolerance in (("float32", 1e-5), ("mixed_bfloat16", 1e-1)):
        same = case.make(autocast=False, dtype=policy)
        case.call(same, data)
        same.set_weights(layer.get_weights())
        wide = {
            name: x if x.dtype == bool else tf.constant(x, tf.float64)
            for name, x in data.items()
        }
        for inputs in (data, wide):
            output = tf.cast(case.call(same, inputs), tf.float32)
            checks.assert_close(output, expected, tolerance)


@every_layer
def test_policy_that_is_set_later(case):
    if not KERAS_3:
        with pytest.raises(AttributeError):
            case.make().dtype_policy = "mixed_bfloat16"
        return
    data = case.data(batch=2)
    layer = case.make()
    expected = case.call(layer, data)
    layer.dtype_policy = "mixed_bfloat16"
    output = case.call(layer, data)
    assert output.dtype == "bfloat16"
    checks.assert_close(tf.cast(output, tf.float32), expected, 1e-1)
    layer.dtype_policy = "float32"
    checks.assert_close(case.call(layer, data), expected, 1e-6)


@pytest.mark.representatives(1)
@every_layer
def test_quantized_layers_are_loaded(case, tmp_path):
    if not KERAS_3:
        return  # has no quantization
    model = case.model()
    data = {name: tf.constant(x) for name, x in case.data(batch=2).items()}
    expected = model(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layers that are not quantized
        model.quantize("int8")
    quantized = model(data)
    checks.assert_close(quantized, expected, 5e-2)
    for way in ("keras_file", "pickle"):
        copied = checks.COPIES[way](model, tmp_path)
        np.testing.assert_array_equal(copied(data), quantized)


CONSTANTS = [
    case
    for case in cases.CASES
    if case.attention_mask is not None or len(case.shapes) > 1
]
KINDS = tf.constant, np.asarray, lambda value: value.tolist()


@pytest.mark.slow
def test_constants_of_a_model_are_kept(tmp_path):
    """Of each row as one kind of number in the model, as all in the call."""
    inputs, outputs, expected, xs = {}, {}, {}, {}
    for number, case in enumerate(CONSTANTS):
        name, data = case.name, case.data(batch=1)
        xs[name] = data.pop("inputs")
        if case.attention_mask is not None:
            data["attention_mask"] = case.attention_mask
        layer = case.make(name=f"{name}_layer")
        expected[name] = layer(xs[name], **data)
        given = [{key: kind(x) for key, x in data.items()} for kind in KINDS]
        for constants in given:
            output = layer(xs[name], **constants)
            checks.assert_close(output, expected[name], 1e-6)
        inputs[name] = tf.keras.Input(case.inputs, batch_size=1, name=name)
        outputs[name] = layer(inputs[name], **given[number % len(KINDS)])
    model = tf.keras.Model(inputs, outputs)
    checks.assert_all_close(model(xs), expected, 1e-6)
    for way in ("keras_file", "clone_model"):
        copied = checks.COPIES[way](model, tmp_path)
        copied.set_weights(model.get_weights())
        checks.assert_all_close(copied(xs), expected, 1e-6)
