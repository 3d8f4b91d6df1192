"""The residual networks: counts, sizes, ends, precision, training, errors."""

import dataclasses
import functools
import inspect
import re

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.models import builders
from lambdanet_tf.models.images import PREPROCESSING
from lambdanet_tf.models.images import _RangeCheck
from lambdanet_tf.serving import fold_batch_norm
from tests.support import checks
from tests.support import networks
from tests.support import numpy_network
from tests.support.arrays import assert_same


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 3])
def test_one_initializer_gives_each_kernel_its_own_numbers(seed):
    def kernels():
        initializer = tf.keras.initializers.HeNormal(seed=seed)
        named = networks.arrays(networks.tiny(kernel_initializer=initializer))
        return {
            name: np.ravel(weight)
            for name, weight in named.items()
            if "conv" in name and name.endswith("kernel")
        }

    first, again = kernels(), kernels()
    unit = {name: value[:20] / value[0] for name, value in first.items()}
    assert len({tuple(np.round(row, 3)) for row in unit.values()}) == len(unit)
    for name, value in first.items():
        assert np.array_equal(value, again[name]) == (seed is not None)


def trainable(model):
    return sum(int(np.prod(w.shape)) for w in model.trainable_weights)


PRESETS = specs.PRESETS.items()
SMALL = [item for item in PRESETS if item[1].parameters <= 30e6]
LARGEST = max(PRESETS, key=lambda item: item[1].parameters)


@pytest.mark.representatives(3)
@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "preset"),
    [*SMALL, pytest.param(*LARGEST, marks=pytest.mark.thorough)],
)
def test_exact_parameters(name, preset):
    """All are held by closed forms, too: `tests/analysis`."""
    with networks.shapes_alone():
        model = models.build(name)
    assert trainable(model) == preset.parameters


# Deeper ones have more blocks of the same, and take minutes each.
UP_TO_50_LAYERS = [
    (name, {})
    for name, spec in specs.RESNETS.items()
    if sum(map(len, spec.stages)) <= 16 and name != "LambdaResNet50"
]


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("LambdaResNet50", {}),
        (
            "ResNet50",
            {"stages": ("CC", "CC", "LL", "LL"), "se_ratio": 1 / 16},
        ),
        *UP_TO_50_LAYERS,
    ],
)
def test_published_networks_train(name, arguments):
    # Of each stage the first block, and one of each letter behind it.
    stages = [
        first + "".join(sorted({*more}))
        for first, *more in specs.RESNETS[name].stages
    ]
    # A dropped branch has no gradient: here every weight must have one.
    model = models.build(
        name,
        input_shape=(64, 64, 3),
        classes=7,
        drop_path_rate=0.0,
        **{"stages": stages, **arguments},
    )
    networks.assert_trains(model, networks.some_images(2, 64, 64, 3), classes=7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "share"),
    [("stage", False), ("block", True), ("constant", False)],
)
def test_options_train(schedule, share):
    model = networks.tiny(
        share_embeddings=share,
        drop_path_schedule=schedule,
        drop_path_rate=0.1,
        dropout_rate=0.1,
        kernel_regularizer=tf.keras.regularizers.L2(1e-4),
        se_ratio=0.25,
        se_stages=(2, 3),
    )
    networks.assert_trains(model, networks.some_images(8, 16, 16, 3), classes=5)
    # Kernels are regularised, and nothing else.
    kernels = [w for w in model.trainable_weights if len(w.shape) > 1]
    embeddings = [w for w in kernels if "embeddings" in w.name]
    assert len(model.losses) == len(kernels) - len(embeddings)


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("LambdaResNetSmall", {"input_shape": (8, 8, 3)}),
        ("LambdaResNet50", {"input_shape": (32, 32, 3)}),
        ("ResNetRS50", {"input_shape": (32, 32, 3)}),
    ],
)
def test_residual_branches_are_zero_at_the_start(name, arguments):
    model = getattr(models, name)(**arguments)
    branches = [
        layer.output
        for layer in model.layers
        if layer.name.startswith("stage")
        and layer.name.endswith(("_conv3_norm", "_se", "_drop"))
    ]
    assert len(branches) >= len([x for x in model.layers if "_add" in x.name])
    images = networks.some_images(2, *arguments["input_shape"])
    for training in (False, True):
        outputs = tf.keras.Model(model.input, branches)(
            images, training=training
        )
        assert all(np.all(output == 0) for output in outputs)


def test_symmetric_padding_is_the_same_on_both_sides():
    model = models.ResNet50(
        stages=("C", "C", "C", "C"),
        widths=(8, 8, 8, 8),
        padding="symmetric",
        activation="silu",  # Negative, so that zeros would win a maximum.
        input_shape=(33, 33, 3),
        include_preprocessing=False,
        include_top=False,
    )
    networks.vary(model)
    by_name = {layer.name: layer for layer in model.layers}
    parts = [by_name[n].output for n in ("stem_conv1_act", "stem_pool")]
    images = networks.some_images(2, 33, 33, 3)
    dense, pooled = tf.keras.Model(model.input, parts)(images)
    dense = np.asarray(dense)
    padded = np.pad(
        dense, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf
    )
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    np.testing.assert_array_equal(pooled, windows[:, ::2, ::2].max((-2, -1)))
    convolution = by_name["stem_conv1"]
    filtered = tf.nn.conv2d(
        images,
        tf.convert_to_tensor(convolution.kernel),
        2,
        [[0, 0], [3, 3], [3, 3], [0, 0]],
    )
    actual = tf.keras.Model(model.input, convolution.output)(images)
    checks.assert_close(actual, filtered, 1e-5)


def test_hybrid_block_is_the_paper_in_numpy():
    """A strided lambda block and a convolution block, in float64."""
    spec = dataclasses.replace(
        networks.TINY, stages=("LC",), widths=(8,), strides=(2,)
    )
    model, weights, images = networks.in_float64(
        spec, se_ratio=0.25, se_stages=(2,)
    )

    def middle(x, weights, name):
        layer = model.get_layer(f"{name}_lambda")
        x = numpy_network.pool(checks.oracle_output(layer, {"inputs": x}), 3)
        return numpy_network.norm_relu(x, weights, f"{name}_lambda")

    def convolution(x, weights, name):
        return numpy_network.conv_norm(x, weights, f"{name}_conv2")

    x = numpy_network.conv_norm(images, weights, "stem_conv1")
    x = numpy_network.strided_block(x, weights, "stage2_block1", middle)
    x = numpy_network.block(x, weights, "stage2_block2", convolution)
    checks.assert_close(model(images), x, 1e-10)


def test_shared_embeddings_are_one_table_per_stage():
    model = networks.tiny(stages=("LL", "LLL", "LC"), share_embeddings=True)
    tables = {
        layer.name: layer.position_embedding
        for layer in model.layers
        if isinstance(layer, LambdaLayer)
    }
    shared = {name: table.name for name, table in tables.items()}
    assert shared == {
        "stage2_block1_lambda": "stage2_embedding",
        "stage2_block2_lambda": "stage2_embedding",
        "stage3_block1_lambda": "position_embedding",
        "stage3_block2_lambda": "stage3_embedding",
        "stage3_block3_lambda": "stage3_embedding",
        "stage4_block1_lambda": "position_embedding",
    }
    assert tables["stage3_block2_lambda"] is tables["stage3_block3_lambda"]


@pytest.mark.slow
def test_scores_and_logits():
    model = networks.tiny(classifier_activation=None)
    assert model.layers[-1].activation is tf.keras.activations.linear
    scores = networks.tiny()(networks.some_images(2, 16, 16, 3))
    np.testing.assert_allclose(np.sum(scores, -1), 1, atol=1e-5)


@pytest.mark.slow
def test_pyramid_outputs_are_feature_maps_by_their_stride():
    images = networks.some_images(2, 16, 16, 3)
    model = networks.tiny()
    pyramid = model.pyramid_outputs
    assert list(pyramid) == ["P0", "P1", "P2"]
    maps = tf.keras.Model(model.input, pyramid)(images)
    ends = networks.tiny(endpoints=("c2", "c3", "c4"))
    models.set_weights(ends, networks.arrays(model), "the classifier")
    assert_same(maps.values(), ends(images).values())
    assert {level: tuple(x.shape) for level, x in maps.items()} == {
        "P0": (2, 16, 16, 32),
        "P1": (2, 8, 8, 64),
        "P2": (2, 4, 4, 64),
    }
    # Not of what endpoints cut off, and not of strides without a level.
    cut = networks.tiny(endpoints=("c3",))
    assert list(cut.pyramid_outputs) == ["P0", "P1"]
    odd = networks.tiny(strides=(1, 3, 1), include_top=False)
    assert list(odd.pyramid_outputs) == ["P0"]
    assert not [x for x in model.layers if "pyramid" in x.name]


@pytest.mark.slow
def test_input_tensor():
    images = tf.keras.Input((16, 16, 3))
    darker = tf.keras.layers.Rescaling(0.5)(images)
    for tensor in (images, darker):
        model = networks.tiny(input_tensor=tensor, input_shape=None)
        assert model.inputs[0] is images
    with pytest.raises(ValueError, match="must agree"):
        networks.tiny(input_tensor=images, input_shape=(8, 8, 3))


@pytest.mark.parametrize("name", ["LambdaResNetSmall", "LambdaResNetSmall28"])
def test_an_input_tensor_of_none_is_none(name, monkeypatch):
    monkeypatch.setattr(builders, "ResNet", lambda spec, **given: given)
    build = getattr(models, name)
    assert build(input_tensor=None)["input_shape"] == build()["input_shape"]
    assert build(input_tensor="one")["input_shape"] is None


@pytest.mark.parametrize("channels", [1, 3])
def test_preprocessing_inside_equals_outside(channels):
    inside = networks.tiny(input_shape=(16, 16, channels))
    outside = networks.tiny(
        input_shape=(16, 16, channels), include_preprocessing=False
    )
    models.set_weights(outside, networks.arrays(inside), "inside")
    images = networks.some_images(2, 16, 16, channels)
    prepared = models.preprocess_input(images, include_preprocessing=False)
    checks.assert_close(outside(prepared), inside(images), 1e-5)
    assert models.preprocess_input(images) is images
    if channels == 3:
        given = models.preprocess_input(
            images,
            include_preprocessing=False,
            mean=[123.675, 116.28, 103.53],
            std=(58.395, 57.12, 57.375),
        )
        checks.assert_close(given, prepared, 1e-6)


def test_images_are_normalized_in_single_precision():
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    layer = networks.tiny().get_layer(PREPROCESSING)
    images = networks.some_images(2, 16, 16, 3)
    normalized = layer(images)
    assert normalized.dtype == tf.float32
    tf.keras.mixed_precision.set_global_policy("float32")
    expected = networks.tiny().get_layer(PREPROCESSING)(images)
    np.testing.assert_array_equal(normalized, expected)


@pytest.mark.thorough
@pytest.mark.once
def test_compiled_by_xla():
    model = networks.tiny(share_embeddings=True, drop_path_rate=0.2)
    images = networks.some_images(2, 16, 16, 3)
    compiled = tf.function(model, jit_compile=True)
    checks.assert_close(compiled(images), model(images), 1e-4)
    assert np.all(np.isfinite(compiled(images, training=True)))


def test_options_reach_every_layer():
    model = networks.tiny(
        norm_momentum=0.9, norm_epsilon=1e-5, use_sync_bn=True
    )
    norms = [
        layer
        for layer in model.layers
        if isinstance(layer, tf.keras.layers.BatchNormalization)
    ]
    for layer in model.layers:
        if isinstance(layer, LambdaLayer):
            norms += [layer.query_norm, layer.value_norm]
    assert len(norms) > 10
    assert all(
        (n.momentum, n.epsilon, n.synchronized) == (0.9, 1e-5, True)
        for n in norms
    )
    changes = {
        "implementation": "depthwise",
        "num_heads": 2,
        "intra_depth": 3,
        "key_normalization": "l2",
        "query_normalization": "softmax",
        "use_batch_norm": False,
    }
    layer = networks.tiny(**changes).get_layer("stage3_block1_lambda")
    assert {name: getattr(layer, name) for name in changes} == changes
    assert layer.query_norm is None


def test_named_builders_show_their_arguments():
    _, _, *common = inspect.signature(models.Network).parameters
    assert common[:8] == [
        "include_top",
        "weights",
        "input_tensor",
        "input_shape",
        "pooling",
        "classes",
        "classifier_activation",
        "name",
    ]
    for argument in common:
        assert f"\n        {argument}:" in models.Network.__doc__.replace(
            "**changes", "changes"
        )
    for builder in (models.ResNet, models.MobileNet):
        shown = list(inspect.signature(builder).parameters)
        assert shown == ["spec", *common]
    for name, preset in specs.PRESETS.items():
        shown = inspect.signature(getattr(models, name)).parameters
        assert list(shown)[: len(common) - 1] == common[:-1]
        classes = 10 if name.startswith("LambdaResNetSmall") else 1000
        assert shown["classes"].default == classes
        attributes = dict(vars(preset.spec))
        del attributes["name"]
        assert {key: shown[key].default for key in attributes} == attributes
        own = set(shown) - {*common, *attributes}
        assert own == ({"pattern"} if name == "ResNet50" else set())
    # Positions are those of the signature.
    assert models.LambdaResNetSmall(False, None).output_shape[1:] == (2, 2, 512)


@pytest.mark.thorough
@pytest.mark.once
def test_named_builders_say_what_is_true():
    for name, preset in specs.PRESETS.items():
        text = " ".join(getattr(models, name).__doc__.split())
        assert f"{preset.parameters:,} parameters; " in text
        assert re.search(rf"images of {preset.spec.image_size} pixels", text)
        with (
            pytest.raises(ValueError, match="`endpoints`.*among") as info,
            networks.shapes_alone(),
        ):
            models.build(
                name,
                input_shape=(32, 32, 3),
                endpoints=("c9",),
                **shallow(preset.spec),
            )
        assert str(documented_maps(text)) in str(info.value)


def documented_maps(text):
    """The names of feature maps that a docstring says."""
    first, last, *others = re.search(
        r'feature maps "c(\d)" to "c(\d)"(?: and "(\w+)")?\.', text
    ).groups()
    maps = [f"c{i}" for i in range(int(first), int(last) + 1)]
    return (*maps, *filter(None, others))


def shallow(spec):
    """A change that keeps the stages of a network, but is quick to build."""
    if isinstance(spec, specs.MobileNetSpec):
        return {}
    return {"stages": tuple(letters[-1] for letters in spec.stages)}


def test_networks_by_name():
    arguments = {"stages": ["L"], "widths": [8], "strides": [1]}
    model = models.build("LambdaResNetSmall", **arguments)
    assert model.get_layer("stage2_block1_lambda").filters == 8
    assert {*models.names()} <= {*models.__all__}


@pytest.mark.slow
def test_clones_share_what_the_network_shares(rng):
    model = networks.tiny(
        stages=("LLL",),
        widths=(8,),
        strides=(1,),
        share_embeddings=True,
        scope=None,
    )
    clone = models.clone_network(model)
    assert len(clone.weights) == len(model.weights)
    models.set_weights(clone, networks.arrays(model), "the network")
    images = networks.some_images(2, 16, 16, 3)
    checks.assert_close(clone(images), model(images), 1e-6)
    images = tf.keras.Input((20, 24, 3))
    larger = models.clone_network(model, images)
    assert larger.output_shape == model.output_shape
    lambdas = [x for x in larger.layers if isinstance(x, LambdaLayer)]
    assert len({id(x.position_embedding) for x in lambdas}) == 1


@pytest.mark.slow
def test_clones_of_models_around_a_network_share_too(recwarn):
    network = models.LambdaResNetSmall(
        stages=("LL",), widths=(8,), strides=(1,), share_embeddings=True
    )
    network.trainable = False
    images = tf.keras.Input((8, 8, 1))
    scores = tf.keras.layers.Dense(2)(network(images))
    model = tf.keras.Model(images, scores)
    for copy in (
        models.clone_network(model),
        models.resize_embeddings(model, (8, 8, 1)),
        fold_batch_norm(model),
    ):
        assert len(copy.weights) == len(model.weights)
        assert len(copy.trainable_weights) == len(model.trainable_weights) == 2
    assert not recwarn.list


# Values that seem to be of zero mean and unit variance, and pixels.
NORMALIZED = {
    "drawings": lambda x: (x**6 - 0.1307) / 0.3081,
    "each image": lambda x: 3 * (x**6 - np.mean(x**6)) / np.std(x**6),
    "photographs": lambda x: 4 * x - 2,
}
PIXELS = {
    "overshoot": lambda x: np.where(x < 0.05, -9.5, 255 * x),
    "dark overshoot": lambda x: np.where(x < 0.05, -0.5, 8 * x),
    "dark": lambda x: 9 * x,
}


@pytest.mark.parametrize("kind", [*NORMALIZED, *PIXELS])
def test_normalized_images_are_warned_of(kind, rng):
    check = _RangeCheck()
    values = {**NORMALIZED, **PIXELS}[kind](rng.random((8, 9, 9, 1)))
    values = values.astype("float32")
    if kind in PIXELS:
        check(values)
        return
    with pytest.warns(UserWarning, match="zero mean and unit variance"):
        check(values)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_tensors_without_values_or_sizes_are_preprocessed(channels):
    normalize = functools.partial(
        models.preprocess_input, include_preprocessing=False
    )
    values = networks.some_images(2, 5, 7, channels)
    expected = normalize(values)
    images = tf.keras.Input((5, 7, channels))
    model = tf.keras.Model(images, normalize(images))
    checks.assert_close(model(values), expected, 1e-6)

    def of_unknown(function, shape=None):
        return tf.function(function, input_signature=[tf.TensorSpec(shape)])

    unknown = of_unknown(normalize, [None, None, None, channels])
    checks.assert_close(unknown(values), expected, 1e-6)
    with pytest.raises(ValueError, match="channels"):
        of_unknown(normalize)(values)
    same = of_unknown(models.preprocess_input)
    np.testing.assert_array_equal(same(values), values)
    for data_format in (None, "channels_last"):
        assert models.preprocess_input(values, data_format) is values


def test_decode_predictions():
    scores = np.array([[0.1, 0.6, 0.3], [0.5, 0.1, 0.4]])
    decoded = models.decode_predictions(scores, 2, ["ant", "bee", "cow"])
    assert [[name for _, name, _ in row] for row in decoded] == [
        ["bee", "cow"],
        ["ant", "cow"],
    ]
    assert decoded[0][0][0] == 1
    assert decoded[0][0][2] == pytest.approx(0.6)


def test_names_of_imagenet():
    decoded = models.decode_predictions(np.eye(1000), top=1)
    indices, names, scores = zip(*[best for (best,) in decoded], strict=True)
    assert indices == tuple(range(1000))
    assert set(scores) == {1.0}
    known = {0: "tench", 207: "golden_retriever", 281: "tabby", 340: "zebra"}
    known |= {404: "airliner", 949: "strawberry", 999: "toilet_tissue"}
    assert {index: names[index] for index in known} == known
    # Two birds and machines, two bathing suits.
    assert len(set(names)) == 998
