"""Layers put into networks of others: what changes, and what stays."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import models
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.models import weight_names
from lambdanet_tf.serving import fold_batch_norm
from tests.support import checks
from tests.support.arrays import assert_same

KERAS = tf.keras.layers


def model_of(call, *shapes, **arguments):
    """A model of what a function makes of inputs of these shapes."""
    inputs = [tf.keras.Input(shape, **arguments) for shape in shapes]
    given = inputs if len(inputs) > 1 else inputs[0]
    return tf.keras.Model(given, call(*inputs))


def small(**arguments):
    """Convolutions of which one is called `middle`."""
    arguments = {"filters": 8, "kernel_size": 3, **arguments}

    def call(images):
        x = KERAS.Conv2D(8, 3, name="first")(images)
        x = KERAS.Conv2D(name="middle", **arguments)(x)
        return KERAS.GlobalMaxPooling2D()(x)

    return model_of(call, (8, 8, 4))


def keep(layer, place):
    """A rule that replaces nothing."""


def rule_of(make, *names):
    """A rule for the layers of these names."""
    return lambda layer, place: make() if layer.name in names else None


# Networks of others, of which convolutions, and how many there are.
NETWORKS = [
    ("ResNet50", 64, {"names": "conv[45]_block"}, 9),
    ("EfficientNetV2B0", 64, {"max_size": 16}, 3),
    ("InceptionV3", 96, {}, 17),
]


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.filterwarnings("ignore:Two lambda layers in direct succession")
@pytest.mark.parametrize(("name", "size", "chosen", "count"), NETWORKS)
def test_what_a_rule_leaves_is_kept(name, size, chosen, count, rng):
    model = getattr(tf.keras.applications, name)(
        input_shape=(size, size, 3), weights=None, classes=10
    )
    config, weights = model.to_json(), model.get_weights()
    x = rng.random((2, size, size, 3), "float32")
    outputs = model(x)
    same = models.replace_layers(model, keep)
    np.testing.assert_array_equal(same(x), outputs)
    rule = models.convolution_rule(grouped="leave", **chosen)
    new = models.replace_layers(model, rule)
    assert new.output_shape == model.output_shape
    old, now = ({x.name: x for x in m.layers} for m in (model, new))
    assert len(old.keys() - now.keys()) == count
    for kept in old.keys() & now.keys():
        assert old[kept] is not now[kept]
        assert_same(old[kept].get_weights(), now[kept].get_weights())
    lambdas = LambdaLayer, LambdaConv
    assert len([x for x in new.layers if isinstance(x, lambdas)]) == count
    # Without batch statistics many untrained layers in a row overflow.
    assert np.all(np.isfinite(new(x, training=True)))
    # The network itself stays as it is.
    assert model.to_json() == config
    assert_same(model.get_weights(), weights)


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        ({"padding": "same", "use_bias": False}, ["LambdaLayer"]),
        ({"strides": 2, "padding": "same", "use_bias": False}, ["LambdaConv"]),
        ({"dilation_rate": 2, "padding": "same", "use_bias": False},
         ["LambdaConv"]),
        ({"padding": "same"}, ["LambdaLayer", "BatchNormalization"]),
        ({"padding": "same", "activation": "relu"},
         ["LambdaLayer", "BatchNormalization", "Activation"]),
        ({"padding": "same", "activation": "relu", "use_bias": False},
         ["LambdaLayer", "Activation"]),
    ],
)  # fmt: skip
def test_what_a_convolution_is_followed_by(arguments, kinds, rng):
    model = small(**arguments)
    checks.randomize(model, rng)
    new = models.replace_layers(model, models.convolution_rule(names="middle"))
    made = [x for x in new.layers if x.name.startswith("middle")]
    assert [type(x).__name__ for x in made] == kinds
    middle = model.get_layer("middle")
    assert tuple(made[-1].output.shape) == tuple(middle.output.shape)
    if "BatchNormalization" in kinds:
        np.testing.assert_array_equal(made[1].beta, middle.get_weights()[1])
    if "Activation" in kinds:
        assert np.min(made[-1](-np.ones([1, 6, 6, 8], "float32"))) == 0


def test_no_second_normalization():
    def call(x):
        x = KERAS.Conv2D(8, 3, padding="same", name="conv")(x)
        return KERAS.BatchNormalization()(x)

    new = models.replace_layers(model_of(call, (8, 8, 4)), _RULE)
    assert len(new.layers) == 3


@pytest.mark.slow
def test_attention_becomes_causal_and_keeps_masks(rng):
    def first_of(causal):
        words = tf.keras.Input((12,), dtype="int32")
        embedding = KERAS.Embedding(50, 16, mask_zero=True, name="words")
        x = embedding(words)
        x = KERAS.MultiHeadAttention(2, 8)(x, x, use_causal_mask=causal)
        model = tf.keras.Model(words, x)
        new = models.replace_layers(model, models.attention_rule())
        return new.get_layer("words"), new

    text = rng.integers(1, 50, [2, 12]).astype("int32")
    later = text.copy()
    later[:, 7:] = 3
    _, inner = first_of(causal=True)
    np.testing.assert_array_equal(inner(text)[:, :7], inner(later)[:, :7])
    embedding, inner = first_of(causal=False)
    text[:, 8:] = 0  # padding, which no other word reads
    outputs = inner(text)[:, :8]
    embedding.embeddings.assign_add(np.arange(50)[:, None] == np.zeros([1, 16]))
    checks.assert_close(inner(text)[:, :8], outputs, 1e-6)


def test_an_attention_mask_is_passed_on(rng):
    words = tf.keras.Input((6, 8))
    mask = tf.keras.Input((6, 6), dtype="bool")
    outputs = KERAS.MultiHeadAttention(2, 4)(words, words, attention_mask=mask)
    model = tf.keras.Model([words, mask], outputs)
    new = models.replace_layers(model, models.attention_rule(scope=5))
    x = rng.normal(size=[1, 6, 8]).astype("float32")
    mask = np.ones([1, 6, 6], bool)
    mask[..., 4:] = False
    outputs = new([x, mask])
    x[:, 5] += 1.0
    checks.assert_close(new([x, mask])[:, :5], outputs[:, :5], 1e-6)


def test_operations_shared_layers_and_several_inputs(rng):
    images = {
        name: tf.keras.Input((8, 8, 3), name=name) for name in ("left", "right")
    }
    shared = tf.keras.Sequential(
        [tf.keras.Input((8, 8, 3)), KERAS.Conv2D(8, 3, padding="same")]
    )
    dense = KERAS.Dense(4)
    sides = [shared(2.0 * x - 1.0) for x in images.values()]
    x = sides[0][:, 1:] + sides[1][:, :-1]
    scale = KERAS.Lambda(lambda x: 3.0 * x, output_shape=(7, 8, 8))(x)
    outputs = [dense(scale), {"x": dense(-x)}]
    model = tf.keras.Model(images, outputs)
    given = {k: rng.random((2, 8, 8, 3), "float32") for k in images}
    same = models.replace_layers(model, keep)
    pair = tf.nest.flatten(model(given)), tf.nest.flatten(same(given))
    assert_same(*pair)
    assert isinstance(same(given)[1], dict)
    new = models.replace_layers(model, models.convolution_rule())
    (inner,) = [x for x in new.layers if isinstance(x, tf.keras.Model)]
    assert isinstance(inner.layers[1], LambdaLayer)
    assert np.all(np.isfinite(new(given)[0]))


ADAPTED = {
    "Normalization": ({}, [[1.0, 5.0, 2.0], [7.0, 2.0, 2.5]]),
    "StringLookup": (
        {"output_mode": "tf_idf", "max_tokens": 9, "pad_to_max_tokens": True},
        [["a"], ["b"], ["a"]],
    ),
    "IntegerLookup": ({"mask_token": 0}, [[5], [7], [5]]),
}


@pytest.mark.parametrize("name", ADAPTED)
@pytest.mark.parametrize(
    "copied",
    [
        lambda model: models.replace_layers(model, keep),
        lambda model: models.resize_embeddings(model, model.input_shape[1:]),
        models.clone_network,
        fold_batch_norm,
    ],
)
def test_what_was_adapted_and_is_no_weight(name, copied):
    arguments, data = ADAPTED[name]
    data = tf.constant(data)
    layer = getattr(KERAS, name)(**arguments)
    layer.adapt(data)
    model = model_of(layer, data.shape[1:], dtype=data.dtype)
    copy = copied(model)
    if copied is models.clone_network:  # It copies no weights.
        copy.set_weights(model.get_weights())
        weight_names.finalize_states(copy)
    assert copy.layers[-1] is not layer
    np.testing.assert_array_equal(copy(data), model(data))


def attention(name, *shapes, **arguments):
    """A model of attention that reads its first input with its last."""
    layer = KERAS.MultiHeadAttention(2, 4, name=name, **arguments)
    return model_of(lambda *x: layer(x[0], x[-1]), *shapes)


def scored():
    layer = KERAS.MultiHeadAttention(2, 4, name="scored")
    return model_of(lambda x: layer(x, x, return_attention_scores=True), (5, 8))


def twice():
    layer = KERAS.Conv2D(4, 3, padding="same", name="twice")
    return model_of(lambda x: layer(layer(x)), (8, 8, 4))


class Opaque(KERAS.Layer):
    """A layer whose configuration lacks an argument."""

    def __init__(self, size):
        super().__init__(name="opaque")

    def call(self, x):
        return x

    def get_config(self):
        return {"name": self.name}


_RULE, _ATTENTION = models.convolution_rule(), models.attention_rule()
_MIDDLE = models.convolution_rule(names="middle")
_ONE = LambdaConv(8, 3, padding="valid")
_SHORT, _LONG = (5, 8), (7, 8)
REFUSED = {
    "grouped": (lambda: small(groups=2), _RULE, "'middle'.*grouped='leave'"),
    "regularizer": (lambda: small(activity_regularizer="l2"), _MIDDLE,
                    "'middle'.*`activity_regularizer`"),
    "shared": (twice, _RULE, "'twice'.*shared, called 2 times.*`names`"),
    "global_strides": (lambda: small(strides=2),
                       models.convolution_rule(None, names="middle"),
                       "'middle'.*strides.*`scope`"),
    "cross_attention": (lambda: attention("crossing", _SHORT, _LONG),
                        _ATTENTION, "'crossing'.*context=value"),
    "scores": (scored, _ATTENTION, "'scored'.*attention scores"),
    "axes": (lambda: attention("along_rows", (5, 6, 8), attention_axes=2),
             _ATTENTION, r"'along_rows'.*attention_axes=\(2,\)"),
    "shape": (small, rule_of(lambda: LambdaLayer(12), "middle"),
              r"'middle'.*\(None, 6, 6, 12\) and must stay \(None, 4, 4, 8\)"),
    "heads": (small, rule_of(lambda: LambdaLayer(num_heads=3), "middle"),
              "'middle' cannot be replaced by LambdaLayer.*divisible"),
    "no_layer": (small, rule_of(lambda: 3, "middle"),
                 "must return None, a layer"),
    "one_for_two": (small, rule_of(lambda: _ONE, "first", "middle"),
                    "a new layer each time"),
    "tensors": (lambda: attention("crossing", _SHORT, _LONG),
                rule_of(lambda: LambdaLayer(8), "crossing"),
                "'crossing'.*called with `value`, which a LambdaLayer"),
    "no_copy": (lambda: model_of(Opaque(3), _SHORT), keep,
                "'opaque', a Opaque, cannot be copied"),
    "no_model": (lambda: 3, keep, "must be a model of `tf.keras`"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    make, rule, message = REFUSED[name]
    model = make()
    with pytest.raises(ValueError, match=message):
        models.replace_layers(model, rule)


def test_direct_succession_is_told():
    with pytest.warns(UserWarning, match="'first_lambda' and 'middle_lambda'"):
        models.replace_layers(small(), _RULE)


def test_the_comparison_counts_what_changed():
    inner = small(use_bias=False)
    model = model_of(lambda x: KERAS.Dense(3)(inner(x)), (8, 8, 4))
    new = models.replace_layers(model, [keep, _MIDDLE])
    found = analysis.compare(model, new)
    ((old, (made,)),) = found.replaced()
    assert old.name == f"{inner.name}/middle"
    assert made.kind == "LambdaConv"
    assert old.parameters == 3 * 3 * 8 * 8
    assert old.flops == 2 * 4 * 4 * 3 * 3 * 8 * 8
    layer = new.get_layer(inner.name).get_layer("middle_lambda")
    weights = sum(np.prod(w.shape) for w in layer.trainable_weights)
    assert made.parameters == weights
    rest = 2 * (6 * 6 * 3 * 3 * 4 * 8 + 8 * 3)
    assert found.executed_flops[0] == old.flops + rest
    assert f"{found.parameters[1]:,}" in found.table()
    assert analysis.compare(model, model, executed=False).replaced() == []
