"""The residual networks: counts, sizes, ends, precision, training, errors."""

import dataclasses
import functools
import inspect

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.models import builders
from lambdanet_tf.models.images import PREPROCESSING
from lambdanet_tf.serving import fold_batch_norm
from tests.support import checks
from tests.support import networks
from tests.support import numpy_network

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
    trained = [int(np.prod(w.shape)) for w in model.trainable_weights]
    assert sum(trained) == preset.parameters


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
    model = networks.tiny(
        stages=("LLL",), widths=(8,), strides=(2,), share_embeddings=True
    )
    first, second, third = (
        layer.position_embedding
        for layer in model.layers
        if isinstance(layer, LambdaLayer)
    )
    # The first block of a stage sees another number of positions.
    assert first.name == "position_embedding"
    assert second.name == "stage2_embedding"
    assert second is third


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


def test_images_are_normalized_in_single_precision():
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    layer = networks.tiny().get_layer(PREPROCESSING)
    images = networks.some_images(2, 16, 16, 3)
    normalized = layer(images)
    assert normalized.dtype == tf.float32
    tf.keras.mixed_precision.set_global_policy("float32")
    expected = networks.tiny().get_layer(PREPROCESSING)(images)
    np.testing.assert_array_equal(normalized, expected)


def test_options_reach_every_layer():
    model = networks.tiny(
        norm_momentum=0.9,
        norm_epsilon=1e-5,
        use_sync_bn=True,
        se_ratio=0.25,
        kernel_regularizer=tf.keras.regularizers.L2(1e-4),
    )
    # Kernels are regularised, and nothing else.
    kernels = [w for w in model.trainable_weights if len(w.shape) > 1]
    embeddings = [w for w in kernels if "embeddings" in w.name]
    assert len(model.losses) == len(kernels) - len(embeddings)
    layer = model.get_layer("stage3_block1_lambda")
    norms = [x for x in model.layers if x.name.endswith("_norm")]
    norms += [layer.query_norm, layer.value_norm]
    for norm in norms:
        options = norm.momentum, norm.epsilon, norm.synchronized
        assert options == (0.9, 1e-5, True)
    changes = {
        "implementation": "depthwise",
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
    for argument in common[:-1]:
        assert f"\n        {argument}:" in models.Network.__doc__
    for name, preset in specs.PRESETS.items():
        builder = getattr(models, name)
        assert f" {preset.parameters:,} parameters;" in builder.__doc__
        shown = inspect.signature(builder).parameters
        assert list(shown)[: len(common) - 1] == common[:-1]
        attributes = dict(vars(preset.spec))
        del attributes["name"]
        assert {key: shown[key].default for key in attributes} == attributes
    arguments = {"stages": ["L"], "widths": [8], "strides": [1]}
    model = models.build("ResNet50", input_shape=(32, 32, 3), **arguments)
    assert model.get_layer("stage2_block1_lambda").filters == 8
    # Positions are those of the signature.
    assert models.LambdaResNetSmall(False, None).output_shape[1:] == (2, 2, 512)


@pytest.mark.slow
def test_clones_share_what_the_network_shares(recwarn):
    network = networks.tiny(
        stages=("LL",),
        widths=(8,),
        strides=(1,),
        share_embeddings=True,
        scope=None,
    )
    network.trainable = False
    images = tf.keras.Input((16, 16, 3))
    scores = tf.keras.layers.Dense(2)(network(images))
    model = tf.keras.Model(images, scores)
    for copy in (
        models.clone_network(model),
        models.resize_embeddings(model, (16, 16, 3)),
        models.replace_layers(model, lambda layer, place: None),
        fold_batch_norm(model),
    ):
        assert len(copy.weights) == len(model.weights)
        assert len(copy.trainable_weights) == len(model.trainable_weights) == 2
    assert not recwarn.list
    larger = models.clone_network(network, tf.keras.Input((20, 24, 3)))
    assert larger.output_shape == network.output_shape
    lambdas = [x for x in larger.layers if isinstance(x, LambdaLayer)]
    assert lambdas[0].position_embedding is lambdas[1].position_embedding


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


def test_names_of_imagenet():
    decoded = models.decode_predictions(np.eye(1000), top=1)
    indices, names, scores = zip(*[best for (best,) in decoded], strict=True)
    assert indices == tuple(range(1000))
    assert set(scores) == {1.0}
    assert names[281] == "tabby"
    # Two birds and machines, two bathing suits.
    assert len(set(names)) == 998
