"""Layers put into networks of others: what changes, and what stays."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from tests.support import checks
from tests.support.arrays import assert_same

KERAS = tf.keras.layers


def stack(shape, *layers):
    inputs = x = tf.keras.Input(shape)
    for layer in layers:
        x = layer(x)
    return tf.keras.Model(inputs, x)


def small(**arguments):
    arguments = {"filters": 8, "kernel_size": 3, **arguments}
    first, middle = KERAS.Conv2D(8, 3), KERAS.Conv2D(name="middle", **arguments)
    return stack((8, 8, 4), first, middle, KERAS.GlobalMaxPooling2D())


def put(make, *names):
    """A rule for the layers of these names, or for `middle`."""
    chosen = names or ("middle",)
    return lambda layer, place: make() if layer.name in chosen else None


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "size", "chosen", "count"),
    [
        ("ResNet50", 32, {"names": "conv[45]_block"}, 9),
        ("EfficientNetV2B0", 32, {"max_size": 8}, 3),
    ],
)
def test_what_a_rule_leaves_is_kept(name, size, chosen, count, rng):
    model = getattr(tf.keras.applications, name)(
        input_shape=(size, size, 3), weights=None, classes=10
    )
    config, weights = model.to_json(), model.get_weights()
    x = rng.random((2, size, size, 3), "float32")
    new = models.replace_layers(model, models.convolution_rule(**chosen))
    assert new.output_shape == model.output_shape
    lambdas = LambdaLayer, LambdaConv
    made = {x.name for x in new.layers if isinstance(x, lambdas)}
    assert len(made) == count
    for kept in new.layers:
        if kept.name not in made:
            old = model.get_layer(kept.name)
            assert old is not kept
            assert_same(old.get_weights(), kept.get_weights())
    # Without batch statistics many untrained layers in a row overflow.
    assert np.all(np.isfinite(new(x, training=True)))
    # The network itself stays as it is.
    assert model.to_json() == config
    assert_same(model.get_weights(), weights)


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        ({}, ["LambdaLayer"]),
        ({"strides": 2}, ["LambdaConv"]),
        ({"padding": "valid", "dilation_rate": 2}, ["LambdaConv"]),
        ({"activation": "relu"}, ["LambdaLayer", "Activation"]),
        ({"kernel_constraint": "max_norm"}, ["LambdaLayer"]),
    ],
)
def test_what_a_convolution_becomes(arguments, kinds):
    model = small(**{"padding": "same", **arguments})
    new = models.replace_layers(model, models.convolution_rule(names="middle"))
    made = [x for x in new.layers if x.name.startswith("middle")]
    assert [type(x).__name__ for x in made] == kinds
    middle = model.get_layer("middle")
    assert made[-1].name == "middle"
    assert tuple(made[-1].output.shape) == tuple(middle.output.shape)
    kept = (x.get_config()["kernel_constraint"] for x in (made[0], middle))
    assert len({str(constraint) for constraint in kept}) == 1
    if len(kinds) > 1:
        assert np.min(made[-1](-np.ones([1, 6, 6, 8], "float32"))) == 0


@pytest.mark.parametrize("call", ["causal", "by position", "by name"])
def test_masks_are_passed_on(call, rng):
    """`LambdaLayer` takes the first argument, whatever it was called."""
    words, mask = tf.keras.Input((6, 8)), tf.keras.Input((6, 6), dtype="bool")
    inputs = [words] if call == "causal" else [words, mask]
    heads = KERAS.MultiHeadAttention(2, 4, kernel_constraint="max_norm")
    outputs = {
        "causal": lambda: heads(words, words, use_causal_mask=True),
        "by position": lambda: heads(words, words, attention_mask=mask),
        "by name": lambda: heads(query=words, value=words, attention_mask=mask),
    }
    model = tf.keras.Model(inputs, outputs[call]())
    new = models.replace_layers(model, models.attention_rule(scope=5))
    assert new.layers[-1].get_config()["kernel_constraint"]
    x = rng.normal(size=[1, 6, 8]).astype("float32")
    given = [x, np.tril(np.ones([1, 6, 6], bool))][: len(model.inputs)]
    outputs = new(given)
    x[:, 5] += 1.0
    checks.assert_close(new(given)[:, :5], outputs[:, :5], 1e-6)
    checks.assert_far(new(given)[:, 5], outputs[:, 5], 1e-3)


def test_operations_shared_layers_and_several_inputs(rng):
    images = {k: tf.keras.Input((8, 8, 3), name=k) for k in ("left", "right")}
    convolution = KERAS.Conv2D(8, 3, padding="same")
    again = KERAS.Conv2D(8, 3, padding="same")
    shared = stack((8, 8, 3), convolution, KERAS.ReLU(), again, again)
    dense, flat = KERAS.Dense(4), KERAS.Reshape((7 * 64,), name="flat")
    sides = [shared(2.0 * x - 1.0) for x in images.values()]
    x = sides[0][:, 1:] + sides[1][:, :-1]
    x = KERAS.Conv2D(8, 1)(x)
    outputs = [flat(dense(x)[..., :1] + x), {"x": dense(-x)}]
    model = tf.keras.Model(images, outputs)
    given = {k: rng.random((2, 8, 8, 3), "float32") for k in images}
    same = models.replace_layers(
        model, put(lambda: KERAS.Flatten(name="flat"), "flat")
    )
    assert same.output_names == model.output_names
    found = same(given)
    assert_same(tf.nest.flatten(model(given)), tf.nest.flatten(found))
    assert isinstance(found[1], dict)
    assert len(same.weights) == len(model.weights)
    new = models.replace_layers(model, models.convolution_rule())
    (inner,) = [x for x in new.layers if isinstance(x, tf.keras.Model)]
    kinds = [type(layer).__name__ for layer in inner.layers[1:]]
    assert kinds == ["LambdaLayer", "ReLU", "LambdaLayer"]
    assert np.all(np.isfinite(new(given)[0]))


def test_what_was_frozen_stays_so_and_what_is_new_trains():
    a, b = (KERAS.Conv2D(8, 3, padding="same", name=name) for name in "ab")
    backbone = stack((8, 8, 3), a, b, KERAS.BatchNormalization(name="norm"))
    other = stack((8,), KERAS.Dense(2))
    backbone.trainable = other.trainable = False
    a.trainable = True  # In a frozen model, which tf_keras does not train.
    pool, head = KERAS.GlobalAveragePooling2D(), KERAS.Dense(3)
    model = stack((8, 8, 3), backbone, pool, other, head)
    rule = models.convolution_rule(scope=3, names="/b$")
    new = models.replace_layers(model, rule)
    (first, second) = [x for x in new.layers if isinstance(x, tf.keras.Model)]
    trainable = {x.name: x.trainable for x in first.layers[1:]}
    assert trainable == {"a": KERAS_3, "b": True, "norm": False}
    layer = first.get_layer("b")
    others = 4 if KERAS_3 else 2
    assert len(new.trainable_weights) == len(layer.trainable_weights) + others
    assert not second.trainable_weights


def attention(*shapes, **arguments):
    layer = KERAS.MultiHeadAttention(2, 4, name="heads", **arguments)
    inputs = [tf.keras.Input(shape) for shape in shapes]
    return tf.keras.Model(inputs, layer(inputs[0], inputs[-1]))


OWN = type("Own", (tf.keras.Model,), {"call": lambda self, x: 2 * x})
_RULE, _HEADS = models.convolution_rule(), models.attention_rule()
REFUSED = [
    (lambda: small(groups=2), models.convolution_rule(max_size=6), "all 3"),
    (lambda: attention((5, 8), (7, 8)), _HEADS, "for all 1 layers"),
    (lambda: attention((5, 5, 8), attention_axes=1), _HEADS, "all 1 layers"),
    (small, put(lambda: LambdaLayer(num_heads=3)), "must divide"),
    (lambda: small(padding="same"), models.convolution_rule(4), "must be odd"),
    (lambda: OWN(*2 * [tf.keras.Input((3,))]), _RULE, "must be a functional"),
]


@pytest.mark.parametrize(("make", "rule", "message"), REFUSED)
def test_what_is_refused(make, rule, message):
    model = make()
    with pytest.raises(ValueError, match=message):
        models.replace_layers(model, rule)


def test_attention_of_other_channels_keeps_them():
    new = models.replace_layers(attention((5, 8), output_shape=12), _HEADS)
    assert new.output_shape == (None, 5, 12)


def test_what_keras_adds_to_a_call_is_no_argument_of_the_new_layer(rng):
    """Keras 3 keeps the mask of a tensor with a call, also one of None."""
    model = stack([4, 4, 6], KERAS.BatchNormalization(name="norm"))
    rule = put(KERAS.ReLU, "norm")
    images = rng.normal(size=[2, 4, 4, 6]).astype(np.float32)
    found = models.replace_layers(model, rule)(images)
    np.testing.assert_array_equal(found, np.maximum(images, 0))
