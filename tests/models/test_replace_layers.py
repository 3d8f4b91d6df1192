"""Layers put into networks of others: what changes, and what stays."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import models
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.models import weight_names
from lambdanet_tf.serving import fold_batch_norm
from tests.support import checks
from tests.support.arrays import assert_same

KERAS = tf.keras.layers
NORM, ACT = "BatchNormalization", "Activation"
BIAS = {"bias_regularizer": "l2", "bias_constraint": "max_norm"}
TF_IDF = {"output_mode": "tf_idf", "max_tokens": 9, "pad_to_max_tokens": True}


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


def put(make, *names):
    """A rule for the layers of these names, or for `middle`."""
    chosen = names or ("middle",)
    return lambda layer, place: make() if layer.name in chosen else None


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.filterwarnings("ignore:Two lambda layers in direct succession")
@pytest.mark.parametrize(
    ("name", "size", "chosen", "count"),
    [
        ("ResNet50", 64, {"names": "conv[45]_block"}, 9),
        ("EfficientNetV2B0", 64, {"max_size": 16}, 3),
        ("InceptionV3", 96, {}, 17),
    ],
)
def test_what_a_rule_leaves_is_kept(name, size, chosen, count, rng):
    model = getattr(tf.keras.applications, name)(
        input_shape=(size, size, 3), weights=None, classes=10
    )
    config, weights = model.to_json(), model.get_weights()
    x = rng.random((2, size, size, 3), "float32")
    same = models.replace_layers(model, keep)
    np.testing.assert_array_equal(same(x), model(x))
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
        ({}, ["LambdaLayer"]),
        ({"strides": 2}, ["LambdaConv"]),
        ({"dilation_rate": 2}, ["LambdaConv"]),
        ({"use_bias": True}, ["LambdaLayer", NORM]),
        ({"activation": "relu"}, ["LambdaLayer", ACT]),
        ({"activation": KERAS.PReLU()}, ["LambdaLayer", "PReLU"]),
        ({"kernel_constraint": "max_norm"}, ["LambdaLayer"]),
        ({"activation": "relu", "use_bias": True}, ["LambdaLayer", NORM, ACT]),
    ],
)
def test_what_a_convolution_is_followed_by(arguments, kinds, rng):
    model = small(**{"padding": "same", "use_bias": False, **BIAS, **arguments})
    model(np.ones([1, 8, 8, 4], "float32"))  # It builds an activation.
    checks.randomize(model, rng)
    new = models.replace_layers(model, models.convolution_rule(names="middle"))
    made = [x for x in new.layers if x.name.startswith("middle")]
    assert [type(x).__name__ for x in made] == kinds
    middle = model.get_layer("middle")
    assert tuple(made[-1].output.shape) == tuple(middle.output.shape)
    assert made[0].kernel_constraint == middle.kernel_constraint
    if "PReLU" in kinds:
        assert made[-1] is not middle.activation
        assert_same(made[-1].get_weights(), middle.activation.get_weights())
    if NORM in kinds:
        np.testing.assert_array_equal(made[1].beta, middle.get_weights()[1])
        assert made[1].beta_regularizer is middle.bias_regularizer
        assert made[1].beta_constraint is middle.bias_constraint
    if ACT in kinds:
        assert np.min(made[-1](-np.ones([1, 6, 6, 8], "float32"))) == 0


@pytest.mark.parametrize("causal", [False, True])
def test_masks_are_passed_on(causal, rng):
    words = tf.keras.Input((6, 8))
    mask = tf.keras.Input((6, 6), dtype="bool")
    masks = {"use_causal_mask": True} if causal else {"attention_mask": mask}
    kernel = {"kernel_regularizer": "l2", "kernel_constraint": "max_norm"}
    outputs = KERAS.MultiHeadAttention(2, 4, **kernel)(words, words, **masks)
    model = tf.keras.Model([words] if causal else [words, mask], outputs)
    new = models.replace_layers(model, models.attention_rule(scope=5))
    assert all(new.layers[-1].get_config()[name] for name in kernel)
    x = rng.normal(size=[1, 6, 8]).astype("float32")
    mask = np.broadcast_to(np.arange(6) < 4, [1, 6, 6])
    given = [x] if causal else [x, mask]
    outputs = new(given)
    x[:, 5] += 1.0
    checks.assert_close(new(given)[:, :5], outputs[:, :5], 1e-6)


def test_operations_shared_layers_and_several_inputs(rng):
    images = {k: tf.keras.Input((8, 8, 3), name=k) for k in ("left", "right")}
    convolution = KERAS.Conv2D(8, 3, padding="same")
    norm = KERAS.BatchNormalization()
    shared = model_of(lambda x: norm(convolution(x)), (8, 8, 3))
    dense = KERAS.Dense(4)
    sides = [shared(2.0 * x - 1.0) for x in images.values()]
    x = sides[0][:, 1:] + sides[1][:, :-1]
    outputs = [dense(KERAS.Lambda(lambda x: 3.0 * x)(x)), {"x": dense(-x)}]
    model = tf.keras.Model(images, outputs)
    if not KERAS_3:  # It has none in graphs.
        model.add_loss(tf.reduce_mean(KERAS.Dense(2)(x)))
        model.add_metric(tf.reduce_max(x), name="most")
    given = {k: rng.random((2, 8, 8, 3), "float32") for k in images}
    copy = models.replace_layers(model, keep)
    same = copy(given)
    assert_same(tf.nest.flatten(model(given)), tf.nest.flatten(same))
    assert_same(model.losses, copy.losses)
    assert [x.name for x in copy.metrics] == [x.name for x in model.metrics]
    assert isinstance(same[1], dict)
    new = models.replace_layers(model, models.convolution_rule())
    (inner,) = [x for x in new.layers if isinstance(x, tf.keras.Model)]
    kinds = [type(layer).__name__ for layer in inner.layers[1:]]
    assert kinds == ["LambdaLayer", "BatchNormalization"]  # no second one
    assert np.all(np.isfinite(new(given)[0]))
    # An output has its bias, whatever else reads it.
    both = tf.keras.Model(shared.inputs, [convolution.output, shared.output])
    assert len(models.replace_layers(both, _RULE).layers) == 4


@pytest.mark.parametrize(
    ("name", "arguments", "data"),
    [
        ("Normalization", {}, [[1.0, 5.0, 2.0], [7.0, 2.0, 2.5]]),
        ("StringLookup", TF_IDF, [["a"], ["b"], ["a"]]),
        ("IntegerLookup", {"mask_token": 0}, [[5], [7], [5]]),
    ],
)
def test_what_was_adapted_and_is_no_weight(name, arguments, data):
    data = tf.constant(data)
    layer = getattr(KERAS, name)(**arguments)
    layer.adapt(data)
    model = model_of(layer, data.shape[1:], dtype=data.dtype)
    clone = models.clone_network(model)  # It copies no weights.
    clone.set_weights(model.get_weights())
    weight_names.finalize_states(clone)
    for copy in (
        clone,
        models.replace_layers(model, keep),
        models.resize_embeddings(model, model.input_shape[1:]),
        fold_batch_norm(model),
    ):
        assert copy.layers[-1] is not layer
        np.testing.assert_array_equal(copy(data), model(data))


def attention(*shapes, scores=False, **arguments):
    """A model of attention that reads its first input with its last."""
    layer = KERAS.MultiHeadAttention(2, 4, name="heads", **arguments)
    return model_of(
        lambda *x: layer(x[0], x[-1], return_attention_scores=scores), *shapes
    )


def twice():
    layer = KERAS.Conv2D(4, 3, padding="same", name="twice")
    return model_of(lambda x: layer(layer(x)), (8, 8, 4))


class Opaque(KERAS.Identity):
    def __init__(self, size):  # Which its configuration lacks.
        super().__init__(name="opaque")

    def get_config(self):
        return {"name": self.name}


OWN = type("Own", (tf.keras.Model,), {"call": lambda self, x: 2 * x})
_RULE, _HEADS = models.convolution_rule(), models.attention_rule()
_MIDDLE = models.convolution_rule(max_size=6)  # `first` sees 8x8.
_GLOBAL = models.convolution_rule(None, max_size=6)
_ONE = LambdaConv(8, 3, padding="valid")
crossing = functools.partial(attention, (5, 8), (7, 8))
REFUSED = [
    (lambda: small(groups=2), _RULE, "'middle'.*grouped='leave'"),
    (lambda: small(activity_regularizer="l2"), _MIDDLE, "'middle'.*activity"),
    (lambda: small(strides=2), _GLOBAL, "'middle'.*strides.*`scope`"),
    (twice, _RULE, "'twice'.*shared, called 2 times.*`names`"),
    (crossing, _HEADS, "'heads'.*context=value"),
    (lambda: attention((5, 8), scores=True), _HEADS, "attention scores"),
    (lambda: attention((5, 6, 8), attention_axes=2), _HEADS, r"axes=\(2,\)"),
    (small, put(lambda: LambdaLayer(12)), r"6, 12\) and must stay .*4, 8\)"),
    (small, put(lambda: LambdaLayer(num_heads=3)), "by LambdaLayer.*divisible"),
    (small, put(lambda: 3), "must return None, a layer"),
    (small, put(lambda: _ONE, "first", "middle"), "a new layer each time"),
    (crossing, put(lambda: LambdaLayer(8), "heads"), "called with `value`"),
    (lambda: model_of(Opaque(3), (5, 8)), keep, "'opaque', a Opaque, cannot"),
    (lambda: OWN(*2 * [tf.keras.Input((3,))]), keep, "Own, whose own `call`"),
    (lambda: 3, keep, "must be a model of `tf.keras`"),
    *((small, x, "`rule` must be a function") for x in (None, [keep, 3])),
]


@pytest.mark.parametrize(("make", "rule", "message"), REFUSED)
def test_what_is_refused(make, rule, message):
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
