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
from tests.support.networks import tiny

_APPLICATIONS = tf.keras.applications


def keep(layer, place):
    """A rule that replaces nothing."""


def unet():
    """A U-Net of seven convolutions with bias and activation."""
    images = tf.keras.Input((16, 16, 3))
    convolve = {"padding": "same", "activation": "relu"}
    x, skips = images, []
    for stage, filters in enumerate((8, 16), 1):
        x = tf.keras.layers.Conv2D(filters, 3, name=f"down{stage}", **convolve)(
            x
        )
        skips.append(x)
        x = tf.keras.layers.MaxPooling2D()(x)
    x = tf.keras.layers.Conv2D(32, 3, name="bottom", **convolve)(x)
    for stage, filters in enumerate((16, 8), 1):
        x = tf.keras.layers.UpSampling2D()(x)
        x = tf.keras.layers.Concatenate()([x, skips.pop()])
        x = tf.keras.layers.Conv2D(filters, 3, name=f"up{stage}", **convolve)(x)
    x = tf.keras.layers.Conv2D(2, 1, name="classes")(x)
    return tf.keras.Model(images, x, name="unet")


def transformer(causal=False, length=12):
    """Two blocks of self-attention on words, with padding."""
    words = tf.keras.Input((length,), dtype="int32")
    x = tf.keras.layers.Embedding(50, 16, mask_zero=True)(words)
    for block in range(2):
        y = tf.keras.layers.LayerNormalization()(x)
        y = tf.keras.layers.MultiHeadAttention(2, 8, name=f"attention{block}")(
            y, y, use_causal_mask=causal
        )
        x = tf.keras.layers.Add()([x, y])
        y = tf.keras.layers.LayerNormalization()(x)
        y = tf.keras.layers.Dense(32, activation="relu")(y)
        x = tf.keras.layers.Add()([x, tf.keras.layers.Dense(16)(y)])
    x = tf.keras.layers.GlobalAveragePooling1D()(x)
    return tf.keras.Model(words, tf.keras.layers.Dense(3)(x))


def small(**arguments):
    """Convolutions of which one is called `middle`."""
    images = tf.keras.Input((8, 8, 4))
    x = tf.keras.layers.Conv2D(8, 3, name="first")(images)
    arguments = {"filters": 8, "kernel_size": 3, **arguments}
    x = tf.keras.layers.Conv2D(name="middle", **arguments)(x)
    return tf.keras.Model(images, tf.keras.layers.GlobalMaxPooling2D()(x))


def depthwise(layer, place):
    """A rule of a user's own, for the last stages of a ConvNeXt."""
    is_it = isinstance(layer, tf.keras.layers.Conv2D) and layer.groups > 1
    if is_it and place.input_shape[1] <= 4:
        return LambdaLayer(layer.filters, name=f"{layer.name}_lambda")
    return None


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


def assert_kept(model, new, count):
    """All but `count` layers are there, with their weights and shapes."""
    old, now = layers_of(model), layers_of(new)
    assert len(old.keys() - now.keys()) == count
    for name in old.keys() & now.keys():
        assert old[name] is not now[name]
        weights = old[name].get_weights(), now[name].get_weights()
        for before, after in zip(*weights, strict=True):
            np.testing.assert_array_equal(before, after)
        shapes = [
            [tuple(x.shape) for x in tf.nest.flatten(layer.output)]
            for layer in (old[name], now[name])
        ]
        assert shapes[0] == shapes[1], name
    assert model.output_shape == new.output_shape


def application(name, size=64, **arguments):
    builder = getattr(_APPLICATIONS, name)
    arguments = {"weights": None, "classes": 10, **arguments}
    return builder(input_shape=(size, size, 3), **arguments)


def convolutions(*args, **arguments):
    return models.convolution_rule(*args, grouped="leave", **arguments)


# Networks of others, a rule, and how many layers go. A DenseNet has no layer
# that a ResNet and an Inception network lack.
LARGE = [
    ("ResNet50", 64, convolutions(names="conv[45]_block"), 9),
    ("ConvNeXtTiny", 64, depthwise, 12),
    ("EfficientNetV2B0", 64, convolutions(max_size=16), 3),
    ("MobileNetV3Small", 64, convolutions(), 1),
    ("InceptionV3", 96, convolutions(), 17),
    ("Xception", 96, convolutions(), 2),
]


@pytest.mark.once
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Two lambda layers in direct succession")
@pytest.mark.parametrize(("name", "size", "rule", "count"), LARGE)
def test_networks_of_keras(name, size, rule, count, rng):
    model = application(name, size)
    images = inputs_of(model, rng, 2)
    np.testing.assert_array_equal(
        model(images), models.replace_layers(model, keep)(images)
    )
    new = models.replace_layers(model, rule)
    assert_kept(model, new, count)
    lambdas = [
        layer
        for layer in layers_of(new).values()
        if isinstance(layer, (LambdaLayer, LambdaConv))
    ]
    assert len(lambdas) == count
    # Without batch statistics many untrained layers in a row overflow.
    assert np.all(np.isfinite(new(images, training=True)))


RULES = {
    "unet": (unet, convolutions(5, names="bottom|up2"), 2),
    "transformer": (transformer, models.attention_rule(), 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_what_a_rule_leaves_is_kept(name, rng):
    make, rule, count = RULES[name]
    model = make()
    checks.randomize(model, rng)
    config, weights = model.to_json(), model.get_weights()
    x = inputs_of(model, rng)
    outputs = model(x)
    same = models.replace_layers(model, keep)
    np.testing.assert_array_equal(same(x), outputs)
    new = models.replace_layers(model, rule)
    assert_kept(model, new, count)
    assert np.abs(new(x) - outputs).max() > 1e-3
    # The network itself stays as it is.
    assert model.to_json() == config
    for before, after in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(model(x), outputs)


def trained(model, inputs, labels, tmp_path):
    """Compiles, fits, saves and loads; returns losses and the loaded model."""
    model.compile(
        tf.keras.optimizers.Adam(3e-3),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    history = model.fit(inputs, labels, epochs=4, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = tf.keras.models.load_model(path)
    some = inputs[:8]
    checks.assert_close(loaded(some), model(some), 1e-5)
    return history.history["loss"]


def digits(count=256):
    data = pytest.importorskip("sklearn.datasets").load_digits()
    images = data.images[:count, ..., None].astype("float32") / 16
    return np.repeat(images, 3, axis=-1), data.target[:count]


def unet_on_ink(tmp_path):
    """Tells digits from their ground."""
    images, _ = digits()
    images = images.repeat(2, axis=1).repeat(2, axis=2)
    ink = (images[..., 0] > 0.5).astype("int32")
    new = models.replace_layers(unet(), RULES["unet"][1])
    return 0.75, trained(new, images, ink, tmp_path)


def transformer_on_lines_of_digits(tmp_path):
    _, labels = digits()
    lines = np.repeat(1 + labels[:, None] + 10 * np.arange(4), 3, axis=1)
    new = models.replace_layers(transformer(), models.attention_rule())
    return 0.5, trained(new, lines.astype("int32"), labels % 3, tmp_path)


def fine_tuned_resnet_on_photographs(tmp_path):
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
    images = tf.keras.Input((64, 64, 3))
    x = base(images, training=False)
    model = tf.keras.Model(images, tf.keras.layers.Dense(2)(x))
    rule = models.convolution_rule(names="resnet50/conv5_block._2")
    new = models.replace_layers(model, rule)
    assert_kept(model, new, 3)
    assert {w.shape for w in new.get_layer("resnet50").trainable_weights} == {
        w.shape
        for layer in layers_of(new).values()
        if isinstance(layer, LambdaLayer)
        for w in layer.trainable_weights
    }
    return 1.0, trained(new, np.array(crops, "float32"), labels, tmp_path)


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "learn",
    [
        transformer_on_lines_of_digits,
        unet_on_ink,
        fine_tuned_resnet_on_photographs,
    ],
)
def test_networks_with_new_layers_learn_and_are_saved(learn, tmp_path):
    share, losses = learn(tmp_path)
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
    assert tuple(made[-1].output.shape) == tuple(
        model.get_layer("middle").output.shape
    )
    if "BatchNormalization" in kinds:
        bias = model.get_layer("middle").get_weights()[1]
        np.testing.assert_array_equal(made[1].beta, bias)
    if "Activation" in kinds:
        assert np.min(made[-1](-np.ones([1, 6, 6, 8], "float32"))) == 0


def test_no_second_normalization():
    images = tf.keras.Input((8, 8, 4))
    x = tf.keras.layers.Conv2D(8, 3, padding="same")(images)
    x = tf.keras.layers.BatchNormalization()(x)
    model = tf.keras.Model(images, tf.keras.layers.ReLU()(x))
    new = models.replace_layers(model, models.convolution_rule())
    assert len(new.layers) == len(model.layers)


@pytest.mark.slow
def test_attention_becomes_causal_and_keeps_masks(rng):
    new = models.replace_layers(
        transformer(causal=True), RULES["transformer"][1]
    )
    made = [x for x in new.layers if isinstance(x, LambdaLayer)]
    assert [x.causal for x in made] == [True, True]
    text = rng.integers(1, 50, [2, 12]).astype("int32")
    inner = tf.keras.Model(new.input, made[0].output)
    later = text.copy()
    later[:, 7:] = 3
    np.testing.assert_array_equal(inner(text)[:, :7], inner(later)[:, :7])
    new = models.replace_layers(transformer(), RULES["transformer"][1])
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
    attention = tf.keras.layers.MultiHeadAttention(2, 4)
    model = tf.keras.Model(
        [words, mask], attention(words, words, attention_mask=mask)
    )
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
        [
            tf.keras.Input((8, 8, 3)),
            tf.keras.layers.Conv2D(8, 3, padding="same"),
        ]
    )
    dense = tf.keras.layers.Dense(4)
    sides = [shared(2.0 * x - 1.0) for x in images.values()]
    x = sides[0][:, 1:] + sides[1][:, :-1]
    scale = tf.keras.layers.Lambda(lambda x: 3.0 * x, output_shape=(7, 8, 8))(x)
    outputs = [dense(scale), {"x": dense(-x)}]
    model = tf.keras.Model(images, outputs)
    given = {k: rng.random((2, 8, 8, 3), "float32") for k in images}
    same = models.replace_layers(model, keep)
    for a, b in zip(
        tf.nest.flatten(model(given)), tf.nest.flatten(same(given)), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    assert isinstance(same(given)[1], dict)
    new = models.replace_layers(model, models.convolution_rule())
    lambdas = [x for x in layers_of(new).values() if isinstance(x, LambdaLayer)]
    assert len(lambdas) == 1  # shared by both sides, as before
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


def test_a_normalization_that_was_adapted(rng):
    images = tf.keras.Input((8, 8, 3))
    layer = tf.keras.layers.Normalization()
    data = rng.normal(3, 2, (9, 8, 8, 3)).astype("float32")
    layer.adapt(data)
    model = tf.keras.Model(images, layer(images))
    same = models.replace_layers(model, keep)
    np.testing.assert_array_equal(model(data), same(data))


DISCRETE = {
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


@pytest.mark.parametrize("name", DISCRETE)
@pytest.mark.parametrize(
    "copied",
    [
        lambda model: models.replace_layers(model, keep),
        lambda model: models.resize_embeddings(model, (1,)),
        models.clone_network,
        fold_batch_norm,
    ],
)
def test_what_was_adapted_and_is_no_weight(name, copied):
    arguments, data = DISCRETE[name]
    data = tf.constant(data)
    inputs = tf.keras.Input((1,), dtype=data.dtype)
    layer = getattr(tf.keras.layers, name)(**arguments)
    layer.adapt(data)
    model = tf.keras.Model(inputs, layer(inputs))
    copy = copied(model)
    if copied is models.clone_network:  # It copies no weights.
        copy.set_weights(model.get_weights())
        weight_names.finalize_states(copy)
    assert copy.layers[-1] is not layer
    np.testing.assert_array_equal(copy(data), model(data))


def test_functions_of_users_keep_their_precision():
    images = tf.keras.Input((8, 8, 3))
    layer = tf.keras.layers.Lambda(lambda x: 2 * x, dtype="mixed_float16")
    model = tf.keras.Model(images, layer(images))
    same = models.replace_layers(model, keep)
    assert same.layers[-1].dtype_policy.name == "mixed_float16"
    assert same.output.dtype == model.output.dtype


@pytest.mark.slow
def test_followers_are_those_of_the_network():
    inputs = tf.keras.Input((8, 8, 4))
    x = tf.keras.layers.Conv2D(4, 3, padding="same", name="conv")(inputs)
    whole = tf.keras.Model(inputs, tf.keras.layers.BatchNormalization()(x))
    below = tf.keras.Model(inputs, x)
    rule = models.convolution_rule(key_dim=4)
    counts = [
        len(models.replace_layers(m, rule).layers) for m in (whole, below)
    ]
    assert counts == [3, 3]  # The bias has a normalization of its own below.


def twice():
    images = tf.keras.Input((8, 8, 4))
    layer = tf.keras.layers.Conv2D(4, 3, padding="same", name="twice")
    return tf.keras.Model(images, layer(layer(images)))


def crossing():
    one, other = tf.keras.Input((5, 8)), tf.keras.Input((7, 8))
    layer = tf.keras.layers.MultiHeadAttention(2, 4, name="crossing")
    return tf.keras.Model([one, other], layer(one, other))


def scored():
    x = tf.keras.Input((5, 8))
    layer = tf.keras.layers.MultiHeadAttention(2, 4, name="scored")
    return tf.keras.Model(x, layer(x, x, return_attention_scores=True))


def along_rows():
    x = tf.keras.Input((5, 6, 8))
    layer = tf.keras.layers.MultiHeadAttention(
        2, 4, attention_axes=2, name="along_rows"
    )
    return tf.keras.Model(x, layer(x, x))


def depthwise_model():
    images = tf.keras.Input((8, 8, 4))
    layer = tf.keras.layers.DepthwiseConv2D(3, name="depthwise")
    return tf.keras.Model(images, layer(images))


def always(make):
    """A rule for the layer that is called `middle`."""
    return lambda layer, place: make() if layer.name == "middle" else None


class Opaque(tf.keras.layers.Layer):
    """A layer whose configuration lacks an argument."""

    def __init__(self, size):
        super().__init__(name="opaque")

    def call(self, x):
        return x

    def get_config(self):
        return {"name": self.name}


def opaque():
    x = tf.keras.Input((5, 8))
    return tf.keras.Model(x, Opaque(3)(x))


class Subclassed(tf.keras.Model):
    def call(self, x):
        return x


class Doubled(tf.keras.Model):
    """A graph whose call does more than the graph."""

    def call(self, x, **arguments):
        return 2 * super().call(x, **arguments)


def another_call():
    inputs = tf.keras.Input((4,))
    return Doubled(inputs, tf.keras.layers.Dense(3)(inputs))


_RULE, _ATTENTION = models.convolution_rule(), models.attention_rule()
REFUSED = {
    "grouped": (lambda: small(groups=2), _RULE, "'middle'.*grouped='leave'"),
    "depthwise": (depthwise_model, _RULE, "'depthwise'.*grouped='leave'"),
    "regularizer": (
        lambda: small(activity_regularizer="l2"),
        models.convolution_rule(names="middle"),
        "'middle'.*`activity_regularizer`",
    ),
    "shared": (twice, _RULE, "'twice'.*shared, called 2 times.*`names`"),
    "global_strides": (
        lambda: small(strides=2),
        models.convolution_rule(None, names="middle"),
        "'middle'.*strides.*`scope`",
    ),
    "cross_attention": (crossing, _ATTENTION, "'crossing'.*context=value"),
    "scores": (scored, _ATTENTION, "'scored'.*attention scores"),
    "axes": (along_rows, _ATTENTION, r"'along_rows'.*attention_axes=\(2,\)"),
    "shape": (
        small,
        always(lambda: LambdaLayer(12)),
        r"'middle'.*\(None, 6, 6, 12\) and must stay \(None, 4, 4, 8\)",
    ),
    "heads": (
        small,
        always(lambda: LambdaLayer(num_heads=3)),
        "'middle' cannot be replaced by LambdaLayer.*divisible",
    ),
    "no_layer": (small, always(lambda: 3), "must return None, a layer"),
    "tensors": (
        crossing,
        lambda layer, _: LambdaLayer(8) if layer.name == "crossing" else None,
        "'crossing'.*called with `value`, which a LambdaLayer",
    ),
    "no_copy": (opaque, keep, "'opaque', a Opaque, cannot be copied"),
    "subclass": (Subclassed, keep, "must be a functional model"),
    "no_model": (lambda: 3, keep, "must be a model of `tf.keras`"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    make, rule, message = REFUSED[name]
    model = make()
    with pytest.raises(ValueError, match=message):
        models.replace_layers(model, rule)


def test_one_new_layer_for_each():
    one = LambdaConv(8, 3, padding="valid")
    with pytest.raises(ValueError, match="a new layer each time"):
        models.replace_layers(
            small(),
            lambda layer, place: (
                one if isinstance(layer, tf.keras.layers.Conv2D) else None
            ),
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: models.convolution_rule(4), "`scope` must be odd"),
        (lambda: models.convolution_rule(grouped="skip"), "`grouped`"),
        (lambda: models.convolution_rule(max_size=0), "`max_size`"),
        (lambda: models.attention_rule(2), "`scope` must be odd"),
    ],
)
def test_arguments_of_rules(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_direct_succession_is_told(recwarn):
    rule = models.convolution_rule()
    with pytest.warns(UserWarning, match="'first_lambda' and 'middle_lambda'"):
        models.replace_layers(small(), rule)
    images = tf.keras.Input((8, 8, 4))
    x = tf.keras.layers.Conv2D(8, 3, padding="same", name="a")(images)
    x = tf.keras.layers.Conv2D(8, 1)(x)
    x = tf.keras.layers.Conv2D(8, 3, padding="same", name="b")(x)
    models.replace_layers(tf.keras.Model(images, x), rule)
    assert not recwarn.list


def test_rules_know_the_place_and_the_first_that_answers_counts():
    seen = {}

    def look(layer, place):
        seen[place.name] = place

    model = small()
    rules = [look, always(lambda: LambdaConv(8, 3, padding="valid"))]
    new = models.replace_layers(model, rules)
    place = seen["middle"]
    assert place.input_shape == (None, 6, 6, 8)
    assert place.output_shape == (None, 4, 4, 8)
    assert [x.name for x in place.followers] == [model.layers[-1].name]
    assert isinstance(new.layers[2], LambdaConv)


def test_the_comparison_counts_what_changed():
    inner = small(use_bias=False)
    images = tf.keras.Input((8, 8, 4))
    model = tf.keras.Model(images, tf.keras.layers.Dense(3)(inner(images)))
    rule = models.convolution_rule(names="middle")
    new = models.replace_layers(model, rule)
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
