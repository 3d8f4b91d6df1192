"""Layers put into networks of others: what changes, and what stays."""

import functools

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
from tests.support.networks import tiny

KERAS = tf.keras.layers


def model_of(call, *shapes, **arguments):
    """A model of what a function makes of inputs of these shapes."""
    inputs = [tf.keras.Input(shape, **arguments) for shape in shapes]
    given = inputs if len(inputs) > 1 else inputs[0]
    return tf.keras.Model(given, call(*inputs))


def unet():
    """A U-Net of convolutions with bias and activation."""

    def step(x, filters, name):
        arguments = {"padding": "same", "activation": "relu", "name": name}
        return KERAS.Conv2D(filters, 3, **arguments)(x)

    images = x = tf.keras.Input((16, 16, 3))
    skips = []
    for stage, filters in enumerate((8, 16), 1):
        x = step(x, filters, f"down{stage}")
        skips.append(x)
        x = KERAS.MaxPooling2D()(x)
    x = step(x, 32, "bottom")
    for stage, filters in enumerate((16, 8), 1):
        x = KERAS.Concatenate()([KERAS.UpSampling2D()(x), skips.pop()])
        x = step(x, filters, f"up{stage}")
    x = KERAS.Conv2D(2, 1, name="classes")(x)
    return tf.keras.Model(images, x, name="unet")


def transformer(causal=False, length=12):
    """Two blocks of self-attention on words, with padding."""
    words = tf.keras.Input((length,), dtype="int32")
    x = KERAS.Embedding(50, 16, mask_zero=True)(words)
    for block in range(2):
        y = KERAS.LayerNormalization()(x)
        attention = KERAS.MultiHeadAttention(2, 8, name=f"attention{block}")
        y = attention(y, y, use_causal_mask=causal)
        x = KERAS.Add()([x, y])
        y = KERAS.LayerNormalization()(x)
        y = KERAS.Dense(32, activation="relu")(y)
        x = KERAS.Add()([x, KERAS.Dense(16)(y)])
    x = KERAS.GlobalAveragePooling1D()(x)
    return tf.keras.Model(words, KERAS.Dense(3)(x))


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


def depthwise(layer, place):
    """A rule of a user's own, for the last stages of a ConvNeXt."""
    is_it = isinstance(layer, KERAS.Conv2D) and layer.groups > 1
    if is_it and place.input_shape[1] <= 4:
        return LambdaLayer(layer.filters, name=f"{layer.name}_lambda")
    return None


def rule_of(make, *names):
    """A rule for the layers of these names."""
    return lambda layer, place: make() if layer.name in names else None


def inputs_of(model, rng, batch=2):
    shape = (batch, *model.inputs[0].shape[1:])
    if model.inputs[0].dtype in ("int32", tf.int32):
        return rng.integers(0, 50, shape).astype("int32")
    return rng.random(shape, "float32")


def layers_of(model, prefix=""):
    """All layers by name, also of models inside."""
    found = {}
    for layer in model.layers:
        if isinstance(layer, tf.keras.Model):
            found |= layers_of(layer, f"{prefix}{layer.name}/")
        else:
            found[prefix + layer.name] = layer
    return found


def lambdas_of(model, kinds=LambdaLayer):
    return [x for x in layers_of(model).values() if isinstance(x, kinds)]


def assert_kept(model, new, count):
    """All but `count` layers are there, with their weights and shapes."""
    old, now = layers_of(model), layers_of(new)
    assert len(old.keys() - now.keys()) == count
    for name in old.keys() & now.keys():
        assert old[name] is not now[name]
        weights = old[name].get_weights(), now[name].get_weights()
        assert_same(*weights)
        shapes = [
            [tuple(x.shape) for x in tf.nest.flatten(layer.output)]
            for layer in (old[name], now[name])
        ]
        assert shapes[0] == shapes[1], name
    assert model.output_shape == new.output_shape


def application(name, size=64, **arguments):
    builder = getattr(tf.keras.applications, name)
    arguments = {"weights": None, "classes": 10, **arguments}
    return builder(input_shape=(size, size, 3), **arguments)


def convolutions(*args, **arguments):
    return models.convolution_rule(*args, grouped="leave", **arguments)


RULES = {
    "unet": convolutions(5, names="bottom|up2"),
    "transformer": models.attention_rule(),
}
LARGE = [
    ("ResNet50", 64, convolutions(names="conv[45]_block"), 9),
    ("ConvNeXtTiny", 64, depthwise, 12),
    ("EfficientNetV2B0", 64, convolutions(max_size=16), 3),
    ("MobileNetV3Small", 64, convolutions(), 1),
    ("InceptionV3", 96, convolutions(), 17),
    ("Xception", 96, convolutions(), 2),
]
# Networks of others, a rule, and how many layers go. A DenseNet has no layer
# that a ResNet and an Inception network lack.
NETWORKS = [
    pytest.param(unet, RULES["unet"], 2, id="unet"),
    pytest.param(transformer, RULES["transformer"], 2, id="transformer"),
    *(
        pytest.param(
            functools.partial(application, name, size),
            *expected,
            id=name,
            marks=pytest.mark.once,
        )
        for name, size, *expected in LARGE
    ),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Two lambda layers in direct succession")
@pytest.mark.parametrize(("make", "rule", "count"), NETWORKS)
def test_what_a_rule_leaves_is_kept(make, rule, count, rng):
    model = make()
    if make in (unet, transformer):  # Others would overflow.
        checks.randomize(model, rng)
    config, weights = model.to_json(), model.get_weights()
    x = inputs_of(model, rng)
    outputs = model(x)
    same = models.replace_layers(model, keep)
    np.testing.assert_array_equal(same(x), outputs)
    new = models.replace_layers(model, rule)
    assert_kept(model, new, count)
    assert len(lambdas_of(new, (LambdaLayer, LambdaConv))) == count
    if make in (unet, transformer):
        assert np.abs(new(x) - outputs).max() > 1e-3
    # Without batch statistics many untrained layers in a row overflow.
    assert np.all(np.isfinite(new(x, training=True)))
    # The network itself stays as it is.
    assert model.to_json() == config
    assert_same(model.get_weights(), weights)
    np.testing.assert_array_equal(model(x), outputs)


def digits(count=256):
    data = pytest.importorskip("sklearn.datasets").load_digits()
    images = data.images[:count, ..., None].astype("float32") / 16
    return np.repeat(images, 3, axis=-1), data.target[:count]


def unet_on_ink():
    """Tells digits from their ground."""
    images, _ = digits()
    images = images.repeat(2, axis=1).repeat(2, axis=2)
    ink = (images[..., 0] > 0.5).astype("int32")
    new = models.replace_layers(unet(), RULES["unet"])
    return 0.75, new, images, ink


def transformer_on_lines_of_digits():
    _, labels = digits()
    lines = np.repeat(1 + labels[:, None] + 10 * np.arange(4), 3, axis=1)
    new = models.replace_layers(transformer(), RULES["transformer"])
    return 0.5, new, lines.astype("int32"), labels % 3


def fine_tuned_resnet_on_photographs():
    photographs = pytest.importorskip("sklearn.datasets").load_sample_images()
    crops = [
        photo[y : y + 64, x : x + 64] / 255.0
        for photo in photographs.images
        for y in range(0, 320, 80)
        for x in range(0, 480, 120)
    ]
    labels = np.repeat([0, 1], len(crops) // 2)
    base = application("ResNet50", include_top=False, pooling="avg")
    base.trainable = False
    model = model_of(
        lambda images: KERAS.Dense(2)(base(images, training=False)),
        (64, 64, 3),
    )
    rule = models.convolution_rule(names="resnet50/conv5_block._2")
    new = models.replace_layers(model, rule)
    assert_kept(model, new, 3)
    assert {w.shape for w in new.get_layer("resnet50").trainable_weights} == {
        w.shape for layer in lambdas_of(new) for w in layer.trainable_weights
    }
    return 1.0, new, np.array(crops, "float32"), labels


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "make",
    [
        transformer_on_lines_of_digits,
        unet_on_ink,
        fine_tuned_resnet_on_photographs,
    ],
)
def test_networks_with_new_layers_learn_and_are_saved(make, tmp_path):
    share, model, inputs, labels = make()
    model.compile(
        tf.keras.optimizers.Adam(3e-3),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    history = model.fit(inputs, labels, epochs=4, verbose=0)
    loaded = checks.COPIES["keras_file"](model, tmp_path)
    some = inputs[:8]
    checks.assert_close(loaded(some), model(some), 1e-5)
    losses = history.history["loss"]
    assert losses[-1] < share * losses[0]


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        ({"padding": "same", "use_bias": False}, ["LambdaLayer"]),
        ({"strides": 2, "padding": "same", "use_bias": False}, ["LambdaConv"]),
        ({"use_bias": False}, ["LambdaConv"]),
        ({"dilation_rate": 2, "padding": "same", "use_bias": False},
         ["LambdaConv"]),
        ({"padding": "same"}, ["LambdaLayer", "BatchNormalization"]),
        ({"padding": "same", "activation": "relu"},
         ["LambdaLayer", "BatchNormalization", "Activation"]),
        ({"padding": "same", "activation": "relu", "use_bias": False},
         ["LambdaLayer", "Activation"]),
        ({"filters": 6, "padding": "same", "use_bias": False}, ["LambdaLayer"]),
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


def test_no_second_normalization_but_of_the_network_itself():
    inputs = tf.keras.Input((8, 8, 4))
    x = KERAS.Conv2D(8, 3, padding="same", name="conv")(inputs)
    outputs = KERAS.ReLU()(KERAS.BatchNormalization()(x))
    rule = models.convolution_rule(key_dim=4)
    new, below = (
        models.replace_layers(tf.keras.Model(inputs, end), rule)
        for end in (outputs, x)
    )
    assert len(new.layers) == 4
    # The bias has a normalization of its own below.
    assert len(below.layers) == 3


@pytest.mark.slow
def test_attention_becomes_causal_and_keeps_masks(rng):
    new = models.replace_layers(transformer(causal=True), RULES["transformer"])
    made = lambdas_of(new)
    assert [x.causal for x in made] == [True, True]
    text = rng.integers(1, 50, [2, 12]).astype("int32")
    inner = tf.keras.Model(new.input, made[0].output)
    later = text.copy()
    later[:, 7:] = 3
    np.testing.assert_array_equal(inner(text)[:, :7], inner(later)[:, :7])
    new = models.replace_layers(transformer(), RULES["transformer"])
    text[:, 8:] = 0  # padding, which no other word reads
    inner = tf.keras.Model(new.input, new.get_layer("attention0_lambda").output)
    outputs = inner(text)[:, :8]
    new.layers[1].embeddings.assign_add(
        np.arange(50)[:, None] == np.zeros([1, 16])
    )
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
    assert len(lambdas_of(new)) == 1  # shared by both sides, as before
    assert np.all(np.isfinite(new(given)[0]))


@pytest.mark.slow
def test_frozen_layers_and_shared_tables_are_copied(rng):
    model = tiny(stages=("C", "LL", "C"), share_embeddings=True)
    models.freeze(model, "stage3")
    checks.randomize(model, rng)
    new = models.replace_layers(model, keep)
    assert len(new.trainable_weights) == len(model.trainable_weights)
    assert len(new.weights) == len(model.weights)
    assert_kept(model, new, 0)
    x = 255 * inputs_of(model, rng)
    np.testing.assert_array_equal(model(x), new(x))


ADAPTED = {
    "Normalization": ({}, [[1.0, 5.0, 2.0], [7.0, 2.0, 2.5]]),
    "Discretization": ({"num_bins": 4}, [[0.0], [1.0], [2.0], [5.0]]),
    "IntegerLookup": ({"mask_token": 0}, [[5], [7], [5]]),
    "StringLookup": (
        {"output_mode": "tf_idf", "max_tokens": 9, "pad_to_max_tokens": True},
        [["a"], ["b"], ["a"]],
    ),
    "TextVectorization": (
        {"output_sequence_length": 4},
        [["a b"], ["b c"], ["b"]],
    ),
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


def test_functions_of_users_keep_their_precision():
    layer = KERAS.Lambda(lambda x: 2 * x, dtype="mixed_float16")
    model = model_of(layer, (8, 8, 3))
    same = models.replace_layers(model, keep)
    assert same.layers[-1].dtype_policy.name == "mixed_float16"
    assert same.output.dtype == model.output.dtype


def attention(name, *shapes, **arguments):
    """A model of attention that reads its first input with its last."""
    layer = KERAS.MultiHeadAttention(2, 4, name=name, **arguments)
    return model_of(lambda *x: layer(x[0], x[-1]), *shapes)


def scored():
    layer = KERAS.MultiHeadAttention(2, 4, name="scored")
    return model_of(lambda x: layer(x, x, return_attention_scores=True), (5, 8))


def depthwise_model():
    return model_of(KERAS.DepthwiseConv2D(3, name="depthwise"), (8, 8, 4))


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


class Subclassed(tf.keras.Model):
    def call(self, x):
        return x


_RULE, _ATTENTION = models.convolution_rule(), models.attention_rule()
_MIDDLE = models.convolution_rule(names="middle")
_ONE = LambdaConv(8, 3, padding="valid")
_SHORT, _LONG = (5, 8), (7, 8)
REFUSED = {
    "grouped": (lambda: small(groups=2), _RULE, "'middle'.*grouped='leave'"),
    "depthwise": (depthwise_model, _RULE, "'depthwise'.*grouped='leave'"),
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
    "subclass": (Subclassed, keep, "must be a functional model"),
    "no_model": (lambda: 3, keep, "must be a model of `tf.keras`"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    make, rule, message = REFUSED[name]
    model = make()
    with pytest.raises(ValueError, match=message):
        models.replace_layers(model, rule)


COPIES = {
    "clone": models.clone_network,
    "size": lambda model: models.resize_embeddings(model, _SHORT),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_layer_without_a_copy_is_named(name):
    with pytest.raises(ValueError, match="'opaque', a Opaque, cannot be copi"):
        COPIES[name](model_of(Opaque(3), _SHORT))


def test_what_a_function_of_layers_raises_is_its_own():
    def refuse(layer, config):
        raise ValueError("not this one")

    with pytest.raises(ValueError, match="^not this one$"):
        models.clone_network(model_of(Opaque(3), _SHORT), clone_layer=refuse)


def test_direct_succession_is_told(recwarn):
    with pytest.warns(UserWarning, match="'first_lambda' and 'middle_lambda'"):
        models.replace_layers(small(), _RULE)

    def apart(x):
        x = KERAS.Conv2D(8, 3, padding="same", name="a")(x)
        x = KERAS.Conv2D(8, 1)(x)
        return KERAS.Conv2D(8, 3, padding="same", name="b")(x)

    models.replace_layers(model_of(apart, (8, 8, 4)), _RULE)
    assert not recwarn.list


def test_rules_know_the_place_and_the_first_that_answers_counts():
    seen = {}

    def look(layer, place):
        seen[place.name] = place

    model = small()
    rule = rule_of(lambda: LambdaConv(8, 3, padding="valid"), "middle")
    new = models.replace_layers(model, [look, rule])
    place = seen["middle"]
    assert place.input_shape == (None, 6, 6, 8)
    assert place.output_shape == (None, 4, 4, 8)
    assert [x.name for x in place.followers] == [model.layers[-1].name]
    assert isinstance(new.layers[2], LambdaConv)


def test_the_comparison_counts_what_changed():
    inner = small(use_bias=False)
    model = model_of(lambda x: KERAS.Dense(3)(inner(x)), (8, 8, 4))
    new = models.replace_layers(model, _MIDDLE)
    found = analysis.compare(model, new)
    ((old, (made,)),) = found.replaced()
    assert old.name == f"{inner.name}/middle"
    assert made.kind == "LambdaConv"
    assert old.parameters == 3 * 3 * 8 * 8
    assert old.flops == 2 * 4 * 4 * 3 * 3 * 8 * 8
    layer = new.get_layer(inner.name).get_layer("middle_lambda")
    weights = sum(np.prod(w.shape) for w in layer.trainable_weights)
    assert made.parameters == weights
    difference = found.parameters[0] - found.parameters[1]
    assert difference == old.parameters - made.parameters
    rest = 2 * (6 * 6 * 3 * 3 * 4 * 8 + 8 * 3)
    assert found.executed_flops[0] == old.flops + rest
    text = found.table()
    assert "middle" in text
    assert f"{found.parameters[1]:,}" in text
    assert analysis.compare(model, model, executed=False).replaced() == []


@pytest.mark.slow
def test_the_comparison_counts_attention_of_keras():
    model = transformer()
    new = models.replace_layers(model, models.attention_rule())
    found = analysis.compare(model, new)
    n, c, width = 12, 16, 16
    products = 4 * n * c * width + 2 * n * n * width
    assert [x.flops for x in found.removed] == 2 * [2 * products]
    dense = 2 * 2 * 2 * n * 16 * 32 + 2 * 16 * 3
    assert found.executed_flops[0] == 2 * 2 * products + dense
    assert [len(new) for _, new in found.replaced()] == [1, 1]
